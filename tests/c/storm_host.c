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
	if (srdma_desc_is_atomic(d->opcode))
		len += SRDMA_OPERANDS_LEN;
	if (srdma_port_mem_post(leg->conn, slot, len))
		return -1;
	leg->told = leg->consumed;
	return 0;
}

uint8_t *storm_host_target(const struct storm_wr *wr)
{
	return wr->counter ? wr->counter : wr->remote;
}

int storm_host_takes_recv(uint8_t op)
{
	return op == SRDMA_DESC_WRITE_IMM || op == SRDMA_DESC_SEND ||
	       op == SRDMA_DESC_SEND_IMM;
}

struct storm_wr *storm_host_wr(struct storm_queue *q, uint32_t n)
{
	return &q->wr[n % STORM_RING];
}

struct storm_message *storm_host_message(struct storm_end *e, uint32_t n)
{
	return &e->message[n % STORM_MESSAGES];
}

static int has_room(const struct storm_queue *q)
{
	return q->tail - q->head < q->depth;
}

static int is_guarded(const struct storm *w, uint32_t area)
{
	return w->guarded && area == STORM_GUARDED;
}

/* Returns one of the first n areas for a local buffer. */
static uint32_t own_area(struct storm *w, const struct storm_leg *leg,
			 uint32_t n)
{
	uint32_t area = storm_random(w, n);

	if (is_guarded(w, area))
		area = 0;
	return leg->area[area].state == STORM_LIVE ? area : 2;
}

/* Sets the expected bytes of a RECV, once both message and RECV are posted. */
static void match(struct storm_qp *qp, struct storm_end *e, uint32_t n)
{
	struct storm_end *peer = storm_host_peer(qp, e->leg->side);
	const struct storm_message *m = storm_host_message(peer, n);
	const struct storm_wr *wr = storm_host_wr(&e->rq, n);

	if (n >= peer->messages || n - e->rq.head >= e->rq.tail - e->rq.head)
		return;
	if (m->op != SRDMA_DESC_WRITE_IMM)
		storm_memory_expect(e->leg, wr->local,
				    m->len < wr->len ? m->len : wr->len,
				    m->word, qp->evil);
	if (m->op != SRDMA_DESC_WRITE_IMM && m->moved)
		storm_memory_follow(e->leg, wr->local, wr->len);
}

int storm_host_recv(struct storm *w, struct storm_qp *qp, int side,
		    uint32_t len)
{
	struct storm_end *e = &qp->end[side];
	struct storm_end *peer = storm_host_peer(qp, side);
	struct storm_queue *rq = &e->rq;
	struct storm_wr *wr = storm_host_wr(rq, rq->tail);
	const struct storm_message *m = storm_host_message(peer, rq->tail);
	struct srdma_desc d = { .opcode = SRDMA_DESC_RECV,
				.qpn = e->info.qpn,
				.id = rq->tail };
	uint32_t area, want;

	if (!storm_host_sees(e) || !has_room(rq))
		return 0;
	want = rq->tail < peer->messages && m->op != SRDMA_DESC_WRITE_IMM
		       ? m->len
		       : 0;
	if (want > len)
		len = want;
	area = own_area(w, e->leg, 3);
	*wr = (struct storm_wr){ 0 };
	wr->local = storm_memory_take(w, e->leg, area, len);
	for (uint32_t i = 0; i < 3 && !wr->local; i++)
		if (!is_guarded(w, i))
			wr->local = storm_memory_take(w, e->leg, area = i, len);
	if (!wr->local) { /* shorter than the message, or of unknown message */
		len = 0;
		wr->local = e->leg->mem + e->leg->area[area].at;
		qp->doomed |= want;
	}
	qp->doomed |= e->leg->area[area].state != STORM_LIVE;
	wr->len = d.length = len;
	d.local_addr = (uintptr_t)wr->local;
	d.local_key = e->leg->area[area].key;
	if (storm_host_put(e->leg, &d, NULL)) {
		storm_memory_give(e->leg, wr->local, wr->len);
		return 0;
	}
	rq->tail++;
	if (qp->evil)
		storm_memory_expect(e->leg, wr->local, len, 0, 1);
	match(qp, e, rq->tail - 1);
	return 1;
}

/* Chooses the local buffer. Returns 0 if there is no room for it. */
static int choose_local(struct storm *w, struct storm_qp *qp,
			struct storm_end *e, struct storm_wr *wr,
			struct srdma_desc *d)
{
	int read = srdma_desc_is_answered(wr->op);
	uint32_t area = own_area(w, e->leg, read ? 3 : 4);

	if (!read && wr->len <= SRDMA_MAX_INLINE && storm_one_in(w, 3)) {
		d->flags |= SRDMA_DESC_INLINE;
		return 1;
	}
	wr->local = storm_memory_take(w, e->leg, area, wr->len);
	if (!wr->local)
		return 0;
	qp->doomed |= e->leg->area[area].state != STORM_LIVE;
	d->local_addr = (uintptr_t)wr->local;
	d->local_key = e->leg->area[area].key;
	if (read || !wr->len)
		return 1;
	storm_memory_lend(e->leg, wr->local, wr->len);
	storm_memory_put(e->leg, wr->local, wr->len, wr->word);
	return 1;
}

/*
 * Finds an outstanding request whose remote range may be used again under the
 * ordering rules of the protocol: READ after WRITE, fenced WRITE after READ.
 */
static struct storm_wr *reuse(struct storm *w, struct storm_queue *sq,
			      const struct storm_wr *wr)
{
	int read = wr->op == SRDMA_DESC_READ;

	if (srdma_desc_is_atomic(wr->op))
		return NULL;
	for (uint32_t i = sq->tail; i-- > sq->head;) {
		struct storm_wr *old = storm_host_wr(sq, i);
		int fits = read ? old->op == SRDMA_DESC_WRITE ||
					   old->op == SRDMA_DESC_WRITE_IMM
				: old->op == SRDMA_DESC_READ;

		if (fits && old->legal && old->remote && old->len &&
		    !old->moved && !old->shared && !old->second &&
		    storm_one_in(w, 3))
			return old;
	}
	return NULL;
}

/* Fills in the remote address, its rkey and, if needed, a capability. */
static void name(struct storm *w, struct storm_end *e, struct storm_leg *to,
		 struct storm_wr *wr, struct srdma_desc *d)
{
	uint8_t *at = storm_host_target(wr);
	const struct storm_area *a = storm_memory_area(to, at);

	d->remote_addr = (uintptr_t)at;
	d->rkey = a->key;
	if (is_guarded(w, (uint32_t)(a - to->area)))
		d->capability = storm_grant_choose(e->leg, to, wr);
}

/*
 * Returns 1 if the request touches a revoked range. No capability is made after
 * a revocation, so that all of them are revoked there.
 */
static int is_revoked(const struct storm_leg *leg, const struct storm_wr *wr)
{
	uint32_t at = storm_memory_index(leg, storm_host_target(wr));

	for (uint32_t i = 0; i < leg->revocations; i++)
		if (leg->revoked[i].lo < at + wr->len &&
		    at < leg->revoked[i].hi)
			return 1;
	return 0;
}

/* Takes a range of the peer's arena, usually an accessible one. */
static uint8_t *take_remote(struct storm *w, const struct storm_qp *qp,
			    const struct storm_leg *from, struct storm_wr *wr)
{
	struct storm_leg *to = qp->end[!from->side].leg;
	uint32_t area = storm_random(w, 2);

	if (is_guarded(w, area) &&
	    (!(qp->mode & SRDMA_MODE_MEM) || !storm_grant_has(from, to)))
		area = 0;
	if (wr->len && to->area[area].state != STORM_LIVE &&
	    !storm_one_in(w, 50))
		return NULL;
	if (srdma_desc_is_atomic(wr->op))
		return wr->counter = storm_atomic_choose(w, to, area, wr);
	wr->remote = storm_memory_take(w, to, area, wr->len);
	if (!wr->remote || !is_revoked(to, wr) || storm_one_in(w, 50))
		return wr->remote;
	storm_memory_give(to, wr->remote, wr->len);
	wr->remote = storm_memory_take(w, to, 0, wr->len);
	return wr->remote;
}

static int choose_remote(struct storm *w, struct storm_qp *qp,
			 struct storm_end *e, struct storm_wr *wr,
			 struct srdma_desc *d)
{
	struct storm_leg *to = storm_host_peer(qp, e->leg->side)->leg;
	struct storm_wr *old =
		wr->len && storm_one_in(w, 4) ? reuse(w, &e->sq, wr) : NULL;

	if (wr->op == SRDMA_DESC_SEND || wr->op == SRDMA_DESC_SEND_IMM)
		return 1;
	if (old) {
		wr->len = old->len;
		wr->remote = old->remote;
		old->shared = wr->second = 1;
		if (wr->op == SRDMA_DESC_READ)
			wr->word = old->word;
		else
			wr->flags |= SRDMA_DESC_FENCE;
	} else if (!take_remote(w, qp, e->leg, wr)) {
		return 0;
	} else if (wr->op == SRDMA_DESC_READ && wr->len) {
		storm_memory_put(to, wr->remote, wr->len, wr->word);
	}
	name(w, e, to, wr, d);
	return 1;
}

/* Names an address in an area: its end plus `beyond` bytes. */
static void name_end(struct srdma_desc *d, const struct storm_leg *leg,
		     uint32_t area, uint64_t beyond)
{
	const struct storm_area *a = &leg->area[area];

	d->remote_addr = (uintptr_t)(leg->mem + a->at + a->len) + beyond;
	d->rkey = a->key;
}

/*
 * With a small probability changes the request into one that must be refused.
 * Returns 1 if it did.
 */
static int misname(struct storm *w, const struct storm_leg *to,
		   struct srdma_desc *d, uint64_t len)
{
	const struct storm_leg *legs = w->side[to->side].leg;
	uint32_t wrong = storm_random(w, 1000);

	if (wrong < 6 && storm_one_in(w, 2))
		d->capability = 0; /* the responder must refuse it */
	switch (wrong) {
	case 0: /* unknown key */
		d->rkey ^= 1u << storm_random(w, 32);
		return 1;
	case 1: /* an area without rights */
		name_end(d, to, 2 + storm_random(w, 2), -len);
		return 1;
	case 2: /* one byte before the area */
		name_end(d, to, 0, -(uint64_t)to->area[0].len - 1);
		return 1;
	case 3: /* one byte beyond the area */
		name_end(d, to, 0, 1 - len);
		return 1;
	case 4: /* address overflow */
		d->remote_addr = 0 - len / 2;
		return 1;
	case 5: /* an area of the worker's other leg */
		if (legs[to == legs].mem)
			name_end(d, &legs[to == legs], 0, -len);
		else
			d->rkey++;
		return 1;
	case 6: /* unknown capability, or none where one is needed */
		d->capability = d->capability && storm_one_in(w, 2)
					? 0
					: d->capability + 1024;
		return 1;
	default:
		return 0;
	}
}

/*
 * Marks requests that must be refused, also because their area is revoked or
 * being deregistered.
 */
static void make_illegal(struct storm *w, struct storm_leg *to,
			 struct storm_wr *wr, struct srdma_desc *d)
{
	if (!storm_host_target(wr) || !wr->len)
		return;
	if (!w->calm && misname(w, to, d, wr->len))
		wr->misnamed = 1;
	if (wr->misnamed ||
	    storm_memory_area(to, storm_host_target(wr))->state != STORM_LIVE ||
	    is_revoked(to, wr))
		wr->legal = 0;
}

static void plan_message(struct storm_qp *qp, struct storm_end *e,
			 struct storm_wr *wr)
{
	struct storm_queue *rq = &storm_host_peer(qp, e->leg->side)->rq;

	wr->message = e->messages;
	if (wr->op != SRDMA_DESC_WRITE_IMM && wr->message < rq->tail &&
	    storm_host_wr(rq, wr->message)->len < wr->len)
		wr->legal = 0;
}

static void expect_message(struct storm_qp *qp, struct storm_end *e,
			   const struct storm_wr *wr)
{
	struct storm_end *to = storm_host_peer(qp, e->leg->side);
	uint32_t n = e->messages++;

	*storm_host_message(e, n) = (struct storm_message){
		.word = wr->word,
		.len = wr->len,
		.imm = wr->imm,
		.op = wr->op,
		.legal = wr->legal,
	};
	match(qp, to, n);
}

static void expect_request(struct storm_qp *qp, struct storm_end *e,
			   struct storm_wr *wr)
{
	struct storm_leg *to = storm_host_peer(qp, e->leg->side)->leg;

	/*
	 * A refused READ may have placed its first chunks. The result of an
	 * atomic becomes known when it is executed.
	 */
	if (wr->op == SRDMA_DESC_READ || (wr->counter && qp->evil))
		storm_memory_expect(e->leg, wr->local, wr->len, wr->word,
				    qp->evil || wr->misnamed);
	else if (wr->remote && !wr->misnamed)
		storm_memory_expect(to, wr->remote, wr->len, wr->word,
				    qp->evil);
	if (storm_host_takes_recv(wr->op))
		expect_message(qp, e, wr);
}

/* Undoes a request that was not posted. */
static void take_back(struct storm_qp *qp, struct storm_end *e,
		      struct storm_wr *wr)
{
	struct storm_queue *sq = &e->sq;

	for (uint32_t i = sq->head; wr->second && i < sq->tail; i++)
		if (storm_host_wr(sq, i)->remote == wr->remote)
			storm_host_wr(sq, i)->shared = 0;
	wr->shared = wr->second;
	storm_host_done(qp, e, wr);
}

int storm_host_send(struct storm *w, struct storm_qp *qp, int side, uint8_t op,
		    uint32_t len)
{
	struct storm_end *e = &qp->end[side];
	struct storm_end *to = storm_host_peer(qp, side);
	struct storm_wr *wr = storm_host_wr(&e->sq, e->sq.tail);
	struct srdma_desc d = { .opcode = op,
				.qpn = e->info.qpn,
				.id = UINT64_C(1) << 32 | e->sq.tail };
	uint8_t payload[SRDMA_MAX_INLINE];

	if (!storm_host_sees(e) || !has_room(&e->sq) ||
	    e->messages >= to->rq.head + STORM_MESSAGES)
		return 0;
	if (srdma_desc_is_atomic(op))
		len = SRDMA_ATOMIC_LEN;
	*wr = (struct storm_wr){ .op = op,
				 .len = len,
				 .legal = 1,
				 .word = storm_word(w),
				 .imm = storm_random(w, UINT32_MAX),
				 .due = w->now +
					(uint64_t)w->timeout_ms * 1000000 };
	if (e->sq.tail - e->sq.head == e->sq.depth - 1 || !storm_one_in(w, 4))
		wr->flags |= SRDMA_DESC_SIGNALED;
	if (storm_one_in(w, 8))
		wr->flags |= SRDMA_DESC_FENCE;
	if (!choose_remote(w, qp, e, wr, &d) ||
	    !choose_local(w, qp, e, wr, &d)) {
		take_back(qp, e, wr);
		return 0;
	}
	if (storm_host_takes_recv(op))
		plan_message(qp, e, wr);
	make_illegal(w, to->leg, wr, &d);
	wr->capability = d.capability;
	d.flags |= wr->flags;
	d.length = wr->len;
	d.imm = wr->imm;
	d.swap_add = wr->word;
	d.compare = wr->compare;
	if (d.flags & SRDMA_DESC_INLINE)
		storm_memory_fill(payload, wr->len, wr->word);
	if (storm_host_put(e->leg, &d, payload)) {
		take_back(qp, e, wr);
		return 0;
	}
	expect_request(qp, e, wr);
	qp->doomed |= !wr->legal;
	e->sq.tail++;
	return 1;
}

void storm_host_done(struct storm_qp *qp, struct storm_end *e,
		     struct storm_wr *wr)
{
	struct storm_leg *to = storm_host_peer(qp, e->leg->side)->leg;

	if (wr->local)
		storm_memory_give(e->leg, wr->local, wr->len);
	if (wr->remote && !wr->shared)
		storm_memory_give(to, wr->remote, wr->len);
}

void storm_host_lost(struct storm_qp *qp, struct storm_end *e,
		     struct storm_wr *wr)
{
	/* Later requests are flushed and never sent. */
	if (wr->remote && e->lost_count < STORM_RING) {
		e->lost[e->lost_count++] =
			(struct storm_range){ wr->remote, wr->len };
		wr->remote = NULL;
	}
	storm_host_done(qp, e, wr);
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
	struct storm_queue *rq = &qp->end[!side].rq;
	uint32_t len = some_len(w), next = qp->end[side].messages;
	uint8_t op = (uint8_t)(1 + storm_random(w, 7));

	if (!qp->live || (qp->end[side].sq.failed && !storm_one_in(w, 10)))
		return; /* else it would be flushed */
	if (storm_one_in(w, 3)) {
		storm_host_recv(w, qp, side, len);
		return;
	}
	/* rarely longer than its RECV */
	if (storm_host_takes_recv(op) && next < rq->tail &&
	    len > storm_host_wr(rq, next)->len && !storm_one_in(w, 500))
		len = storm_host_wr(rq, next)->len;
	storm_host_send(w, qp, side, op, len);
}

static int ends_silently(struct storm_queue *sq)
{
	return sq->head < sq->tail &&
	       !(storm_host_wr(sq, sq->tail - 1)->flags & SRDMA_DESC_SIGNALED);
}

void storm_host_finish(struct storm *w)
{
	for (int i = 0; i < 2 * (STORM_QPS + 1); i++) {
		struct storm_qp *qp = &w->qp[i / 2];
		struct storm_end *e = &qp->end[i % 2];

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

/* The memory of a destroyed end belongs to its leg again. */
void storm_host_forget(struct storm_end *e)
{
	e->gone = 1;
	for (uint32_t i = e->sq.head; i < e->sq.tail; i++) {
		struct storm_wr *wr = storm_host_wr(&e->sq, i);

		if (wr->local)
			storm_memory_settle(e->leg, wr->local, wr->len);
		wr->local = NULL;
	}
	for (; e->rq.head < e->rq.tail; e->rq.head++) {
		struct storm_wr *wr = storm_host_wr(&e->rq, e->rq.head);

		storm_memory_settle(e->leg, wr->local, wr->len);
	}
}

void storm_host_move(struct storm *w, struct storm_qp *qp, struct storm_end *e)
{
	struct storm_end *to = storm_host_peer(qp, e->leg->side);
	uint32_t n = e->sq.head + storm_random(w, e->sq.tail - e->sq.head);
	struct storm_wr *wr = storm_host_wr(&e->sq, n);
	struct storm_message *m;

	if (!storm_host_waits(e) || !wr->local || !wr->len || wr->shared ||
	    wr->second || srdma_desc_is_answered(wr->op))
		return;
	wr->moved = 1;
	storm_memory_move(e->leg, wr->local, wr->len);
	if (wr->remote) {
		storm_memory_follow(to->leg, wr->remote, wr->len);
		return;
	}
	m = storm_host_message(e, wr->message);
	m->moved = 1;
	if (wr->message - to->rq.head < to->rq.tail - to->rq.head)
		storm_memory_follow(to->leg,
				    storm_host_wr(&to->rq, wr->message)->local,
				    wr->len);
}

void storm_host_bury(struct storm_qp *qp)
{
	for (int i = 0; i < 2; i++) {
		struct storm_end *e = &qp->end[i];
		struct storm_leg *to = storm_host_peer(qp, i)->leg;

		for (uint32_t n = e->sq.head; n < e->sq.tail; n++) {
			struct storm_wr *wr = storm_host_wr(&e->sq, n);

			if (wr->remote)
				storm_memory_settle(to, wr->remote, wr->len);
		}
		for (uint32_t n = 0; n < e->lost_count; n++)
			storm_memory_settle(to, e->lost[n].at, e->lost[n].len);
	}
	qp->live = 0;
}

/* Outstanding requests from and to this end may bring any bytes. */
static void doubt(struct storm_qp *qp, struct storm_end *e)
{
	struct storm_end *to = storm_host_peer(qp, e->leg->side);

	for (uint32_t i = e->sq.head; i < e->sq.tail; i++) {
		const struct storm_wr *wr = storm_host_wr(&e->sq, i);

		if (srdma_desc_is_answered(wr->op) && wr->local)
			storm_memory_expect(e->leg, wr->local, wr->len, 0, 1);
		else if (wr->remote)
			storm_memory_expect(to->leg, wr->remote, wr->len, 0, 1);
	}
	for (uint32_t i = e->rq.head; i < e->rq.tail; i++) {
		const struct storm_wr *wr = storm_host_wr(&e->rq, i);

		storm_memory_expect(e->leg, wr->local, wr->len, 0, 1);
	}
}

void storm_host_taint(struct storm_leg *leg)
{
	struct storm *w = leg->w;

	leg->tainted = 1;
	for (uint32_t i = 0; i < 2; i++)
		if (!is_guarded(w, i))
			storm_memory_doubt(leg, i);
	for (int i = 0; i < w->qps; i++) {
		struct storm_qp *qp = &w->qp[i];

		if (!qp->live ||
		    (qp->end[0].leg != leg && qp->end[1].leg != leg))
			continue;
		qp->evil = qp->doomed = 1;
		doubt(qp, &qp->end[0]);
		doubt(qp, &qp->end[1]);
	}
}
