#include "simulation/transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "support/inside.h"

enum {
	STEP_NS = 1000,
	RATE = 2500, /* bytes per us, about what one core seals */
	LATENCY_NS = 5000,
	WIRE_SLOTS = 1024,
	HOST_BUFS = 1024, /* as port_shm has */
	WARM = 64,	  /* requests of each side before the faults begin */
	SPOILT = 0xee,
	BEGIN_NS = 1000000000,
	KEY_CACHE = 16,
	DEPTH = 512,
};

/* layout of a side's memory */
enum {
	OWN = 0,
	REMOTE = TRANSFER_SLOTS * TRANSFER_SLOT,
	RECV = 2 * TRANSFER_SLOTS * TRANSFER_SLOT,
};

#define CHECK(t, condition, ...)                                               \
	do {                                                                   \
		if (!(condition))                                              \
			give_up(t, __FILE__, __LINE__, __VA_ARGS__);           \
	} while (0)

static void give_up(const struct transfer *t, const char *file, int line,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static void give_up(const struct transfer *t, const char *file, int line,
		    const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	print_error("%s:%d: %s\nseed %llu, faults %#x, one in %u, after %llu "
		    "packets, at %llu ns\n",
		    file, line, text, (unsigned long long)t->seed, t->kinds,
		    t->one_in, (unsigned long long)t->sent,
		    (unsigned long long)t->p.now);
	fail();
}

static uint32_t random_below(struct transfer *t, uint32_t n)
{
	uint64_t z = (t->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z ^= z >> 27;
	return (uint32_t)((z >> 32) * n >> 32);
}

/* --- wire ----------------------------------------------------------------- */

static void catch_one(struct transfer *t, const struct srdma_mem_datagram *d)
{
	uint32_t i = random_below(t, TRANSFER_CAUGHT);

	t->side[d->side].caught[i].len = d->len;
	memcpy(t->side[d->side].caught[i].data, d->data, d->len);
}

static void replace(struct transfer *t, struct srdma_mem_datagram *d)
{
	uint32_t i = random_below(t, TRANSFER_CAUGHT);

	d->len = t->side[d->side].caught[i].len;
	if (!d->len)
		d->len = 1;
	memcpy(d->data, t->side[d->side].caught[i].data, d->len);
}

static enum srdma_mem_fate strike(struct transfer *t,
				  struct srdma_mem_datagram *d)
{
	uint32_t kind;

	do {
		kind = 1u << random_below(t, TRANSFER_FAULTS);
	} while (!(t->kinds & kind));
	t->hit++;
	switch (kind) {
	case TRANSFER_FLIP:
		d->data[random_below(t, d->len)] ^=
			(uint8_t)(1 << random_below(t, 8));
		return SRDMA_MEM_PASS;
	case TRANSFER_DROP:
		return SRDMA_MEM_DROP;
	case TRANSFER_TWICE:
		return SRDMA_MEM_TWICE;
	case TRANSFER_REPLACE:
		replace(t, d);
		return SRDMA_MEM_PASS;
	default:
		return SRDMA_MEM_SWAP;
	}
}

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	struct transfer *t = ctx;

	t->sent++;
	if (t->hole && t->sent >= t->hole_at) {
		if (!t->dark)
			t->dark = t->p.now;
		if (t->hole >> d->side & 1)
			return SRDMA_MEM_DROP;
	}
	if (t->begin && t->one_in && !random_below(t, t->one_in))
		return strike(t, d);
	if (!random_below(t, 8))
		catch_one(t, d);
	return SRDMA_MEM_PASS;
}

/* --- requests ------------------------------------------------------------- */

static uint8_t *slot_of(struct transfer *t, int side, uint32_t area, uint64_t n)
{
	return t->p.side[side].memory + area +
	       n % TRANSFER_SLOTS * TRANSFER_SLOT;
}

static void fill(struct transfer *t, uint8_t *at, uint32_t len)
{
	uint32_t r = random_below(t, UINT32_MAX);

	for (uint32_t i = 0; i < len; i++) {
		r = r * 1664525 + 1013904223;
		at[i] = (uint8_t)(r >> 24);
	}
}

static void spoil(uint8_t *at, uint32_t len)
{
	memset(at, SPOILT, len);
}

/* Expects that unused memory is unchanged. */
static void check_spoilt(const struct transfer *t, const uint8_t *at,
			 uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		CHECK(t, at[i] == SPOILT,
		      "byte %u of %u changed after its request ended", i, len);
}

static uint32_t sum(const uint8_t *at, uint32_t len)
{
	return libdeflate_crc32(0, at, len);
}

static uint64_t value_of(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static int is_send(uint8_t op)
{
	return op == SRDMA_DESC_SEND || op == SRDMA_DESC_SEND_IMM;
}

static int takes_recv(uint8_t op)
{
	return is_send(op) || op == SRDMA_DESC_WRITE_IMM;
}

static uint32_t some_len(struct transfer *t)
{
	if (!random_below(t, 8))
		return random_below(t, 3);
	return 1 + random_below(t, random_below(t, 2) ? 2000 : TRANSFER_SLOT);
}

static void post_receive(struct transfer *t, int side)
{
	struct transfer_side *s = &t->side[side];
	uint8_t *at = slot_of(t, side, RECV, s->receives);

	check_spoilt(t, at, TRANSFER_SLOT);
	pair_post(&t->p, side,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
				       .id = s->receives++,
				       .length = TRANSFER_SLOT,
				       .local_addr = (uintptr_t)at },
		  NULL);
}

static uint8_t some_op(struct transfer *t)
{
	uint8_t op;

	do {
		op = (uint8_t)(SRDMA_DESC_WRITE + random_below(t, 7));
	} while (t->ops && !(t->ops >> op & 1));
	return op;
}

/* Plans an atomic on the current value; a COMPARE_SWAP always matches. */
static void plan_atomic(struct transfer *t, struct transfer_request *q,
			const uint8_t *at)
{
	const struct srdma_atomic how = {
		.kind = q->op == SRDMA_DESC_FETCH_ADD
				? SRDMA_ATOMIC_FETCH_ADD
				: SRDMA_ATOMIC_COMPARE_SWAP,
		.swap_add = (uint64_t)random_below(t, UINT32_MAX) << 29,
		.compare = value_of(at),
	};

	q->swap_add = how.swap_add;
	q->result = srdma_atomic_apply(&how, how.compare);
}

static uint64_t compared(const struct transfer_request *q, const uint8_t *at)
{
	return q->op == SRDMA_DESC_COMPARE_SWAP ? value_of(at) : 0;
}

static void post_request(struct transfer *t, int side)
{
	struct transfer_side *s = &t->side[side];
	struct transfer_request *q = &s->request[s->posted % TRANSFER_SLOTS];
	uint8_t *own = slot_of(t, side, OWN, s->posted);
	uint8_t *remote = slot_of(t, !side, REMOTE, s->posted);
	uint8_t *source;

	check_spoilt(t, own, q->len);
	check_spoilt(t, remote, q->len);
	*q = (struct transfer_request){ .posted = t->p.now,
					.op = some_op(t),
					.len = some_len(t),
					.imm = random_below(t, UINT32_MAX) };
	if (srdma_desc_is_atomic(q->op))
		q->len = SRDMA_ATOMIC_LEN;
	source = srdma_desc_is_answered(q->op) ? remote : own;
	fill(t, source, q->len);
	q->sum = sum(source, q->len);
	if (srdma_desc_is_atomic(q->op))
		plan_atomic(t, q, remote);
	if (takes_recv(q->op))
		s->message[s->messages++ % TRANSFER_SLOTS] = *q;
	pair_post(&t->p, side,
		  (struct srdma_desc){ .opcode = q->op,
				       .id = s->posted++,
				       .length = q->len,
				       .imm = q->imm,
				       .swap_add = q->swap_add,
				       .compare = compared(q, remote),
				       .local_addr = (uintptr_t)own,
				       .remote_addr = (uintptr_t)remote },
		  NULL);
}

static int wants_more(const struct transfer *t, const struct transfer_side *s)
{
	return (!t->requests || s->posted < t->requests) &&
	       (!t->packets || t->sent < t->packets) && !s->failed && !s->over;
}

static int has_room(const struct transfer *t, int side)
{
	const struct transfer_side *s = &t->side[side];

	return s->posted - s->ended < (t->depth ? t->depth : DEPTH) &&
	       s->messages - t->side[!side].received < TRANSFER_SLOTS;
}

static void post(struct transfer *t)
{
	for (int side = 0; side < 2; side++) {
		struct transfer_side *s = &t->side[side];

		while (!s->over && s->receives - s->received < TRANSFER_SLOTS)
			post_receive(t, side);
		while (wants_more(t, s) && has_room(t, side))
			post_request(t, side);
	}
}

/* --- completions ---------------------------------------------------------- */

static void request_ended(struct transfer *t, int side,
			  const struct srdma_record *r)
{
	struct transfer_side *s = &t->side[side];
	struct transfer_request *q = &s->request[s->ended % TRANSFER_SLOTS];
	uint8_t *own = slot_of(t, side, OWN, s->ended);
	uint8_t *remote = slot_of(t, !side, REMOTE, s->ended);
	uint8_t *arrived = srdma_desc_is_answered(q->op) ? own : remote;

	CHECK(t, r->id == s->ended && s->ended < s->posted,
	      "side %d: request %llu ended, not %llu", side,
	      (unsigned long long)r->id, (unsigned long long)s->ended);
	if (t->p.now - q->posted > t->slowest)
		t->slowest = t->p.now - q->posted;
	if (r->vendor_err) {
		CHECK(t, t->dark, "side %d: request %llu (op %u, %u): %s", side,
		      (unsigned long long)r->id, q->op, q->len,
		      srdma_reason(r->vendor_err)->name);
		if (!s->failed)
			s->failed = r->vendor_err;
	} else {
		CHECK(t, !s->failed, "side %d: success after an error", side);
		CHECK(t, is_send(q->op) || sum(arrived, q->len) == q->sum,
		      "side %d: request %llu (op %u, %u bytes) did not arrive",
		      side, (unsigned long long)r->id, q->op, q->len);
		CHECK(t,
		      !srdma_desc_is_atomic(q->op) ||
			      value_of(remote) == q->result,
		      "side %d: atomic %llu was not executed once", side,
		      (unsigned long long)r->id);
	}
	spoil(own, q->len);
	spoil(remote, q->len);
	s->ended++;
}

static void receive_ended(struct transfer *t, int side,
			  const struct srdma_record *r)
{
	struct transfer_side *s = &t->side[side];
	const struct transfer_side *peer = &t->side[!side];
	const struct transfer_request *q =
		&peer->message[s->received % TRANSFER_SLOTS];
	uint8_t *at = slot_of(t, side, RECV, s->received);

	CHECK(t, r->id == s->received, "side %d: RECV %llu ended", side,
	      (unsigned long long)r->id);
	if (r->vendor_err) {
		CHECK(t, t->dark, "side %d: a RECV failed: %s", side,
		      srdma_reason(r->vendor_err)->name);
	} else {
		CHECK(t, r->id < peer->messages && q->len == r->byte_len,
		      "side %d: %u bytes without a message", side, r->byte_len);
		CHECK(t, q->op == SRDMA_DESC_SEND || q->imm == r->imm,
		      "side %d: immediate", side);
		CHECK(t, !is_send(q->op) || sum(at, q->len) == q->sum,
		      "side %d: message %llu has wrong bytes", side,
		      (unsigned long long)r->id);
	}
	spoil(at, TRANSFER_SLOT);
	s->received++;
}

static void look(struct transfer *t, int side)
{
	struct srdma_record r;

	while (pair_record(&t->p, side, &r)) {
		if (r.opcode == SRDMA_WC_QP_EVENT) {
			CHECK(t, t->dark, "side %d: %s", side,
			      srdma_reason(r.vendor_err)->name);
			t->side[side].over = 1;
		} else if (r.opcode & SRDMA_WC_RECV) {
			receive_ended(t, side, &r);
		} else {
			request_ended(t, side, &r);
		}
	}
}

/* --- time ----------------------------------------------------------------- */

/* Cuts the connection at either end, also while it is being reconnected. */
static void cut(struct transfer *t)
{
	const struct srdma_path *link;

	if (!t->cut_every || t->sent < t->cut_at)
		return;
	link = t->p.side[random_below(t, 2)].relay->env.paths->paths;
	if (t->cut_at && link) {
		srdma_port_mem_cut(link->conn);
		t->cuts++;
	}
	t->cut_at = t->sent + 1 + random_below(t, 2 * t->cut_every);
}

/*
 * Runs both relays. If both are idle, the clock advances to the next due time.
 */
static void turn(struct transfer *t)
{
	uint64_t next = UINT64_MAX;
	int did = 0;

	cut(t);
	t->p.now += STEP_NS;
	for (int i = 0; i < 2; i++)
		did += srdma_relay_run(t->p.side[i].relay, t->p.now, 64);
	look(t, 0);
	look(t, 1);
	for (int i = 0; i < 2; i++) {
		uint64_t timer = srdma_relay_timer(t->p.side[i].relay);
		uint64_t due = srdma_port_mem_due(t->p.side[i].wire);

		next = timer < next ? timer : next;
		next = due < next ? due : next;
	}
	CHECK(t, did || next < UINT64_MAX, "both relays sleep for ever");
	if (!did && next > t->p.now)
		t->p.now = next;
}

static int is_under_way(const struct transfer *t)
{
	for (int i = 0; i < 2; i++)
		if (t->side[i].ended < t->side[i].posted ||
		    wants_more(t, &t->side[i]))
			return 1;
	return 0;
}

static void begin(struct transfer *t)
{
	t->random = t->seed;
	pair_defaults(&t->p);
	t->p.now = BEGIN_NS;
	t->p.depth = TRANSFER_SLOTS;
	t->p.rekey_packets = t->rekey_packets;
	t->p.mode = t->mode;
	t->p.shared = t->shared;
	t->p.key_cache = KEY_CACHE;
	t->p.memory = 3 * TRANSFER_SLOTS * TRANSFER_SLOT;
	t->p.ring = 4 * TRANSFER_SLOTS;
	if (t->timeout_ms)
		t->p.timeout_ms = t->timeout_ms;
	t->p.wire = (struct srdma_mem_wire_params){ .slots = WIRE_SLOTS,
						    .window = t->window,
						    .bufs = WIRE_SLOTS };
	for (int i = 0; i < 2; i++)
		t->p.host[i].bufs = t->bufs ? t->bufs : HOST_BUFS;
	pair_open(&t->p);
	pair_connect(&t->p, 0);
	for (int i = 0; i < 2; i++)
		spoil(t->p.side[i].memory, t->p.memory);
	t->p.wire.now = &t->p.now;
	t->p.wire.rate = RATE;
	t->p.wire.latency = t->latency ? t->latency : LATENCY_NS;
	t->p.wire.fate = fate;
	t->p.wire.ctx = t;
}

/*
 * Checks that the peer has seen every epoch that an end began, except perhaps
 * the latest. Adds the epochs up.
 */
static void count_rekeys(struct transfer *t)
{
	for (int i = 0; i < 2; i++) {
		uint64_t sent =
			srdma_relay_stats(t->p.side[i].relay)->rekeys_sent;
		uint64_t received =
			srdma_relay_stats(t->p.side[!i].relay)->rekeys_received;

		CHECK(t, t->dark || (sent >= received && sent - received <= 1),
		      "side %d: %llu epochs began, %llu were seen", i,
		      (unsigned long long)sent, (unsigned long long)received);
		t->rekeys += sent;
	}
}

void transfer_run(struct transfer *t)
{
	begin(t);
	for (post(t); is_under_way(t); post(t)) {
		turn(t);
		if (!t->begin && t->side[0].ended >= WARM &&
		    t->side[1].ended >= WARM)
			t->begin = t->p.now;
	}
	t->ns = t->p.now - t->begin;
	count_rekeys(t);
	for (int i = 0; i < 2; i++)
		t->stats[i] = *srdma_relay_stats(t->p.side[i].relay);
	pair_close(&t->p);
}
