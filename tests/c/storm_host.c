#include "storm_host.h"

#include <stdlib.h>
#include <string.h>

#include "storm_memory.h"

struct storm_end *storm_host_peer(struct storm_qp *qp, int side)
{
	return &qp->end[!side];
}

int storm_host_sees(const struct storm_end *e)
{
	return e->leg->open && !e->leg->closing && !e->leg->broken &&
	       !e->leaving && !e->gone;
}

int storm_host_put(struct storm_leg *leg, struct srdma_desc *d,
		   const uint8_t *payload)
{
	uint8_t slot[SRDMA_DESC_SLOT] = { 0 };
	uint32_t len = SRDMA_DESC_LEN;

	d->consumed = leg->consumed;
	srdma_desc_encode(slot, d);
	if (d->flags & SRDMA_DESC_INLINE) {
		if (d->length)
			memcpy(slot + len, payload, d->length);
		len += d->length;
	}
	if (srdma_port_mem_post(leg->conn, slot, len))
		return -1;
	leg->told = leg->consumed;
	return 0;
}

int storm_host_takes_recv(uint8_t op)
{
	return op == SRDMA_DESC_WRITE_IMM || op == SRDMA_DESC_SEND ||
	       op == SRDMA_DESC_SEND_IMM;
}

struct storm_wr *storm_host_message(struct storm_queue *sq, uint32_t n)
{
	for (uint32_t i = sq->tail; i-- > 0;)
		if (storm_host_takes_recv(sq->wr[i].op) &&
		    sq->wr[i].message == n)
			return &sq->wr[i];
	return NULL;
}

static int has_room(const struct storm_queue *q)
{
	return q->tail < STORM_SENDS && q->tail - q->head < q->depth;
}

static int is_guarded(const struct storm *w, uint32_t area)
{
	return w->guarded && area == STORM_GUARDED;
}

/* One of the first n areas for own use. */
static uint32_t own_area(struct storm *w, uint32_t n)
{
	uint32_t area = storm_random(w, n);

	return is_guarded(w, area) ? 0 : area;
}

int storm_host_recv(struct storm *w, struct storm_qp *qp, int side,
		    uint32_t len)
{
	struct storm_end *e = &qp->end[side];
	struct storm_queue *rq = &e->rq;
	struct storm_wr *wr = &rq->wr[rq->tail];
	const struct storm_wr *m;
	struct srdma_desc d = { .opcode = SRDMA_DESC_RECV,
				.qpn = e->info.qpn,
				.id = rq->tail };
	uint32_t area = own_area(w, 3);

	if (!storm_host_sees(e) || !has_room(rq))
		return 0;
	m = storm_host_message(&storm_host_peer(qp, side)->sq, rq->tail);
	if (m && m->op != SRDMA_DESC_WRITE_IMM && m->len > len)
		len = m->len;
	wr->local = storm_memory_take(w, e->leg, area, len);
	for (uint32_t i = 0; i < 3 && !wr->local; i++)
		if (!is_guarded(w, i))
			wr->local = storm_memory_take(w, e->leg, area = i, len);
	if (!wr->local) { /* too short for what comes, or not */
		len = 0;
		wr->local = e->leg->mem + e->leg->area[area].at;
		qp->doomed |= m && m->op != SRDMA_DESC_WRITE_IMM && m->len;
	}
	wr->len = d.length = len;
	d.local_addr = (uintptr_t)wr->local;
	d.local_key = e->leg->area[area].key;
	if (storm_host_put(e->leg, &d, NULL))
		return 0;
	if (storm_memory_area(e->leg, wr->local)->state != STORM_FROZEN)
		storm_memory_expect(e->leg, wr->local, len, STORM_ANY, NULL);
	rq->tail++;
	return 1;
}

/* Where the bytes come from or go to. 0: no room for them. */
static int choose_local(struct storm *w, struct storm_end *e,
			struct storm_wr *wr, struct srdma_desc *d)
{
	uint32_t area = own_area(w, wr->op == SRDMA_DESC_READ ? 3 : 4);

	wr->data = malloc(wr->len + 1);
	STORM_CHECK(w, wr->data, "no memory");
	if (wr->op != SRDMA_DESC_READ && wr->len <= SRDMA_MAX_IMMEDIATE &&
	    storm_one_in(w, 3)) {
		d->flags |= SRDMA_DESC_INLINE;
		storm_memory_fill(w, wr->data, wr->len);
		return 1;
	}
	wr->local = storm_memory_take(w, e->leg, area, wr->len);
	if (!wr->local)
		return 0;
	d->local_addr = (uintptr_t)wr->local;
	d->local_key = e->leg->area[area].key;
	if (wr->op != SRDMA_DESC_READ)
		memcpy(wr->data, wr->local, wr->len);
	return 1;
}

/* A range that an earlier request of this end used, for the same bytes in
 * the order that the protocol promises: READ after WRITE, fenced WRITE after
 * READ. NULL: none. */
static struct storm_wr *reuse(struct storm *w, struct storm_queue *sq,
			      const struct storm_wr *wr)
{
	int read = wr->op == SRDMA_DESC_READ;

	for (uint32_t i = sq->tail; i-- > 0;) {
		struct storm_wr *old = &sq->wr[i];
		int fits = read ? old->op == SRDMA_DESC_WRITE ||
					   old->op == SRDMA_DESC_WRITE_IMM
				: old->op == SRDMA_DESC_READ;

		if (fits && old->legal && old->remote && !old->reused &&
		    storm_one_in(w, 3))
			return old;
	}
	return NULL;
}

/* Where a peer's memory is named: with a capability, where it must be. */
static void name(struct storm *w, struct storm_end *e, struct storm_leg *to,
		 struct storm_wr *wr, struct srdma_desc *d)
{
	const struct storm_area *a = storm_memory_area(to, wr->remote);

	d->remote_addr = (uintptr_t)wr->remote;
	d->rkey = a->key;
	if (is_guarded(w, (uint32_t)(a - to->area)))
		d->capability = storm_grant_choose(e->leg, to, wr);
}

static int choose_remote(struct storm *w, struct storm_qp *qp,
			 struct storm_end *e, struct storm_wr *wr,
			 struct srdma_desc *d)
{
	struct storm_leg *to = storm_host_peer(qp, e->leg->side)->leg;
	uint32_t area = storm_random(w, 2);
	struct storm_wr *old =
		wr->len && storm_one_in(w, 4) ? reuse(w, &e->sq, wr) : NULL;

	if (wr->op == SRDMA_DESC_SEND || wr->op == SRDMA_DESC_SEND_IMM)
		return 1;
	if (is_guarded(w, area) && !(qp->mode & SRDMA_MODE_MEM))
		area = 0;
	if (old) {
		wr->len = old->len;
		wr->remote = old->remote;
		old->reused = wr->reused = 1;
		wr->flags |= wr->op == SRDMA_DESC_READ ? 0 : SRDMA_DESC_FENCE;
	} else {
		wr->remote = storm_memory_take(w, to, area, wr->len);
	}
	if (wr->remote)
		name(w, e, to, wr, d);
	return wr->remote != NULL;
}

/* Name a place in an area, from its end on by so many bytes. */
static void name_end(struct srdma_desc *d, const struct storm_leg *leg,
		     uint32_t area, uint64_t beyond)
{
	const struct storm_area *a = &leg->area[area];

	d->remote_addr = (uintptr_t)(leg->mem + a->at + a->len) + beyond;
	d->rkey = a->key;
}

/* All capabilities are from before all revocations. */
static int is_revoked(const struct storm_leg *leg, const struct storm_wr *wr)
{
	uint32_t at = storm_memory_index(leg, wr->remote);

	for (uint32_t i = 0; i < leg->revocations; i++)
		if (leg->revoked[i].lo < at + wr->len &&
		    at < leg->revoked[i].hi)
			return 1;
	return 0;
}

/* Ask for what must be refused: 1; mostly 0: left as it is. */
static int misname(struct storm *w, const struct storm_leg *to,
		   struct srdma_desc *d, uint64_t len)
{
	const struct storm_leg *legs = w->side[to->side].leg;
	uint32_t wrong = storm_random(w, 1000);

	if (wrong < 6 && storm_one_in(w, 2))
		d->capability = 0; /* the target shall refuse */
	switch (wrong) {
	case 0: /* a key of nobody */
		d->rkey ^= 1u << storm_random(w, 32);
		return 1;
	case 1: /* no right */
		name_end(d, to, 2 + storm_random(w, 2), -len);
		return 1;
	case 2: /* one byte before it */
		name_end(d, to, 0, -(uint64_t)to->area[0].len - 1);
		return 1;
	case 3: /* one byte too far */
		name_end(d, to, 0, 1 - len);
		return 1;
	case 4: /* around the end of all addresses */
		d->remote_addr = 0 - len / 2;
		return 1;
	case 5: /* of the other host of that worker */
		if (legs[to == legs].mem)
			name_end(d, &legs[to == legs], 0, -len);
		else
			d->rkey++;
		return 1;
	case 6: /* a capability of nobody, or none where one must be */
		d->capability = d->capability && storm_one_in(w, 2)
					? 0
					: d->capability + 1024;
		return 1;
	default:
		return 0;
	}
}

/* Some requests must be refused, or are because of what is dying. */
static void make_illegal(struct storm *w, struct storm_leg *to,
			 struct storm_wr *wr, struct srdma_desc *d)
{
	if (!wr->remote || !wr->len)
		return;
	if (!w->calm && misname(w, to, d, wr->len))
		wr->legal = 0;
	if (storm_memory_area(to, wr->remote)->state != STORM_LIVE ||
	    is_revoked(to, wr))
		wr->legal = 0;
}

static void expect_request(struct storm_qp *qp, struct storm_end *e,
			   struct storm_leg *to, struct storm_wr *wr)
{
	int read = wr->op == SRDMA_DESC_READ;
	struct storm_leg *leg = read ? e->leg : to;
	uint8_t *at = read ? wr->local : wr->remote;

	if (read && !wr->reused)
		memcpy(wr->data, wr->remote, wr->len);
	if (at && storm_memory_area(leg, at)->state != STORM_FROZEN)
		storm_memory_expect(leg, at, wr->len,
				    qp->evil ? STORM_ANY : STORM_EITHER,
				    wr->data);
}

static void plan_message(struct storm_qp *qp, struct storm_end *e,
			 struct storm_wr *wr)
{
	const struct storm_queue *rq =
		&storm_host_peer(qp, e == &qp->end[1])->rq;

	if (!storm_host_takes_recv(wr->op))
		return;
	wr->message = e->messages;
	if (wr->op != SRDMA_DESC_WRITE_IMM && wr->message < rq->tail &&
	    rq->wr[wr->message].len < wr->len)
		wr->legal = 0;
}

int storm_host_send(struct storm *w, struct storm_qp *qp, int side, uint8_t op,
		    uint32_t len)
{
	struct storm_end *e = &qp->end[side];
	struct storm_leg *to = storm_host_peer(qp, side)->leg;
	struct storm_wr *wr = &e->sq.wr[e->sq.tail];
	struct srdma_desc d = { .opcode = op,
				.qpn = e->info.qpn,
				.id = UINT64_C(1) << 32 | e->sq.tail };

	if (!storm_host_sees(e) || !has_room(&e->sq))
		return 0;
	*wr = (struct storm_wr){ .op = op,
				 .len = len,
				 .legal = 1,
				 .imm = storm_random(w, UINT32_MAX),
				 .due = w->now +
					(uint64_t)w->timeout_ms * 1000000 };
	if (e->sq.tail - e->sq.head == e->sq.depth - 1 || !storm_one_in(w, 4))
		wr->flags |= SRDMA_DESC_SIGNALED;
	if (storm_one_in(w, 8))
		wr->flags |= SRDMA_DESC_FENCE;
	if (!choose_remote(w, qp, e, wr, &d) || !choose_local(w, e, wr, &d)) {
		free(wr->data);
		wr->data = NULL;
		return 0;
	}
	plan_message(qp, e, wr);
	make_illegal(w, to, wr, &d);
	wr->capability = d.capability;
	if (wr->reused && op == SRDMA_DESC_READ)
		memcpy(wr->data, to->after + storm_memory_index(to, wr->remote),
		       wr->len);
	d.flags |= wr->flags;
	d.length = wr->len;
	d.imm = wr->imm;
	if (storm_host_put(e->leg, &d, wr->data)) {
		free(wr->data);
		wr->data = NULL;
		return 0;
	}
	expect_request(qp, e, to, wr);
	qp->doomed |= !wr->legal;
	e->messages += (uint32_t)storm_host_takes_recv(op);
	e->sq.tail++;
	return 1;
}

static uint32_t some_len(struct storm *w)
{
	static const uint32_t sizes[] = {
		0, 1, 63, 64, 448, 449, 65536, 65537
	};

	switch (storm_random(w, 10)) {
	case 0:
		return sizes[storm_random(w, 8)] % w->area_len;
	case 1:
		return w->mtu * (1 + storm_random(w, 3)) - 1 +
		       storm_random(w, 3);
	case 2:
		return storm_random(w, storm_one_in(w, 4) ? w->area_len : 8000);
	case 3:
		return storm_random(w, 3 * w->mtu);
	default:
		return storm_random(w, 600);
	}
}

void storm_host_post(struct storm *w)
{
	struct storm_qp *qp = &w->qp[storm_random(w, (uint32_t)w->qps)];
	int side = (int)storm_random(w, 2);

	const struct storm_queue *rq = &qp->end[!side].rq;
	uint32_t len = some_len(w), next = qp->end[side].messages;
	uint8_t op = (uint8_t)(1 + storm_random(w, 5));

	if (qp->end[side].sq.failed && !storm_one_in(w, 10))
		return; /* it is flushed */
	if (storm_one_in(w, 3)) {
		storm_host_recv(w, qp, side, len);
		return;
	}
	if (qp->end[side].sq.tail >= STORM_SENDS - 8)
		return;
	/* Rarely longer than its receive. */
	if (op >= SRDMA_DESC_SEND && next < rq->tail &&
	    len > rq->wr[next].len && !storm_one_in(w, 150))
		len = rq->wr[next].len;
	storm_host_send(w, qp, side, op, len);
}

static int ends_silently(const struct storm_queue *sq)
{
	return sq->head < sq->tail &&
	       !(sq->wr[sq->tail - 1].flags & SRDMA_DESC_SIGNALED);
}

void storm_host_finish(struct storm *w)
{
	for (int i = 0; i < 2 * (STORM_QPS + 1); i++) {
		struct storm_qp *qp = &w->qp[i / 2];
		const struct storm_end *e = &qp->end[i % 2];

		while (qp->live &&
		       e->messages > storm_host_peer(qp, i % 2)->rq.tail)
			if (!storm_host_recv(w, qp, !(i % 2), 0))
				break;
		while (qp->live && ends_silently(&e->sq))
			if (!storm_host_send(w, qp, i % 2, SRDMA_DESC_WRITE, 0))
				break;
	}
}

int storm_host_waits(const struct storm_end *e)
{
	return storm_host_sees(e) && e->sq.head < e->sq.tail;
}

void storm_host_forget(struct storm_end *e)
{
	e->gone = 1;
	for (uint32_t i = e->sq.head; i < e->sq.tail; i++)
		if (e->sq.wr[i].local)
			storm_memory_spoil(e->leg, e->sq.wr[i].local,
					   e->sq.wr[i].len);
	for (uint32_t i = e->rq.head; i < e->rq.tail; i++)
		storm_memory_spoil(e->leg, e->rq.wr[i].local, e->rq.wr[i].len);
	e->sq.head = e->sq.tail;
	e->rq.head = e->rq.tail;
}

/* What is under way from this end brings anything. */
static void doubt(struct storm_end *e, struct storm_leg *to)
{
	const struct storm_queue *sq = &e->sq;

	for (uint32_t i = sq->head; i < sq->tail; i++) {
		const struct storm_wr *wr = &sq->wr[i];
		int read = wr->op == SRDMA_DESC_READ;
		struct storm_leg *leg = read ? e->leg : to;
		const uint8_t *at = read ? wr->local : wr->remote;

		if (at && storm_memory_area(leg, at)->state != STORM_FROZEN)
			storm_memory_expect(leg, at, wr->len, STORM_ANY, NULL);
	}
}

void storm_host_taint(struct storm_leg *leg)
{
	struct storm *w = leg->w;

	leg->tainted = 1;
	for (uint32_t i = 0; i < 2; i++)
		if (leg->area[i].state != STORM_FROZEN && !is_guarded(w, i))
			memset(leg->kind + leg->area[i].at, STORM_ANY,
			       leg->area[i].len);
	for (int i = 0; i < w->qps; i++) {
		struct storm_qp *qp = &w->qp[i];

		if (qp->end[0].leg != leg && qp->end[1].leg != leg)
			continue;
		qp->evil = 1;
		doubt(&qp->end[0], qp->end[1].leg);
		doubt(&qp->end[1], qp->end[0].leg);
	}
}
