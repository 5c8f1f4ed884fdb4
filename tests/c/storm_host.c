#include "storm.h"

#include <stdlib.h>
#include <string.h>

#include "relay_impl.h"

/* What a byte of the arena may be. */
enum { EXACT, /* shadow */ EITHER, /* shadow or after */ ANY };

static const uint32_t access_of[STORM_AREAS] = { 7, 7, 1, 0 };

/* --- memory -------------------------------------------------------------- */

static void fill(struct storm *w, uint8_t *at, uint32_t len)
{
	uint64_t r = storm_random(w, UINT32_MAX);

	while (len) {
		uint32_t n = len < 8 ? len : 8;

		r = r * UINT64_C(6364136223846793005) + 99;
		memcpy(at, &r, n);
		at += n;
		len -= n;
	}
}

static void register_area(struct storm *w, struct storm_leg *leg, int i)
{
	struct storm_area *a = &leg->area[i];
	struct srdma_mr_params mp = { .region.fd = -1 };

	a->len = w->area_len;
	a->at = STORM_GAP + (uint32_t)i * (w->area_len + STORM_GAP);
	a->next = a->at;
	a->access = access_of[i];
	a->state = STORM_LIVE;
	mp.region.addr = (uintptr_t)(leg->mem + a->at);
	mp.region.length = a->len;
	mp.region.access = a->access;
	STORM_CHECK(w,
		    !srdma_relay_mr_reg(w->side[leg->side].relay, leg->leg, &mp,
					&a->key),
		    "REG_MR");
}

void storm_host_open(struct storm *w, struct storm_leg *leg)
{
	leg->size = STORM_GAP + STORM_AREAS * (w->area_len + STORM_GAP);
	leg->mem = malloc(leg->size);
	leg->shadow = malloc(leg->size);
	leg->after = calloc(1, leg->size);
	leg->kind = calloc(1, leg->size);
	STORM_CHECK(w, leg->mem && leg->shadow && leg->after && leg->kind,
		    "no memory");
	fill(w, leg->mem, leg->size);
	memcpy(leg->shadow, leg->mem, leg->size);
	for (int i = 0; i < STORM_AREAS; i++)
		register_area(w, leg, i);
}

void storm_host_close(struct storm_leg *leg)
{
	free(leg->mem);
	free(leg->shadow);
	free(leg->after);
	free(leg->kind);
}

static uint32_t index_of(const struct storm_leg *leg, const uint8_t *at)
{
	return (uint32_t)(at - leg->mem);
}

/* A range of an area, the caller's alone; NULL: the area is full. */
static uint8_t *take_range(struct storm *w, struct storm_leg *leg, uint32_t i,
			   uint32_t len)
{
	struct storm_area *a = &leg->area[i];
	uint32_t at = a->next + storm_random(w, 65);

	if (!len)
		return leg->mem + a->at;
	if (at + len > a->at + a->len)
		return NULL;
	a->next = at + len;
	return leg->mem + at;
}

static const struct storm_area *area_of(const struct storm_leg *leg,
					const uint8_t *at)
{
	uint32_t i = index_of(leg, at) / (leg->area[0].len + STORM_GAP);

	return &leg->area[i < STORM_AREAS ? i : STORM_AREAS - 1];
}

/* Whether this range holds what only its one user wrote. */
static int is_pure(const struct storm_leg *leg, const uint8_t *at)
{
	return !leg->tainted || index_of(leg, at) >= leg->area[2].at;
}

static void expect(struct storm_leg *leg, const uint8_t *at, uint32_t len,
		   int kind, const uint8_t *after)
{
	uint32_t i = index_of(leg, at);

	memset(leg->kind + i, is_pure(leg, at) ? kind : ANY, len);
	if (after)
		memcpy(leg->after + i, after, len);
}

/* The worker has done with it: whatever it does now shows in the end. */
static void spoil(struct storm_leg *leg, uint8_t *at, uint32_t len)
{
	uint32_t i = index_of(leg, at);

	if (!leg->open || area_of(leg, at)->state == STORM_FROZEN)
		return;
	for (uint32_t n = 0; n < len; n++)
		at[n] = (uint8_t)(at[n] * 5 + 0x5b);
	memcpy(leg->shadow + i, at, len);
	expect(leg, at, len, EXACT, NULL);
}

static void check_byte(const struct storm_leg *leg, uint32_t i)
{
	uint8_t is = leg->mem[i];
	int good = leg->kind[i] == ANY || is == leg->shadow[i] ||
		   (leg->kind[i] == EITHER && is == leg->after[i]);

	STORM_CHECK(leg->w, good,
		    "byte %#x of leg %u of side %d is %02x; it was %02x, "
		    "kind %u",
		    i, leg->id, leg->side, is, leg->shadow[i], leg->kind[i]);
}

static void check_range(const struct storm_leg *leg, uint32_t from, uint32_t to)
{
	for (uint32_t n; from < to; from += n) {
		n = to - from < 256 ? to - from : 256;
		if (!memcmp(leg->mem + from, leg->shadow + from, n))
			continue;
		for (uint32_t i = from; i < from + n; i++)
			check_byte(leg, i);
	}
}

void storm_host_check(struct storm_leg *leg)
{
	check_range(leg, 0, leg->size);
}

void storm_host_freeze(struct storm_leg *leg, int area)
{
	for (int i = 0; i < STORM_AREAS; i++) {
		struct storm_area *a = &leg->area[i];

		if ((area >= 0 && area != i) || a->state == STORM_FROZEN)
			continue;
		check_range(leg, a->at, a->at + a->len);
		memcpy(leg->shadow + a->at, leg->mem + a->at, a->len);
		memset(leg->kind + a->at, EXACT, a->len);
		a->state = STORM_FROZEN;
	}
}

/* READs under way of this end bring anything. */
static void doubt_reads(struct storm_end *e)
{
	const struct storm_queue *sq = &e->sq;

	for (uint32_t i = sq->head; i < sq->tail; i++)
		if (sq->wr[i].op == SRDMA_DESC_READ &&
		    area_of(e->leg, sq->wr[i].local)->state != STORM_FROZEN)
			expect(e->leg, sq->wr[i].local, sq->wr[i].len, ANY,
			       NULL);
}

void storm_host_taint(struct storm_qp *qp, int victim)
{
	struct storm_leg *leg = qp->end[victim].leg;
	struct storm *w = leg->w;

	leg->tainted = 1;
	qp->evil = 1;
	for (int i = 0; i < 2; i++)
		if (leg->area[i].state != STORM_FROZEN)
			memset(leg->kind + leg->area[i].at, ANY,
			       leg->area[i].len);
	for (int i = 0; i < w->qps; i++)
		for (int side = 0; side < 2; side++)
			if (w->qp[i].evil || w->qp[i].end[!side].leg == leg)
				doubt_reads(&w->qp[i].end[side]);
}

/* --- posting -------------------------------------------------------------- */

static struct storm_end *peer_of(struct storm_qp *qp, int side)
{
	return &qp->end[!side];
}

int storm_host_sees(const struct storm_end *e)
{
	return e->leg->open && !e->leg->closing && !e->leg->broken &&
	       !e->leaving && !e->gone;
}

static int put(struct storm_leg *leg, struct srdma_desc *d,
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

static int takes_recv(uint8_t op)
{
	return op == SRDMA_DESC_WRITE_IMM || op == SRDMA_DESC_SEND ||
	       op == SRDMA_DESC_SEND_IMM;
}

/* The request of a queue that takes receive n; NULL: not yet posted. */
static struct storm_wr *message(struct storm_queue *sq, uint32_t n)
{
	for (uint32_t i = sq->tail; i-- > 0;)
		if (takes_recv(sq->wr[i].op) && sq->wr[i].message == n)
			return &sq->wr[i];
	return NULL;
}

static int has_room(const struct storm_queue *q)
{
	return q->tail < STORM_SENDS && q->tail - q->head < q->depth;
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
	uint32_t area = storm_random(w, 3);

	if (!storm_host_sees(e) || !has_room(rq))
		return 0;
	m = message(&peer_of(qp, side)->sq, rq->tail);
	if (m && m->op != SRDMA_DESC_WRITE_IMM && m->len > len)
		len = m->len;
	wr->local = take_range(w, e->leg, area, len);
	for (uint32_t i = 0; i < 3 && !wr->local; i++)
		wr->local = take_range(w, e->leg, area = i, len);
	if (!wr->local) { /* too short for what comes, or not */
		len = 0;
		wr->local = e->leg->mem + e->leg->area[area].at;
		qp->doomed |= m && m->op != SRDMA_DESC_WRITE_IMM && m->len;
	}
	wr->len = d.length = len;
	d.local_addr = (uintptr_t)wr->local;
	d.local_key = e->leg->area[area].key;
	if (put(e->leg, &d, NULL))
		return 0;
	if (area_of(e->leg, wr->local)->state != STORM_FROZEN)
		expect(e->leg, wr->local, len, ANY, NULL);
	rq->tail++;
	return 1;
}

/* Where the bytes come from or go to. 0: no room for them. */
static int choose_local(struct storm *w, struct storm_end *e,
			struct storm_wr *wr, struct srdma_desc *d)
{
	uint32_t area = storm_random(w, wr->op == SRDMA_DESC_READ ? 3 : 4);

	wr->data = malloc(wr->len + 1);
	STORM_CHECK(w, wr->data, "no memory");
	if (wr->op != SRDMA_DESC_READ && wr->len <= SRDMA_MAX_IMMEDIATE &&
	    storm_one_in(w, 3)) {
		d->flags |= SRDMA_DESC_INLINE;
		fill(w, wr->data, wr->len);
		return 1;
	}
	wr->local = take_range(w, e->leg, area, wr->len);
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

static int choose_remote(struct storm *w, struct storm_end *e,
			 struct storm_leg *to, struct storm_wr *wr,
			 struct srdma_desc *d)
{
	uint32_t area = storm_random(w, 2);
	struct storm_wr *old =
		wr->len && storm_one_in(w, 4) ? reuse(w, &e->sq, wr) : NULL;

	if (wr->op == SRDMA_DESC_SEND || wr->op == SRDMA_DESC_SEND_IMM)
		return 1;
	if (old) {
		wr->len = old->len;
		wr->remote = old->remote;
		old->reused = wr->reused = 1;
		wr->flags |= wr->op == SRDMA_DESC_READ ? 0 : SRDMA_DESC_FENCE;
		area = (uint32_t)(area_of(to, wr->remote) - to->area);
	} else {
		wr->remote = take_range(w, to, area, wr->len);
	}
	d->remote_addr = (uintptr_t)wr->remote;
	d->rkey = to->area[area].key;
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

/* Ask for what must be refused, or is refused because of what is dying. */
static void make_illegal(struct storm *w, struct storm_leg *to,
			 struct storm_wr *wr, struct srdma_desc *d)
{
	const struct storm_leg *legs = w->side[to->side].leg;
	int dead = wr->remote && area_of(to, wr->remote)->state != STORM_LIVE;
	uint64_t len = wr->len;

	if (!wr->remote || !len)
		return;
	switch (w->calm ? UINT32_MAX : storm_random(w, 1000)) {
	case 0: /* a key of nobody */
		d->rkey ^= 1u << storm_random(w, 32);
		break;
	case 1: /* no right */
		name_end(d, to, 2 + storm_random(w, 2), -len);
		break;
	case 2: /* one byte before it */
		name_end(d, to, 0, -(uint64_t)to->area[0].len - 1);
		break;
	case 3: /* one byte too far */
		name_end(d, to, 0, 1 - len);
		break;
	case 4: /* around the end of all addresses */
		d->remote_addr = 0 - len / 2;
		break;
	case 5: /* of the other host of that worker */
		if (legs[to == legs].mem)
			name_end(d, &legs[to == legs], 0, -len);
		else
			d->rkey++;
		break;
	default:
		if (!dead)
			return;
	}
	wr->legal = 0;
}

static void expect_request(struct storm_qp *qp, struct storm_end *e,
			   struct storm_leg *to, struct storm_wr *wr)
{
	int frozen =
		wr->remote && area_of(to, wr->remote)->state == STORM_FROZEN;

	if (wr->op == SRDMA_DESC_READ) {
		if (!wr->reused)
			memcpy(wr->data, wr->remote, wr->len);
		if (area_of(e->leg, wr->local)->state != STORM_FROZEN)
			expect(e->leg, wr->local, wr->len,
			       qp->evil || !is_pure(to, wr->remote) ? ANY
								    : EITHER,
			       wr->data);
	} else if (wr->remote && !frozen) {
		expect(to, wr->remote, wr->len, EITHER, wr->data);
	}
}

static void plan_message(struct storm_qp *qp, struct storm_end *e,
			 struct storm_wr *wr)
{
	const struct storm_queue *rq = &peer_of(qp, e == &qp->end[1])->rq;

	if (!takes_recv(wr->op))
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
	struct storm_leg *to = peer_of(qp, side)->leg;
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
	if (!choose_remote(w, e, to, wr, &d) || !choose_local(w, e, wr, &d)) {
		free(wr->data);
		wr->data = NULL;
		return 0;
	}
	plan_message(qp, e, wr);
	make_illegal(w, to, wr, &d);
	if (wr->reused && op == SRDMA_DESC_READ)
		memcpy(wr->data, to->after + index_of(to, wr->remote), wr->len);
	d.flags |= wr->flags;
	d.length = wr->len;
	d.imm = wr->imm;
	if (put(e->leg, &d, wr->data)) {
		free(wr->data);
		wr->data = NULL;
		return 0;
	}
	expect_request(qp, e, to, wr);
	qp->doomed |= !wr->legal;
	e->messages += (uint32_t)takes_recv(op);
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

		while (qp->live && e->messages > peer_of(qp, i % 2)->rq.tail)
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
			spoil(e->leg, e->sq.wr[i].local, e->sq.wr[i].len);
	for (uint32_t i = e->rq.head; i < e->rq.tail; i++)
		spoil(e->leg, e->rq.wr[i].local, e->rq.wr[i].len);
	e->sq.head = e->sq.tail;
	e->rq.head = e->rq.tail;
}

/* --- records --------------------------------------------------------------- */

static void check_arrived(struct storm_leg *leg, const uint8_t *at,
			  const struct storm_wr *wr, const char *what)
{
	uint32_t i = index_of(leg, at);

	if (!wr->len || !is_pure(leg, at))
		return;
	STORM_CHECK(leg->w, !memcmp(at, wr->data, wr->len),
		    "%s: %u bytes are not what was sent", what, wr->len);
	memcpy(leg->shadow + i, at, wr->len);
}

/* A request succeeded: it has happened, wholly. */
static void succeeded(struct storm_qp *qp, struct storm_end *e,
		      const struct storm_wr *wr)
{
	struct storm *w = e->leg->w;
	struct storm_end *peer = peer_of(qp, e->leg->side);
	const struct storm_wr *recv = &peer->rq.wr[wr->message];

	if (qp->evil)
		return;
	STORM_CHECK(w, wr->legal, "what must be refused succeeded");
	if (takes_recv(wr->op)) {
		STORM_CHECK(w, wr->message < peer->rq.tail,
			    "no receive was posted for this message");
		STORM_CHECK(w, wr->message >= peer->rq.head || !recv->failed,
			    "a message arrived, its receive failed");
	}
	if (wr->op == SRDMA_DESC_READ) {
		if (is_pure(peer->leg, wr->remote))
			check_arrived(e->leg, wr->local, wr, "READ");
	} else if (wr->remote) {
		check_arrived(peer->leg, wr->remote, wr, "WRITE");
		expect(peer->leg, wr->remote, wr->len, EXACT, NULL);
	} else if (wr->message >= peer->rq.head && !peer->gone) {
		STORM_CHECK(w, !memcmp(recv->local, wr->data, wr->len),
			    "SEND: %u bytes are not what was sent", wr->len);
	}
}

static void end_request(struct storm_qp *qp, struct storm_end *e, uint32_t i,
			uint32_t reason)
{
	struct storm *w = e->leg->w;
	struct storm_wr *wr = &e->sq.wr[i];

	if (reason) {
		STORM_CHECK(w, w->lossy || qp->doomed,
			    "request %u (op %u, %u bytes) failed: %s", i,
			    wr->op, wr->len, srdma_reason(reason)->name);
		if (!e->sq.failed)
			e->sq.failed = (int)reason;
		wr->failed = 1;
	} else {
		STORM_CHECK(w, !e->sq.failed, "success behind an error");
		succeeded(qp, e, wr);
	}
	if (wr->local)
		spoil(e->leg, wr->local, wr->len);
}

/* Those before it that were to end silently have succeeded. */
static void send_record(struct storm_qp *qp, struct storm_end *e,
			const struct srdma_record *r)
{
	static const uint8_t opcodes[] = { 0,
					   SRDMA_WC_RDMA_WRITE,
					   SRDMA_WC_RDMA_WRITE,
					   SRDMA_WC_RDMA_READ,
					   SRDMA_WC_SEND,
					   SRDMA_WC_SEND };
	struct storm *w = e->leg->w;
	struct storm_queue *sq = &e->sq;
	uint32_t i = (uint32_t)r->id;

	STORM_CHECK(w, i >= sq->head && i < sq->tail,
		    "request %u of [%u, %u) ended", i, sq->head, sq->tail);
	for (; sq->head < i; sq->head++) {
		STORM_CHECK(w, !(sq->wr[sq->head].flags & SRDMA_DESC_SIGNALED),
			    "request %u has no record", sq->head);
		end_request(qp, e, sq->head, 0);
	}
	STORM_CHECK(w, r->opcode == opcodes[sq->wr[i].op], "opcode %u",
		    r->opcode);
	STORM_CHECK(w, r->vendor_err || sq->wr[i].flags & SRDMA_DESC_SIGNALED,
		    "a record that was not asked for");
	end_request(qp, e, i, r->vendor_err);
	sq->head++;
}

static void received(struct storm_qp *qp, struct storm_end *e,
		     const struct srdma_record *r)
{
	struct storm *w = e->leg->w;
	uint32_t i = (uint32_t)r->id;
	const struct storm_wr *wr = &e->rq.wr[i];
	const struct storm_wr *m = message(&peer_of(qp, e->leg->side)->sq, i);
	uint32_t at = index_of(e->leg, wr->local), len;

	STORM_CHECK(w, !e->rq.failed, "a receive succeeds behind an error");
	if (qp->evil)
		return;
	STORM_CHECK(w, m && m->legal && m->len == r->byte_len,
		    "receive %u: %u bytes that nobody sent", i, r->byte_len);
	STORM_CHECK(w,
		    (r->opcode == SRDMA_WC_RECV) ==
			    (m->op != SRDMA_DESC_WRITE_IMM),
		    "opcode %u", r->opcode);
	if (m->op != SRDMA_DESC_SEND)
		STORM_CHECK(w,
			    r->imm == m->imm &&
				    r->flags == SRDMA_RECORD_WITH_IMM,
			    "immediate");
	len = m->op == SRDMA_DESC_WRITE_IMM ? 0 : m->len;
	if (len)
		check_arrived(e->leg, wr->local, m, "receive");
	if (is_pure(e->leg, wr->local))
		STORM_CHECK(w,
			    !memcmp(wr->local + len, e->leg->shadow + at + len,
				    wr->len - len),
			    "bytes behind a message changed");
}

static void recv_record(struct storm_qp *qp, struct storm_end *e,
			const struct srdma_record *r)
{
	struct storm *w = e->leg->w;
	struct storm_queue *rq = &e->rq;
	struct storm_wr *wr = &rq->wr[rq->head];

	STORM_CHECK(w, r->id == rq->head && rq->head < rq->tail,
		    "receive %u of [%u, %u) ended", (uint32_t)r->id, rq->head,
		    rq->tail);
	if (!r->vendor_err) {
		received(qp, e, r);
	} else {
		STORM_CHECK(w, w->lossy || qp->doomed, "receive failed: %s",
			    srdma_reason(r->vendor_err)->name);
		wr->failed = 1;
		rq->failed = 1;
	}
	rq->head++;
	spoil(e->leg, wr->local, wr->len);
}

/* A request that the peer refused is the first that fails. */
static void qp_event(const struct storm_qp *qp, struct storm_end *e,
		     uint32_t reason)
{
	struct storm *w = e->leg->w;
	const struct srdma_qp *own =
		srdma_relay_qp(w->side[e->leg->side].relay, e->info.qpn);

	e->events++;
	if (qp->evil || qp->lossy || w->lossy || !own ||
	    own->failed_id >= SRDMA_NONE || reason > SRDMA_REASON_NO_RECV ||
	    !e->sq.failed)
		return;
	STORM_CHECK(w, e->sq.failed == (int)reason,
		    "refused with %s; the first to fail did with %s",
		    srdma_reason(reason)->name,
		    srdma_reason((uint32_t)e->sq.failed)->name);
}

static void take_record(struct storm_leg *leg, const struct srdma_record *r)
{
	struct storm *w = leg->w;
	int too_short = r->vendor_err == SRDMA_REASON_RECV_TOO_SHORT &&
			r->opcode == SRDMA_WC_RECV;

	STORM_CHECK(w,
		    too_short
			    ? r->status == 1
			    : r->status == srdma_reason(r->vendor_err)->status,
		    "status %u of reason %u", r->status, r->vendor_err);
	for (int i = 0; i < 2 * (STORM_QPS + 1); i++) {
		struct storm_qp *qp = &w->qp[i / 2];
		struct storm_end *e = &qp->end[i % 2];

		if (!qp->live || e->leg != leg || e->info.qpn != r->qpn)
			continue;
		if (e->gone) /* written before, seen after */
			return;
		if (r->opcode == SRDMA_WC_QP_EVENT)
			qp_event(qp, e, r->vendor_err);
		else if (r->opcode & SRDMA_WC_RECV)
			recv_record(qp, e, r);
		else
			send_record(qp, e, r);
		return;
	}
	STORM_CHECK(w, 0, "a record of QP %#x", r->qpn);
}

static void tell_credit(struct storm_leg *leg)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_CREDIT };

	if (leg->consumed - leg->told >= leg->ring / 2)
		put(leg, &d, NULL);
}

void storm_host_poll(struct storm_leg *leg, uint32_t n)
{
	const uint8_t *ring;
	struct srdma_record r;

	if (!leg->mem || !leg->open || leg->closing || leg->broken)
		return;
	ring = srdma_port_mem_ring(leg->conn);
	while (n--) {
		uint32_t slot = leg->consumed & (leg->ring - 1);
		uint32_t old = leg->consumed < leg->ring
				       ? 0
				       : leg->consumed + 1 - leg->ring;

		srdma_record_decode(&r, ring + (size_t)slot * SRDMA_RECORD_LEN);
		if (r.sequence == old)
			break;
		STORM_CHECK(leg->w, r.sequence == leg->consumed + 1,
			    "record %u was overrun", leg->consumed + 1);
		leg->consumed++;
		take_record(leg, &r);
	}
	tell_credit(leg);
}
