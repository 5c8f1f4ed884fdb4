/*
 * The receive queue of a UD QP (ud.h). Messages of all sessions arrive in slots of
 * the library. One that is not legal is dropped. The others wait in their order
 * for a receive of the program, into which they are copied behind a GRH whose
 * source is the GID that the agents authenticated.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "verbs/ud.h"
#include "verbs/verbs.h"

int ud_recv_offer(struct verbs_ud *ud, uint32_t i)
{
	struct srdma_recv_wr wr = { .wr_id = i,
				    .addr = ud_slot(ud->mr, i),
				    .length = UD_SLOT,
				    .lkey = ud_key(ud->mr) };

	return srdma_post_recv(ud->qp->qp, &wr, NULL);
}

static int has_qp(const struct verbs_ud *ud)
{
	return ud->qp->qp->status == SRDMA_QP_STATUS_INIT;
}

/* The slot is free. It waits if the leg is full, as it may be when messages go to many
 * peers. If the worker cannot take it, its QP has ended. */
static void give_back(struct verbs_ud *ud, uint32_t slot)
{
	int r = has_qp(ud) ? ud_recv_offer(ud, slot) : 0;

	if (r == -EAGAIN)
		ud->late[ud->n_late++] = slot;
	else if (r)
		verbs_ud_error(ud->qp);
}

static void give_late(struct verbs_ud *ud)
{
	uint32_t before;

	while (ud->n_late && has_qp(ud)) {
		before = ud->n_late--;
		give_back(ud, ud->late[ud->n_late]);
		if (ud->n_late == before)
			return;
	}
}

/* --- messages ---------------------------------------------------------------------- */

/* 1 if the message may be given to the program. Else it is counted. */
static int is_legal(struct verbs_ud *ud, const struct srdma_wc *wc,
		    struct ud_head *head)
{
	enum ud_drop reason = UD_DROPS;

	if (ud_head_read(head, ud_slot(ud->mr, (uint32_t)wc->wr_id),
			 wc->byte_len) ||
	    wc->byte_len - ud_head_len(head) > UD_MTU)
		reason = UD_DROP_BAD;
	else if (head->qkey != ud->qp->attr.qkey)
		reason = UD_DROP_QKEY;
	else if (head->group && !ud_group_attached(ud->qp, head->group))
		reason = UD_DROP_GROUP;
	if (reason == UD_DROPS)
		return 1;
	ud_drop(ud, reason, 1, NULL);
	return 0;
}

/* 1: the session has keys, or had them when it ended. */
static int has_keys(const struct ud_arrival *a)
{
	return !a->session || ud_has_keys(a->session);
}

/* 1 if the message may wait. Peers that do not confirm the keys leave slots to the
 * other ones. Else it is counted. */
static int has_place(struct verbs_ud *ud, const struct ud_session *s)
{
	uint32_t early = 0;

	if (ud_has_keys(s))
		return 1;
	for (uint32_t i = 0; i < ud->arrivals.count; i++)
		early += !has_keys(&ud->arrival[ud_ring_at(&ud->arrivals, i)]);
	if (early < UD_RECVS_EARLY)
		return 1;
	ud_drop(ud, UD_DROP_EARLY, 1, NULL);
	return 0;
}

/* The GIDs of the GRH. */
static void set_ends(const struct verbs_ud *ud, struct ud_arrival *a,
		     const uint8_t *from, const struct ud_head *head)
{
	memcpy(a->from, from, sizeof(a->from));
	memcpy(a->to, head->group ? head->group : ud->root->attr.gid,
	       sizeof(a->to));
}

void ud_recv_arrived(struct verbs_ud *ud, struct ud_session *s,
		     const struct srdma_wc *wc)
{
	struct ud_arrival *a;
	struct ud_head head;

	if (wc->status != SRDMA_WC_SUCCESS || !ud->ready ||
	    s->state == UD_FAILED || !is_legal(ud, wc, &head) ||
	    !has_place(ud, s)) {
		give_back(ud, (uint32_t)wc->wr_id);
		return;
	}
	s->used = ud_now();
	a = &ud->arrival[ud_ring_at(&ud->arrivals, ud->arrivals.count++)];
	*a = (struct ud_arrival){
		.session = s,
		.slot = (uint32_t)wc->wr_id,
		.payload = ud_slot(ud->mr, (uint32_t)wc->wr_id) +
			   ud_head_len(&head),
		.len = wc->byte_len - ud_head_len(&head),
		.imm = wc->imm_data,
		.has_imm = (wc->wc_flags & SRDMA_WC_WITH_IMM) != 0,
		.peer = s->peer,
	};
	set_ends(ud, a, s->gid, &head);
}

void ud_recv_forget(struct ud_session *s)
{
	struct verbs_ud *ud = s->ud;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < ud->arrivals.count; i++) {
		struct ud_arrival *a =
			&ud->arrival[ud_ring_at(&ud->arrivals, i)];

		if (a->session == s && !ud_has_keys(s)) {
			give_back(ud, a->slot);
			continue;
		}
		if (a->session == s)
			a->session = NULL;
		ud->arrival[ud_ring_at(&ud->arrivals, kept++)] = *a;
	}
	ud->arrivals.count = kept;
}

/* --- receives ---------------------------------------------------------------------- */

static void complete(struct verbs_ud *ud, struct ibv_wc *wc)
{
	struct verbs_srq *srq = (struct verbs_srq *)ud->qp->ibv.srq;

	wc->wr_id = verbs_recvs_first(ud->recvs)->wr_id;
	wc->opcode = IBV_WC_RECV;
	wc->qp_num = ud->qp->ibv.qp_num;
	ud_ring_pop(&ud->recvs->ring);
	verbs_cq_put((struct verbs_cq *)ud->qp->ibv.recv_cq, wc);
	if (srq)
		verbs_srq_done(srq);
}

void ud_recv_flush(struct verbs_ud *ud)
{
	while (ud->own.ring.count) {
		struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR };

		complete(ud, &wc);
	}
}

void ud_recv_clear(struct verbs_ud *ud)
{
	for (; ud->arrivals.count; ud_ring_pop(&ud->arrivals))
		give_back(ud, ud->arrival[ud->arrivals.head].slot);
	ud->own.ring.count = 0;
}

int verbs_ud_post_recv(struct verbs_ud *ud, const struct ibv_recv_wr *wr)
{
	int err = verbs_recvs_put(&ud->own, wr);

	if (err)
		return err;
	if (ud->qp->ibv.state == IBV_QPS_ERR)
		ud_recv_flush(ud);
	return 0;
}

/* Bytes that are to be copied into the memory of a receive. */
struct source {
	const struct verbs_ud *ud;
	struct ibv_sge *sge, *end;
	uint32_t used; /* bytes of *sge */
};

/* 0, -EMSGSIZE: there is not enough memory; -EFAULT: it is in no region. */
static int scatter(struct source *to, const uint8_t *from, uint32_t len)
{
	while (len) {
		const uint32_t room =
			to->sge == to->end ? 0 : to->sge->length - to->used;
		const uint32_t n = len < room ? len : room;
		uint8_t *at;

		if (to->sge == to->end)
			return -EMSGSIZE;
		at = verbs_mr_at(to->ud->qp->ibv.pd, to->sge,
				 IBV_ACCESS_LOCAL_WRITE);
		if (n && !at)
			return -EFAULT;
		if (n)
			memcpy(at + to->used, from, n);
		from += n;
		len -= n;
		to->used += n;
		if (to->used == to->sge->length) {
			to->sge++;
			to->used = 0;
		}
	}
	return 0;
}

static int copy(const struct verbs_ud *ud, const struct ud_arrival *a)
{
	const struct ibv_recv_wr *wr = verbs_recvs_first(ud->recvs);
	struct source to = { .ud = ud, .sge = wr->sg_list };
	const struct ud_route route = { .from = a->from,
					.to = a->to,
					.len = (uint16_t)a->len };
	uint8_t grh[UD_GRH];
	int r;

	to.end = to.sge + wr->num_sge;
	ud_grh_write(grh, &route);
	r = scatter(&to, grh, sizeof(grh));
	return r ? r : scatter(&to, a->payload, a->len);
}

static uint64_t room_of(const struct verbs_ud *ud)
{
	const struct ibv_recv_wr *wr = verbs_recvs_first(ud->recvs);
	uint64_t room = 0;

	for (int i = 0; i < wr->num_sge; i++)
		room += wr->sg_list[i].length;
	return room;
}

static void deliver(struct verbs_ud *ud, const struct ud_arrival *a)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS,
			     .byte_len = UD_GRH + a->len,
			     .src_qp = a->peer,
			     .wc_flags = IBV_WC_GRH };

	if (room_of(ud) < wc.byte_len) {
		ud_drop(ud, UD_DROP_SHORT, 1, NULL);
		return;
	}
	if (a->has_imm) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = htonl(a->imm);
	}
	if (copy(ud, a))
		wc = (struct ibv_wc){ .status = IBV_WC_LOC_PROT_ERR };
	complete(ud, &wc);
	if (wc.status != IBV_WC_SUCCESS)
		verbs_ud_error(ud->qp);
}

/* As a NIC does, it drops the message if there is no receive: the program may only
 * send. */
void ud_recv_own(struct verbs_ud *ud, const struct ud_head *head,
		 const struct ud_own *own)
{
	struct ud_arrival a = { .payload = own->payload,
				.len = own->len,
				.imm = own->imm,
				.has_imm = own->has_imm,
				.peer = ud->qp->ibv.qp_num };

	if (!ud->ready || !ud->recvs->ring.count ||
	    head->qkey != ud->qp->attr.qkey)
		return;
	set_ends(ud, &a, ud->root->attr.gid, head);
	deliver(ud, &a);
}

/* Takes the first message whose session has keys. The order of the others stays.
 * 0: there is none. */
static int take(struct verbs_ud *ud, struct ud_arrival *out)
{
	struct ud_ring *ring = &ud->arrivals;
	uint32_t i = 0;

	while (i < ring->count) {
		*out = ud->arrival[ud_ring_at(ring, i)];
		if (has_keys(out))
			break;
		i++;
	}
	if (i == ring->count)
		return 0;
	for (; i; i--)
		ud->arrival[ud_ring_at(ring, i)] =
			ud->arrival[ud_ring_at(ring, i - 1)];
	ud_ring_pop(ring);
	return 1;
}

void ud_recv_deliver(struct verbs_ud *ud)
{
	struct ud_arrival a;

	while (ud->ready && ud->recvs->ring.count && take(ud, &a)) {
		deliver(ud, &a);
		give_back(ud, a.slot);
	}
	give_late(ud);
}
