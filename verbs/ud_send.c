/*
 * The send queue of a UD QP (ud.h). A request completes when its message has
 * arrived at the peer's worker, so that a program does not send faster than its
 * peer takes; or when it is dropped, or its session makes no progress.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "verbs/group_gid.h"
#include "verbs/ud.h"
#include "verbs/verbs.h"

enum {
	/* Without progress for so long, completions do not wait: of a session
	 * that is UP, and of one that is being made. */
	SLOW_MS = 100,
	SLOW_KEYS_MS = 2000,
	GROUP_MS = 100, /* for the members of a group, after the request */
	QKEY_OF_QP = 1u << 31, /* IBA 10.2.5: the sender's own Q_Key counts */
};

static uint32_t under_way(const struct ud_session *s)
{
	return s->put - s->done;
}

/* --- the message ------------------------------------------------------------------- */

/* Bytes of the payload, or UINT32_MAX: more than the MTU. */
static uint32_t length_of(const struct ibv_send_wr *wr)
{
	uint64_t len = 0;

	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	return len > UD_MTU ? UINT32_MAX : (uint32_t)len;
}

/* Copies the payload. 0, or -EFAULT: no region has the bytes. */
static int gather(const struct verbs_ud *ud, const struct ibv_send_wr *wr,
		  uint8_t *out)
{
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];
		const void *from =
			wr->send_flags & IBV_SEND_INLINE
				? (const void *)(uintptr_t)sge->addr
				: verbs_mr_at(ud->qp->ibv.pd, sge, 0);

		if (!sge->length)
			continue;
		if (!from)
			return -EFAULT;
		memcpy(out, from, sge->length);
		out += sge->length;
	}
	return 0;
}

static int has_memory(struct ud_session *s)
{
	const struct srdma_mr_attr attr = { .length = (size_t)s->ud->places *
						      UD_SLOT };
	struct srdma_pd *pd = ((struct verbs_pd *)s->ud->qp->ibv.pd)->pd;

	return s->mr || !srdma_alloc_mr(&s->mr, pd, &attr);
}

static struct ud_head head_of(const struct verbs_ud *ud,
			      const struct ibv_send_wr *wr)
{
	const struct verbs_ah *ah = (const struct verbs_ah *)wr->wr.ud.ah;
	const uint32_t qkey = wr->wr.ud.remote_qkey;

	return (struct ud_head){
		.qkey = qkey & QKEY_OF_QP ? ud->qp->attr.qkey : qkey,
		.group = verbs_gid_is_group(ah->gid.raw) ? ah->gid.raw : NULL,
	};
}

/* Puts the message into the memory of the session. */
static enum ibv_wc_status put(struct ud_session *s,
			      const struct ibv_send_wr *wr, uint32_t len)
{
	const uint32_t i = s->put % s->ud->places;
	const struct ud_head head = head_of(s->ud, wr);
	const uint32_t head_len = ud_head_len(&head);
	uint8_t *slot = ud_slot(s->mr, i);

	if (gather(s->ud, wr, slot + head_len))
		return IBV_WC_LOC_PROT_ERR;
	ud_head_write(slot, &head);
	s->messages[i] = (struct ud_message){
		.request = s->ud->requests,
		.len = head_len + len,
		.imm = ntohl(wr->imm_data),
		.has_imm = wr->opcode == IBV_WR_SEND_WITH_IMM,
	};
	s->used = ud_now();
	if (!under_way(s))
		s->moved = s->used;
	s->put++;
	return IBV_WC_SUCCESS;
}

/* Sends a legal message to a UD QP, or drops it. Sets the status of *e. NULL: it is
 * not under way. */
static struct ud_session *send_to(struct verbs_ud *ud, const struct ud_name *to,
				  const struct ibv_send_wr *wr,
				  struct ud_send *e)
{
	const char *why;
	struct ud_session *s = ud_session_to(ud, to, &why);

	if (!s) {
		ud_drop(ud, UD_DROP_NO_SESSION, 1, why);
		return NULL;
	}
	if (under_way(s) == ud->places || !has_memory(s)) {
		ud_drop(ud, UD_DROP_FULL, 1, NULL);
		return NULL;
	}
	e->number = s->put;
	e->status = put(s, wr, e->len);
	ud_send_flush(s);
	return e->status == IBV_WC_SUCCESS ? s : NULL;
}

/* --- groups ------------------------------------------------------------------------ */

/* The QP gets its own message, if it is a member. */
static void send_to_self(struct verbs_ud *ud, const struct ibv_send_wr *wr,
			 struct ud_send *e)
{
	const struct ud_head head = head_of(ud, wr);
	uint8_t payload[UD_MTU];
	const struct ud_own own = {
		.payload = payload,
		.len = e->len,
		.imm = ntohl(wr->imm_data),
		.has_imm = wr->opcode == IBV_WR_SEND_WITH_IMM,
	};

	if (ud->qp->no_loop || !ud_group_attached(ud->qp, head.group))
		return;
	if (gather(ud, wr, payload))
		e->status = IBV_WC_LOC_PROT_ERR;
	else
		ud_recv_own(ud, &head, &own);
}

/* Sends a copy to each member over the session with it, so that a member knows which
 * identity has sent it. */
static void send_to_members(struct verbs_ud *ud, const struct ud_group *g,
			    const struct ibv_send_wr *wr, struct ud_send *e)
{
	const struct ud_members *m = &g->members;

	ud_drop(ud, UD_DROP_MEMBERS, m->left, NULL);
	for (unsigned i = 0; i < m->n && e->status == IBV_WC_SUCCESS; i++) {
		struct ud_member *member = m->copies[i].member;
		const struct ud_name to = { .gid = m->copies[i].gid,
					    .qp_num = member->qp_num,
					    .pause = &member->pause };

		send_to(ud, &to, wr, e);
	}
}

static void send_to_group(struct verbs_ud *ud, const struct ibv_send_wr *wr,
			  struct ud_send *e)
{
	const struct verbs_ah *ah = (const struct verbs_ah *)wr->wr.ud.ah;
	const char *why;
	const struct ud_group *g = ud_group_to(ud, ah->gid.raw, &why);

	e->group = 1;
	if (g)
		send_to_members(ud, g, wr, e);
	else
		ud_drop(ud, UD_DROP_NO_GROUP, 1, why);
	if (e->status == IBV_WC_SUCCESS)
		send_to_self(ud, wr, e);
}

/* Sends a legal message, or drops it. Completes *e. */
static void dispatch(struct verbs_ud *ud, const struct ibv_send_wr *wr,
		     struct ud_send *e)
{
	const struct verbs_ah *ah = (const struct verbs_ah *)wr->wr.ud.ah;
	const struct ud_name to = { .gid = ah->gid.raw,
				    .qp_num = wr->wr.ud.remote_qpn };

	e->request = ud->requests;
	if (verbs_gid_is_group(ah->gid.raw))
		send_to_group(ud, wr, e);
	else
		e->session = send_to(ud, &to, wr, e);
	ud->requests++;
}

/* --- the queue --------------------------------------------------------------------- */

static int check(const struct verbs_ud *ud, const struct ibv_send_wr *wr)
{
	const struct ibv_ah *ah = wr->wr.ud.ah;

	if ((wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) ||
	    wr->num_sge < 0 || wr->num_sge > (int)ud->qp->cap.max_send_sge ||
	    !ah || ah->context != ud->qp->ibv.context ||
	    !wr->wr.ud.remote_qpn || wr->wr.ud.remote_qpn > UD_QPN_MOST)
		return EINVAL;
	if (verbs_gid_is_group(((const struct verbs_ah *)ah)->gid.raw) &&
	    wr->wr.ud.remote_qpn != VERBS_GROUP_QPN)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    length_of(wr) > SRDMA_INLINE_MAX)
		return EINVAL;
	return 0;
}

int verbs_ud_check_all(const struct verbs_ud *ud, const struct ibv_send_wr *wr)
{
	int err = 0;

	for (; wr && !err; wr = wr->next)
		err = check(ud, wr);
	return err;
}

uint32_t verbs_ud_send_room(const struct verbs_ud *ud)
{
	return ud->sends.room - ud->sends.count;
}

int verbs_ud_post_send(struct verbs_ud *ud, const struct ibv_send_wr *wr)
{
	const int in_error = ud->qp->ibv.state == IBV_QPS_ERR;
	struct ud_send e = {
		.wr_id = wr->wr_id,
		.signaled = ud->qp->sq_sig_all ||
			    wr->send_flags & IBV_SEND_SIGNALED,
		.status = in_error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS,
	};
	int err = check(ud, wr);

	if (err)
		return err;
	if (!verbs_ud_send_room(ud))
		return ENOMEM;
	e.len = length_of(wr);
	e.posted = ud_now();
	verbs_connect_look(ud->root);
	if (!in_error && e.len > UD_MTU)
		e.status = IBV_WC_LOC_LEN_ERR;
	if (e.status == IBV_WC_SUCCESS)
		dispatch(ud, wr, &e);
	ud->send[ud_ring_at(&ud->sends, ud->sends.count++)] = e;
	ud_send_complete(ud);
	return 0;
}

static int is_slow(const struct ud_session *s)
{
	return ud_now() - s->moved >
	       (s->state == UD_UP ? SLOW_MS : SLOW_KEYS_MS);
}

/* 1: a message of this request, or of an earlier one, has not arrived. A member that is
 * not ready may take as long as it likes, and so the request does not wait for it. */
static int holds(const struct ud_session *s, uint32_t request)
{
	const struct ud_message *first = &s->messages[s->done % s->ud->places];

	return s->state == UD_UP && under_way(s) &&
	       (int32_t)(first->request - request) <= 0 && !is_slow(s);
}

static int is_group_complete(const struct verbs_ud *ud, const struct ud_send *e)
{
	const struct ud_session *s = ud->sessions;

	if (ud_now() - e->posted > GROUP_MS)
		return 1;
	while (s && !holds(s, e->request))
		s = s->next;
	return !s;
}

static int is_complete(const struct verbs_ud *ud, const struct ud_send *e)
{
	const struct ud_session *s = e->session;

	if (ud->qp->ibv.state == IBV_QPS_ERR)
		return 1;
	if (e->group)
		return is_group_complete(ud, e);
	return !s || (int32_t)(s->done - e->number) > 0 || is_slow(s);
}

void ud_send_complete(struct verbs_ud *ud)
{
	int failed = 0;

	while (ud->sends.count) {
		const struct ud_send *e = &ud->send[ud->sends.head];
		const struct ibv_wc wc = { .wr_id = e->wr_id,
					   .status = e->status,
					   .opcode = IBV_WC_SEND,
					   .byte_len = e->len,
					   .qp_num = ud->qp->ibv.qp_num };

		if (!is_complete(ud, e))
			break;
		if (e->signaled || e->status != IBV_WC_SUCCESS)
			verbs_cq_put((struct verbs_cq *)ud->qp->ibv.send_cq,
				     &wc);
		failed |= e->status != IBV_WC_SUCCESS;
		ud_ring_pop(&ud->sends);
	}
	if (failed && ud->qp->ibv.state != IBV_QPS_ERR)
		verbs_ud_error(ud->qp);
}

/* --- the QP of a session ------------------------------------------------------------- */

static int may_post(const struct ud_session *s)
{
	return s->state == UD_UP && s->posted != s->put &&
	       s->posted - s->done < UD_SENDS;
}

void ud_send_flush(struct ud_session *s)
{
	while (may_post(s)) {
		const uint32_t i = s->posted % s->ud->places;
		const struct ud_message *m = &s->messages[i];
		struct srdma_send_wr wr = {
			.opcode = m->has_imm ? SRDMA_WR_SEND_WITH_IMM
					     : SRDMA_WR_SEND,
			.flags = SRDMA_SEND_SIGNALED |
				 (m->len <= SRDMA_INLINE_MAX ? SRDMA_SEND_INLINE
							     : 0),
			.addr = ud_slot(s->mr, i),
			.length = m->len,
			.lkey = ud_key(s->mr),
			.imm_data = m->imm,
		};

		if (srdma_post_send(s->qp, &wr, NULL))
			return; /* the leg is full; or it ends, which is told */
		s->posted++;
	}
}

void ud_send_done(struct ud_session *s, const struct srdma_wc *wc)
{
	if (wc->status != SRDMA_WC_SUCCESS) {
		s->lost = 1;
		return;
	}
	if (!under_way(s)) /* it was forgotten */
		return;
	s->done++;
	s->moved = ud_now();
}

void ud_send_forget(struct ud_session *s)
{
	struct verbs_ud *ud = s->ud;

	for (uint32_t i = 0; i < ud->sends.count; i++) {
		struct ud_send *e = &ud->send[ud_ring_at(&ud->sends, i)];

		if (e->session == s)
			e->session = NULL;
	}
	s->put = s->posted = s->done = 0;
}
