#include "simulation/sim_host.h"

#include <stdlib.h>
#include <string.h>

#include "simulation/sim_memory.h"

struct sim_end *sim_host_peer(struct sim_qp *qp, int side)
{
	return &qp->end[!side];
}

int sim_host_sees(const struct sim_end *e)
{
	return e->leg->open && !e->leg->closing && !e->leg->broken &&
	       !e->leaving && !e->gone;
}

int sim_host_put(struct sim_leg *leg, struct srdma_desc *d,
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

uint8_t *sim_host_target(const struct sim_wr *wr)
{
	return wr->counter ? wr->counter : wr->remote;
}

int sim_host_takes_recv(uint8_t op)
{
	return op == SRDMA_DESC_WRITE_IMM || op == SRDMA_DESC_SEND ||
	       op == SRDMA_DESC_SEND_IMM;
}

struct sim_wr *sim_host_wr(struct sim_queue *q, uint32_t n)
{
	return &q->wr[n % SIM_RING];
}

struct sim_message *sim_host_message(struct sim_end *e, uint32_t n)
{
	return &e->message[n % SIM_MESSAGES];
}

static int has_room(const struct sim_queue *q)
{
	return q->tail - q->head < q->depth;
}

static int is_guarded(const struct sim *w, uint32_t area)
{
	return w->guarded && area == SIM_GUARDED;
}

/* Returns one of the first n areas for a local buffer. */
static uint32_t own_area(struct sim *w, const struct sim_leg *leg, uint32_t n)
{
	uint32_t area = sim_random(w, n);

	if (is_guarded(w, area))
		area = 0;
	return leg->area[area].state == SIM_LIVE ? area : 2;
}

/* Sets the expected bytes of a RECV, once both message and RECV are posted. */
static void match(struct sim_qp *qp, struct sim_end *e, uint32_t n)
{
	struct sim_end *peer = sim_host_peer(qp, e->leg->side);
	const struct sim_message *m = sim_host_message(peer, n);
	const struct sim_wr *wr = sim_host_wr(&e->rq, n);

	if (n >= peer->messages || n - e->rq.head >= e->rq.tail - e->rq.head)
		return;
	if (m->op != SRDMA_DESC_WRITE_IMM)
		sim_memory_expect(e->leg, wr->local,
				  m->len < wr->len ? m->len : wr->len, m->word,
				  qp->evil);
	if (m->op != SRDMA_DESC_WRITE_IMM && m->moved)
		sim_memory_follow(e->leg, wr->local, wr->len);
}

int sim_host_recv(struct sim *w, struct sim_qp *qp, int side, uint32_t len)
{
	struct sim_end *e = &qp->end[side];
	struct sim_end *peer = sim_host_peer(qp, side);
	struct sim_queue *rq = &e->rq;
	struct sim_wr *wr = sim_host_wr(rq, rq->tail);
	const struct sim_message *m = sim_host_message(peer, rq->tail);
	struct srdma_desc d = { .opcode = SRDMA_DESC_RECV,
				.qpn = e->info.qpn,
				.id = rq->tail };
	uint32_t area, want;

	if (!sim_host_sees(e) || !has_room(rq))
		return 0;
	want = rq->tail < peer->messages && m->op != SRDMA_DESC_WRITE_IMM
		       ? m->len
		       : 0;
	if (want > len)
		len = want;
	area = own_area(w, e->leg, 3);
	*wr = (struct sim_wr){ 0 };
	wr->local = sim_memory_take(w, e->leg, area, len);
	for (uint32_t i = 0; i < 3 && !wr->local; i++)
		if (!is_guarded(w, i))
			wr->local = sim_memory_take(w, e->leg, area = i, len);
	if (!wr->local) { /* shorter than the message, or of unknown message */
		len = 0;
		wr->local = e->leg->mem + e->leg->area[area].at;
		qp->doomed |= want;
	}
	qp->doomed |= e->leg->area[area].state != SIM_LIVE;
	wr->len = d.length = len;
	d.local_addr = (uintptr_t)wr->local;
	d.local_key = e->leg->area[area].key;
	if (sim_host_put(e->leg, &d, NULL)) {
		sim_memory_give(e->leg, wr->local, wr->len);
		return 0;
	}
	rq->tail++;
	if (qp->evil)
		sim_memory_expect(e->leg, wr->local, len, 0, 1);
	match(qp, e, rq->tail - 1);
	return 1;
}

/* Chooses the local buffer. Returns 0 if there is no room for it. */
static int choose_local(struct sim *w, struct sim_qp *qp, struct sim_end *e,
			struct sim_wr *wr, struct srdma_desc *d)
{
	int read = srdma_desc_is_answered(wr->op);
	uint32_t area = own_area(w, e->leg, read ? 3 : 4);

	if (!read && wr->len <= SRDMA_MAX_INLINE && sim_one_in(w, 3)) {
		d->flags |= SRDMA_DESC_INLINE;
		return 1;
	}
	wr->local = sim_memory_take(w, e->leg, area, wr->len);
	if (!wr->local)
		return 0;
	qp->doomed |= e->leg->area[area].state != SIM_LIVE;
	d->local_addr = (uintptr_t)wr->local;
	d->local_key = e->leg->area[area].key;
	if (read || !wr->len)
		return 1;
	sim_memory_lend(e->leg, wr->local, wr->len);
	sim_memory_put(e->leg, wr->local, wr->len, wr->word);
	return 1;
}

/*
 * Finds an outstanding request whose remote range may be used again under the
 * ordering rules of the protocol: READ after WRITE, fenced WRITE after READ.
 */
static struct sim_wr *reuse(struct sim *w, struct sim_queue *sq,
			    const struct sim_wr *wr)
{
	int read = wr->op == SRDMA_DESC_READ;

	if (srdma_desc_is_atomic(wr->op))
		return NULL;
	for (uint32_t i = sq->tail; i-- > sq->head;) {
		struct sim_wr *old = sim_host_wr(sq, i);
		int fits = read ? old->op == SRDMA_DESC_WRITE ||
					   old->op == SRDMA_DESC_WRITE_IMM
				: old->op == SRDMA_DESC_READ;

		if (fits && old->legal && old->remote && old->len &&
		    !old->moved && !old->shared && !old->second &&
		    sim_one_in(w, 3))
			return old;
	}
	return NULL;
}

/* Fills in the remote address, its rkey and, if needed, a capability. */
static void name(struct sim *w, struct sim_end *e, struct sim_leg *to,
		 struct sim_wr *wr, struct srdma_desc *d)
{
	uint8_t *at = sim_host_target(wr);
	const struct sim_area *a = sim_memory_area(to, at);

	d->remote_addr = (uintptr_t)at;
	d->rkey = a->key;
	if (is_guarded(w, (uint32_t)(a - to->area)))
		d->capability = sim_grant_choose(e->leg, to, wr);
}

/*
 * Returns 1 if the request touches a revoked range. Every capability for it is
 * void, because none is made after a revocation.
 */
static int is_revoked(const struct sim_leg *leg, const struct sim_wr *wr)
{
	uint32_t at = sim_memory_index(leg, sim_host_target(wr));

	for (uint32_t i = 0; i < leg->revocations; i++)
		if (leg->revoked[i].lo < at + wr->len &&
		    at < leg->revoked[i].hi)
			return 1;
	return 0;
}

/*
 * Takes a range of the peer's arena, which is rarely in an area that is gone or
 * revoked.
 */
static uint8_t *take_remote(struct sim *w, const struct sim_qp *qp,
			    const struct sim_leg *from, struct sim_wr *wr)
{
	struct sim_leg *to = qp->end[!from->side].leg;
	uint32_t area = sim_random(w, 2);

	if (is_guarded(w, area) &&
	    (!(qp->mode & SRDMA_MODE_MEM) || !sim_grant_has(from, to)))
		area = 0;
	if (wr->len && to->area[area].state != SIM_LIVE && !sim_one_in(w, 50))
		return NULL;
	if (srdma_desc_is_atomic(wr->op))
		return wr->counter = sim_atomic_choose(w, to, area, wr);
	wr->remote = sim_memory_take(w, to, area, wr->len);
	if (!wr->remote || !is_revoked(to, wr) || sim_one_in(w, 50))
		return wr->remote;
	sim_memory_give(to, wr->remote, wr->len);
	wr->remote = sim_memory_take(w, to, 0, wr->len);
	return wr->remote;
}

static int choose_remote(struct sim *w, struct sim_qp *qp, struct sim_end *e,
			 struct sim_wr *wr, struct srdma_desc *d)
{
	struct sim_leg *to = sim_host_peer(qp, e->leg->side)->leg;
	struct sim_wr *old =
		wr->len && sim_one_in(w, 4) ? reuse(w, &e->sq, wr) : NULL;

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
		sim_memory_put(to, wr->remote, wr->len, wr->word);
	}
	name(w, e, to, wr, d);
	return 1;
}

/* Names the address `beyond` bytes (modulo 2^64) after the end of an area. */
static void name_end(struct srdma_desc *d, const struct sim_leg *leg,
		     uint32_t area, uint64_t beyond)
{
	const struct sim_area *a = &leg->area[area];

	d->remote_addr = (uintptr_t)(leg->mem + a->at + a->len) + beyond;
	d->rkey = a->key;
}

/*
 * With a small probability changes the request into one that must be refused.
 * Returns 1 if it did.
 */
static int misname(struct sim *w, const struct sim_leg *to,
		   struct srdma_desc *d, uint64_t len)
{
	const struct sim_leg *legs = w->side[to->side].leg;
	uint32_t wrong = sim_random(w, 1000);

	if (wrong < 6 && sim_one_in(w, 2))
		d->capability = 0; /* the responder must refuse it */
	switch (wrong) {
	case 0: /* unknown key */
		d->rkey ^= 1u << sim_random(w, 32);
		return 1;
	case 1: /* an area without rights */
		name_end(d, to, 2 + sim_random(w, 2), -len);
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
		d->capability = d->capability && sim_one_in(w, 2)
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
static void make_illegal(struct sim *w, struct sim_leg *to, struct sim_wr *wr,
			 struct srdma_desc *d)
{
	if (!sim_host_target(wr) || !wr->len)
		return;
	if (!w->calm && misname(w, to, d, wr->len))
		wr->misnamed = 1;
	if (wr->misnamed ||
	    sim_memory_area(to, sim_host_target(wr))->state != SIM_LIVE ||
	    is_revoked(to, wr))
		wr->legal = 0;
}

static void plan_message(struct sim_qp *qp, struct sim_end *e,
			 struct sim_wr *wr)
{
	struct sim_queue *rq = &sim_host_peer(qp, e->leg->side)->rq;

	wr->message = e->messages;
	if (wr->op != SRDMA_DESC_WRITE_IMM && wr->message < rq->tail &&
	    sim_host_wr(rq, wr->message)->len < wr->len)
		wr->legal = 0;
}

static void expect_message(struct sim_qp *qp, struct sim_end *e,
			   const struct sim_wr *wr)
{
	struct sim_end *to = sim_host_peer(qp, e->leg->side);
	uint32_t n = e->messages++;

	*sim_host_message(e, n) = (struct sim_message){
		.word = wr->word,
		.len = wr->len,
		.imm = wr->imm,
		.op = wr->op,
		.legal = wr->legal,
	};
	match(qp, to, n);
}

static void expect_request(struct sim_qp *qp, struct sim_end *e,
			   struct sim_wr *wr)
{
	struct sim_leg *to = sim_host_peer(qp, e->leg->side)->leg;

	/*
	 * A refused READ may have placed its first chunks. The result of an
	 * atomic becomes known when it is executed.
	 */
	if (wr->op == SRDMA_DESC_READ || (wr->counter && qp->evil))
		sim_memory_expect(e->leg, wr->local, wr->len, wr->word,
				  qp->evil || wr->misnamed);
	else if (wr->remote && !wr->misnamed)
		sim_memory_expect(to, wr->remote, wr->len, wr->word, qp->evil);
	if (sim_host_takes_recv(wr->op))
		expect_message(qp, e, wr);
}

/* Undoes a request that was not posted. */
static void take_back(struct sim_qp *qp, struct sim_end *e, struct sim_wr *wr)
{
	struct sim_queue *sq = &e->sq;

	for (uint32_t i = sq->head; wr->second && i < sq->tail; i++)
		if (sim_host_wr(sq, i)->remote == wr->remote)
			sim_host_wr(sq, i)->shared = 0;
	wr->shared = wr->second;
	sim_host_done(qp, e, wr);
}

int sim_host_send(struct sim *w, struct sim_qp *qp, int side, uint8_t op,
		  uint32_t len)
{
	struct sim_end *e = &qp->end[side];
	struct sim_end *to = sim_host_peer(qp, side);
	struct sim_wr *wr = sim_host_wr(&e->sq, e->sq.tail);
	struct srdma_desc d = { .opcode = op,
				.qpn = e->info.qpn,
				.id = UINT64_C(1) << 32 | e->sq.tail };
	uint8_t payload[SRDMA_MAX_INLINE];

	if (!sim_host_sees(e) || !has_room(&e->sq) ||
	    e->messages >= to->rq.head + SIM_MESSAGES)
		return 0;
	if (srdma_desc_is_atomic(op))
		len = SRDMA_ATOMIC_LEN;
	*wr = (struct sim_wr){ .op = op,
			       .len = len,
			       .legal = 1,
			       .word = sim_word(w),
			       .imm = sim_random(w, UINT32_MAX),
			       .due = w->now +
				      (uint64_t)w->timeout_ms * 1000000 };
	if (e->sq.tail - e->sq.head == e->sq.depth - 1 || !sim_one_in(w, 4))
		wr->flags |= SRDMA_DESC_SIGNALED;
	if (sim_one_in(w, 8))
		wr->flags |= SRDMA_DESC_FENCE;
	if (!choose_remote(w, qp, e, wr, &d) ||
	    !choose_local(w, qp, e, wr, &d)) {
		take_back(qp, e, wr);
		return 0;
	}
	if (sim_host_takes_recv(op))
		plan_message(qp, e, wr);
	make_illegal(w, to->leg, wr, &d);
	wr->capability = d.capability;
	d.flags |= wr->flags;
	d.length = wr->len;
	d.imm = wr->imm;
	d.swap_add = wr->word;
	d.compare = wr->compare;
	if (d.flags & SRDMA_DESC_INLINE)
		sim_memory_fill(payload, wr->len, wr->word);
	if (sim_host_put(e->leg, &d, payload)) {
		take_back(qp, e, wr);
		return 0;
	}
	expect_request(qp, e, wr);
	qp->doomed |= !wr->legal;
	e->sq.tail++;
	return 1;
}

void sim_host_done(struct sim_qp *qp, struct sim_end *e, struct sim_wr *wr)
{
	struct sim_leg *to = sim_host_peer(qp, e->leg->side)->leg;

	if (wr->local)
		sim_memory_give(e->leg, wr->local, wr->len);
	if (wr->remote && !wr->shared)
		sim_memory_give(to, wr->remote, wr->len);
}

void sim_host_lost(struct sim_qp *qp, struct sim_end *e, struct sim_wr *wr)
{
	/*
	 * `lost` keeps the range until the QP ends. When it is full, the
	 * requests are later ones that are flushed and were never sent.
	 */
	if (wr->remote && e->lost_count < SIM_RING) {
		e->lost[e->lost_count++] =
			(struct sim_range){ wr->remote, wr->len };
		wr->remote = NULL;
	}
	sim_host_done(qp, e, wr);
}

static uint32_t some_len(struct sim *w)
{
	static const uint32_t sizes[] = {
		0, 1, 63, 64, 448, 449, 65536, 65537
	};

	switch (sim_random(w, 10)) {
	case 0:
		return sizes[sim_random(w, 8)] % w->area_len;
	case 1:
		return w->mtu * (1 + sim_random(w, 3)) - 1 + sim_random(w, 3);
	case 2:
		return sim_random(w, sim_one_in(w, 4) ? w->area_len : 8000);
	case 3:
		return sim_random(w, 3 * w->mtu);
	default:
		return sim_random(w, 600);
	}
}

void sim_host_post(struct sim *w)
{
	struct sim_qp *qp = &w->qp[sim_random(w, (uint32_t)w->qps)];
	int side = (int)sim_random(w, 2);
	struct sim_queue *rq = &qp->end[!side].rq;
	uint32_t len = some_len(w), next = qp->end[side].messages;
	uint8_t op = (uint8_t)(1 + sim_random(w, 7));

	if (!qp->live || (qp->end[side].sq.failed && !sim_one_in(w, 10)))
		return; /* else it would be flushed */
	if (sim_one_in(w, 3)) {
		sim_host_recv(w, qp, side, len);
		return;
	}
	/* rarely longer than its RECV */
	if (sim_host_takes_recv(op) && next < rq->tail &&
	    len > sim_host_wr(rq, next)->len && !sim_one_in(w, 500))
		len = sim_host_wr(rq, next)->len;
	sim_host_send(w, qp, side, op, len);
}

static int ends_silently(struct sim_queue *sq)
{
	return sq->head < sq->tail &&
	       !(sim_host_wr(sq, sq->tail - 1)->flags & SRDMA_DESC_SIGNALED);
}

void sim_host_finish(struct sim *w)
{
	for (int i = 0; i < 2 * (SIM_QPS + 1); i++) {
		struct sim_qp *qp = &w->qp[i / 2];
		struct sim_end *e = &qp->end[i % 2];

		while (qp->live &&
		       e->messages > sim_host_peer(qp, i % 2)->rq.tail)
			if (!sim_host_recv(w, qp, !(i % 2), 0))
				break;
		while (qp->live && ends_silently(&e->sq))
			if (!sim_host_send(w, qp, i % 2, SRDMA_DESC_WRITE, 0))
				break;
	}
}

int sim_host_waits(const struct sim_end *e)
{
	return sim_host_sees(e) && e->sq.head < e->sq.tail;
}

void sim_host_forget(struct sim_end *e)
{
	e->gone = 1;
	for (uint32_t i = e->sq.head; i < e->sq.tail; i++) {
		struct sim_wr *wr = sim_host_wr(&e->sq, i);

		if (wr->local)
			sim_memory_settle(e->leg, wr->local, wr->len);
		wr->local = NULL;
	}
	for (; e->rq.head < e->rq.tail; e->rq.head++) {
		struct sim_wr *wr = sim_host_wr(&e->rq, e->rq.head);

		sim_memory_settle(e->leg, wr->local, wr->len);
	}
}

void sim_host_move(struct sim *w, struct sim_qp *qp, struct sim_end *e)
{
	struct sim_end *to = sim_host_peer(qp, e->leg->side);
	uint32_t n = e->sq.head + sim_random(w, e->sq.tail - e->sq.head);
	struct sim_wr *wr = sim_host_wr(&e->sq, n);
	struct sim_message *m;

	if (!sim_host_waits(e) || !wr->local || !wr->len || wr->shared ||
	    wr->second || srdma_desc_is_answered(wr->op))
		return;
	wr->moved = 1;
	sim_memory_move(e->leg, wr->local, wr->len);
	if (wr->remote) {
		sim_memory_follow(to->leg, wr->remote, wr->len);
		return;
	}
	m = sim_host_message(e, wr->message);
	m->moved = 1;
	if (wr->message - to->rq.head < to->rq.tail - to->rq.head)
		sim_memory_follow(to->leg,
				  sim_host_wr(&to->rq, wr->message)->local,
				  wr->len);
}

void sim_host_bury(struct sim_qp *qp)
{
	for (int i = 0; i < 2; i++) {
		struct sim_end *e = &qp->end[i];
		struct sim_leg *to = sim_host_peer(qp, i)->leg;

		for (uint32_t n = e->sq.head; n < e->sq.tail; n++) {
			struct sim_wr *wr = sim_host_wr(&e->sq, n);

			if (wr->remote)
				sim_memory_settle(to, wr->remote, wr->len);
		}
		for (uint32_t n = 0; n < e->lost_count; n++)
			sim_memory_settle(to, e->lost[n].at, e->lost[n].len);
	}
	qp->live = 0;
}

/*
 * Outstanding requests of this end, and messages to it, may write any bytes
 * from now on.
 */
static void doubt(struct sim_qp *qp, struct sim_end *e)
{
	struct sim_end *to = sim_host_peer(qp, e->leg->side);

	for (uint32_t i = e->sq.head; i < e->sq.tail; i++) {
		const struct sim_wr *wr = sim_host_wr(&e->sq, i);

		if (srdma_desc_is_answered(wr->op) && wr->local)
			sim_memory_expect(e->leg, wr->local, wr->len, 0, 1);
		else if (wr->remote)
			sim_memory_expect(to->leg, wr->remote, wr->len, 0, 1);
	}
	for (uint32_t i = e->rq.head; i < e->rq.tail; i++) {
		const struct sim_wr *wr = sim_host_wr(&e->rq, i);

		sim_memory_expect(e->leg, wr->local, wr->len, 0, 1);
	}
}

void sim_host_taint(struct sim_leg *leg)
{
	struct sim *w = leg->w;

	leg->tainted = 1;
	for (uint32_t i = 0; i < 2; i++)
		if (!is_guarded(w, i))
			sim_memory_doubt(leg, i);
	for (int i = 0; i < w->qps; i++) {
		struct sim_qp *qp = &w->qp[i];

		if (!qp->live ||
		    (qp->end[0].leg != leg && qp->end[1].leg != leg))
			continue;
		qp->evil = qp->doomed = 1;
		doubt(qp, &qp->end[0]);
		doubt(qp, &qp->end[1]);
	}
}
