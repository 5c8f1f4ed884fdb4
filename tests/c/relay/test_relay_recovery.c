/*
 * Loss recovery (docs/protocol.md 5.1, 5.3, 5.4): each kind of packet is lost
 * once, at each position in a message, and all kinds are lost at random.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { SLOT = 65536, HALF = SLOT / 2, ANY = 0xff, DAY_MS = 86400000 };

/* The packets that a wire loses, and statistics of all packets. */
struct loss {
	int side;
	uint8_t opcode, kind; /* ack kind of an ACKNOWLEDGE; else ANY */
	int skip, count;      /* passes `skip` packets, then loses `count` */
	int lose_last;	      /* also loses so many WRITE_LAST */
	int lose_answers;     /* also loses all READ responses */
	int lost;
	uint32_t one_in; /* instead: loses one in so many of all packets */
	/* one in so many of all packets is swapped with the next */
	uint32_t swap_one_in;
	uint64_t random;
	uint32_t psn[2];
	int seen[2];
	uint32_t reads; /* READ_REQUESTs seen */
};

struct world {
	struct pair p;
	struct loss loss;
};

static uint32_t below(struct loss *l, uint32_t n)
{
	l->random = l->random * UINT64_C(6364136223846793005) +
		    UINT64_C(1442695040888963407);
	return (uint32_t)(l->random >> 33) % n;
}

/* The packet numbers of each side are consecutive, including lost packets. */
static void count_number(struct loss *l, int side, uint32_t psn)
{
	if (l->seen[side]++)
		assert_int_equal(psn, (l->psn[side] + 1) & 0xffffff);
	l->psn[side] = psn;
}

static int is_hit(struct loss *l, int side, const struct srdma_packet *p)
{
	l->reads += p->opcode == SRDMA_OP_READ_REQUEST;
	if (l->lose_answers && (srdma_wire_traits(p->opcode) & SRDMA_T_ANSWER))
		return 1;
	if (l->one_in)
		return below(l, l->one_in) == 0;
	if (p->opcode == SRDMA_OP_WRITE_LAST && l->lose_last)
		return l->lose_last-- > 0;
	if (l->side != side || l->opcode != p->opcode ||
	    (l->kind != ANY && l->kind != p->ack.kind))
		return 0;
	if (l->skip > 0) {
		l->skip--;
		return 0;
	}
	return l->count-- > 0;
}

static enum srdma_mem_fate lose(void *ctx, struct srdma_mem_datagram *d)
{
	struct loss *l = ctx;
	struct srdma_packet p;

	assert_int_equal(srdma_wire_parse(&p, d->data, d->len, 16, 4096), 0);
	count_number(l, d->side, p.psn);
	if (l->swap_one_in && !below(l, l->swap_one_in))
		return SRDMA_MEM_SWAP;
	if (!is_hit(l, d->side, &p))
		return SRDMA_MEM_PASS;
	l->lost++;
	return SRDMA_MEM_DROP;
}

static void defaults(struct world *w)
{
	memset(w, 0, sizeof(*w));
	pair_defaults(&w->p);
	w->p.wire.ctx = &w->loss;
	w->p.wire.fate = lose;
}

/* Runs like idle workers: sleeps until the next timer. */
static void sleep_until_due(struct pair *p)
{
	uint64_t next = SRDMA_NEVER;

	for (int i = 0; i < 2; i++) {
		uint64_t timer = srdma_relay_timer(p->side[i].relay);
		uint64_t due = srdma_port_mem_due(p->side[i].wire);

		next = timer < next ? timer : next;
		next = due < next ? due : next;
	}
	if (next != SRDMA_NEVER && next > p->now)
		p->now = next;
	pair_run(p, 1);
}

/* Runs everything that happens within ms. */
static void pass_ms(struct pair *p, uint64_t ms)
{
	uint64_t end = p->now + ms * 1000000;

	for (pair_settle(p); p->now < end; pair_settle(p))
		sleep_until_due(p);
}

/* Runs until side has a record. */
static void await(struct pair *p, int side, struct srdma_record *r)
{
	for (int i = 0; i < 100000; i++) {
		pair_settle(p);
		if (pair_record(p, side, r))
			return;
		sleep_until_due(p);
	}
	fail_msg("no record on side %d", side);
}

static void await_end(struct pair *p, int side, uint64_t id, uint32_t reason)
{
	struct srdma_record r;

	await(p, side, &r);
	assert_int_equal(r.id, id);
	assert_int_equal(r.vendor_err, reason);
}

/* Opens the relays and installs the keys; no packet has been sent yet. */
static void begin_world(struct world *w)
{
	struct srdma_qp_keys k;
	struct pair *p = &w->p;

	pair_open(p);
	pair_init_qp(p, 0);
	for (int side = 1; side >= 0; side--) {
		pair_keys(p, side, 0, &k);
		assert_int_equal(srdma_relay_qp_keys(p->side[side].relay,
						     p->side[side].leg, &k),
				 0);
	}
}

static void open_world(struct world *w)
{
	begin_world(w);
	pass_ms(&w->p, 250);
	assert_int_equal(pair_state(&w->p, 0, 0, NULL), SRDMA_QP_RTS);
	assert_int_equal(pair_state(&w->p, 1, 0, NULL), SRDMA_QP_RTS);
}

static const struct srdma_stats *stats(const struct world *w, int side)
{
	return srdma_relay_stats(w->p.side[side].relay);
}

static uint64_t resent(const struct world *w)
{
	return stats(w, 0)->packets_resent + stats(w, 1)->packets_resent;
}

static uint64_t timeouts(const struct world *w)
{
	return stats(w, 0)->timeouts + stats(w, 1)->timeouts;
}

static void fill(uint8_t *m, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1;
		m[i] = (uint8_t)(seed >> 40);
	}
}

/*
 * Request i of a batch: it moves len bytes between slot i of both memories.
 * WRITE and SEND use the first half of the slot, READ the second.
 */
struct job {
	uint8_t op;
	uint32_t len;
};

static uint8_t *slot_of(struct pair *p, int side, uint32_t i, uint8_t op)
{
	return p->side[side].memory + (size_t)i * SLOT +
	       (op == SRDMA_DESC_READ ? HALF : 0);
}

static int takes_recv(uint8_t op)
{
	return op == SRDMA_DESC_SEND || op == SRDMA_DESC_SEND_IMM ||
	       op == SRDMA_DESC_WRITE_IMM;
}

static void post_job(struct pair *p, int side, uint32_t i, const struct job *j)
{
	int source = j->op == SRDMA_DESC_READ ? !side : side;
	struct srdma_desc d = {
		.opcode = j->op,
		.id = i + 1,
		.length = j->len,
		.imm = i,
		.local_addr = (uintptr_t)slot_of(p, side, i, j->op),
	};
	struct srdma_desc recv = {
		.opcode = SRDMA_DESC_RECV,
		.id = i + 1,
		.length = HALF,
		.local_addr = (uintptr_t)slot_of(p, !side, i, j->op),
	};

	fill(slot_of(p, source, i, j->op), j->len, p->now + i);
	memset(slot_of(p, !source, i, j->op), 0, HALF);
	if (takes_recv(j->op))
		pair_post(p, !side, recv, NULL);
	if (j->op != SRDMA_DESC_SEND && j->op != SRDMA_DESC_SEND_IMM)
		d.remote_addr = (uintptr_t)slot_of(p, !side, i, j->op);
	pair_post(p, side, d,
		  j->len <= SRDMA_MAX_INLINE && j->op != SRDMA_DESC_READ
			  ? slot_of(p, side, i, j->op)
			  : NULL);
}

static void check_job(struct pair *p, int side, uint32_t i, const struct job *j)
{
	const uint8_t *to = slot_of(p, !side, i, j->op);

	assert_memory_equal(to, slot_of(p, side, i, j->op), j->len);
	if (j->op != SRDMA_DESC_READ)
		assert_int_equal(to[j->len], 0);
}

static void run_jobs(struct world *w, int side, const struct job *jobs,
		     uint32_t n)
{
	struct pair *p = &w->p;

	for (uint32_t i = 0; i < n; i++)
		post_job(p, side, i, &jobs[i]);
	for (uint32_t i = 0; i < n; i++)
		await_end(p, side, i + 1, SRDMA_REASON_NONE);
	for (uint32_t i = 0; i < n; i++) {
		if (takes_recv(jobs[i].op))
			await_end(p, !side, i + 1, SRDMA_REASON_NONE);
		check_job(p, side, i, &jobs[i]);
	}
	pair_expect_none(p, side);
	pair_expect_none(p, !side);
}

/* --- one lost packet ------------------------------------------------------ */

struct one {
	const char *name;
	uint8_t op; /* opcode of the request */
	uint32_t len;
	int side; /* side that sends the lost packet */
	uint8_t opcode, kind;
	int skip;
	int by_timer; /* 1: only a timeout reveals the loss */
};

static const struct one ones[] = {
	{ "WRITE_FIRST", SRDMA_DESC_WRITE, 20000, 0, SRDMA_OP_WRITE_FIRST, ANY,
	  0, 0 },
	{ "WRITE_MIDDLE", SRDMA_DESC_WRITE, 20000, 0, SRDMA_OP_WRITE_MIDDLE,
	  ANY, 1, 0 },
	{ "WRITE_LAST", SRDMA_DESC_WRITE, 20000, 0, SRDMA_OP_WRITE_LAST, ANY, 0,
	  1 },
	{ "WRITE_LAST_IMM", SRDMA_DESC_WRITE_IMM, 20000, 0,
	  SRDMA_OP_WRITE_LAST_IMM, ANY, 0, 1 },
	{ "empty WRITE", SRDMA_DESC_WRITE, 0, 0, SRDMA_OP_WRITE_ONLY, ANY, 0,
	  1 },
	{ "inline WRITE", SRDMA_DESC_WRITE, 100, 0, SRDMA_OP_WRITE_ONLY, ANY, 0,
	  1 },
	{ "SEND_FIRST", SRDMA_DESC_SEND, 9000, 0, SRDMA_OP_SEND_FIRST, ANY, 0,
	  0 },
	{ "SEND_ONLY", SRDMA_DESC_SEND, 4000, 0, SRDMA_OP_SEND_ONLY, ANY, 0,
	  1 },
	{ "SEND_ONLY_IMM", SRDMA_DESC_SEND_IMM, 10, 0, SRDMA_OP_SEND_ONLY_IMM,
	  ANY, 0, 1 },
	{ "READ_REQUEST", SRDMA_DESC_READ, 20000, 0, SRDMA_OP_READ_REQUEST, ANY,
	  0, 1 },
	{ "empty READ_REQUEST", SRDMA_DESC_READ, 0, 0, SRDMA_OP_READ_REQUEST,
	  ANY, 0, 1 },
	{ "READ_RESPONSE_FIRST", SRDMA_DESC_READ, 20000, 1,
	  SRDMA_OP_READ_RESPONSE_FIRST, ANY, 0, 0 },
	{ "READ_RESPONSE_MIDDLE", SRDMA_DESC_READ, 20000, 1,
	  SRDMA_OP_READ_RESPONSE_MIDDLE, ANY, 1, 0 },
	{ "READ_RESPONSE_LAST", SRDMA_DESC_READ, 20000, 1,
	  SRDMA_OP_READ_RESPONSE_LAST, ANY, 0, 1 },
	{ "READ_RESPONSE_ONLY", SRDMA_DESC_READ, 1, 1,
	  SRDMA_OP_READ_RESPONSE_ONLY, ANY, 0, 1 },
	{ "empty READ_RESPONSE", SRDMA_DESC_READ, 0, 1,
	  SRDMA_OP_READ_RESPONSE_ONLY, ANY, 0, 1 },
	{ "ACK of a WRITE", SRDMA_DESC_WRITE, 4000, 1, SRDMA_OP_ACKNOWLEDGE,
	  SRDMA_ACK_ACK, 0, 1 },
};

static void test_one_lost_packet_is_resent(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ones) / sizeof(*ones); i++) {
		const struct one *o = &ones[i];
		const struct job job = { o->op, o->len };
		struct world w;

		defaults(&w);
		open_world(&w);
		if (takes_recv(o->op)) /* delivers the credit first */
			pass_ms(&w.p, 1);
		w.loss = (struct loss){ .side = o->side,
					.opcode = o->opcode,
					.kind = o->kind,
					.skip = o->skip,
					.count = 1 };
		run_jobs(&w, 0, &job, 1);
		if (w.loss.lost != 1 || resent(&w) != 1 ||
		    !timeouts(&w) != !o->by_timer)
			fail_msg("%s: lost %d, sent again %d, timeouts %d",
				 o->name, w.loss.lost, (int)resent(&w),
				 (int)timeouts(&w));
		pair_close(&w.p);
	}
}

/* The same packet is lost repeatedly: the timeout doubles. */
static void test_repeated_loss_doubles_timeout(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 1000 };
	struct world w;
	uint64_t before;

	(void)state;
	defaults(&w);
	open_world(&w);
	w.loss = (struct loss){ .opcode = SRDMA_OP_WRITE_ONLY,
				.kind = ANY,
				.count = 5 };
	before = w.p.now;
	run_jobs(&w, 0, &job, 1);
	assert_int_equal(w.loss.lost, 5);
	assert_int_equal(resent(&w), 5);
	assert_int_equal(timeouts(&w), 5);
	assert_true(w.p.now - before >= 31 * 200000ull);
	assert_true(w.p.now - before < 40 * 200000ull);
	pair_close(&w.p);
}

/*
 * All packets of a message but the first are lost: one timeout recovers all of
 * them.
 */
static void test_lost_tail_is_resent_after_one_timeout(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 32000 };
	struct world w;

	(void)state;
	defaults(&w);
	w.p.mtu = 1000;
	open_world(&w);
	w.loss = (struct loss){ .opcode = SRDMA_OP_WRITE_MIDDLE,
				.kind = ANY,
				.count = 30,
				.lose_last = 1 };
	run_jobs(&w, 0, &job, 1);
	assert_int_equal(w.loss.lost, 31);
	assert_int_equal(resent(&w), 31);
	assert_int_equal(timeouts(&w), 1);
	pair_close(&w.p);
}

/* --- OPEN and its ack ----------------------------------------------------- */

static void test_lost_open_is_resent(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 5000 };

	(void)state;
	for (int side = 0; side < 2; side++) {
		struct world w;

		defaults(&w);
		w.loss = (struct loss){
			.side = side,
			.opcode = SRDMA_OP_ACKNOWLEDGE,
			.kind = side ? SRDMA_ACK_ACK : SRDMA_ACK_OPEN,
			.count = 1,
		};
		open_world(&w);
		assert_int_equal(w.loss.lost, 1);
		assert_int_equal(resent(&w), 1);
		assert_int_equal(timeouts(&w), 1);
		run_jobs(&w, 0, &job, 1);
		pair_close(&w.p);
	}
}

/* --- the first round trip ------------------------------------------------- */

/*
 * A lost PING of an idle QP does not change the RTT estimate: a later loss is
 * repaired as fast as before, whichever end sends first.
 */
static void test_lost_ping_keeps_rtt_estimate(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 100 };
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .length = 1 };

	(void)state;
	for (int hears = 0; hears < 2; hears++) {
		struct world w;
		uint64_t begin;

		defaults(&w);
		open_world(&w);
		for (int i = 0; i < 2; i++)
			run_jobs(&w, 0, &job, 1);
		recv.local_addr = (uintptr_t)w.p.side[0].memory;
		pair_post(&w.p, 0, recv, NULL);
		w.loss = (struct loss){ .opcode = SRDMA_OP_ACKNOWLEDGE,
					.kind = SRDMA_ACK_PING,
					.count = 1 };
		pass_ms(&w.p, hears ? 11000 : 6000);
		assert_int_equal(w.loss.lost, 1);
		w.loss = (struct loss){ .opcode = SRDMA_OP_WRITE_ONLY,
					.kind = ANY,
					.skip = 1,
					.count = 1 };
		run_jobs(&w, 0, &job, 1);
		begin = w.p.now;
		run_jobs(&w, 0, &job, 1);
		assert_int_equal(w.loss.lost, 1);
		assert_true(w.p.now - begin < 2 * 1000000ull);
		pair_close(&w.p);
	}
}

/*
 * An idle QP sends lost PINGs again at shorter intervals: five lost in a row do
 * not end it.
 */
static void test_five_lost_pings_keep_qp(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .length = 1 };
	struct world w;

	(void)state;
	defaults(&w);
	open_world(&w);
	recv.local_addr = (uintptr_t)w.p.side[0].memory;
	pair_post(&w.p, 0, recv, NULL);
	w.loss = (struct loss){ .opcode = SRDMA_OP_ACKNOWLEDGE,
				.kind = SRDMA_ACK_PING,
				.count = 5 };
	pass_ms(&w.p, 40000);
	assert_int_equal(w.loss.lost, 5);
	assert_int_equal(pair_state(&w.p, 0, 0, NULL), SRDMA_QP_RTS);
	pair_close(&w.p);
}

static int is_open(struct pair *p)
{
	return pair_state(p, 0, 0, NULL) == SRDMA_QP_RTS &&
	       pair_state(p, 1, 0, NULL) == SRDMA_QP_RTS;
}

/* A loss before the first RTT sample costs little more than a later one. */
static void test_loss_before_first_rtt_sample(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 100 };
	static const struct loss losses[] = {
		{ .side = 0,
		  .opcode = SRDMA_OP_ACKNOWLEDGE,
		  .kind = SRDMA_ACK_OPEN,
		  .count = 1 },
		{ .side = 1,
		  .opcode = SRDMA_OP_ACKNOWLEDGE,
		  .kind = SRDMA_ACK_ACK,
		  .count = 1 },
		{ .side = 1,
		  .opcode = SRDMA_OP_WRITE_ONLY,
		  .kind = ANY,
		  .count = 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++) {
		struct world w;
		uint64_t begin;

		defaults(&w);
		w.loss = losses[i];
		begin_world(&w);
		begin = w.p.now;
		for (pair_settle(&w.p); !is_open(&w.p); pair_settle(&w.p))
			sleep_until_due(&w.p);
		run_jobs(&w, 1, &job, 1);
		assert_int_equal(w.loss.lost, 1);
		assert_true(w.p.now - begin < 10 * 1000000ull);
		pair_close(&w.p);
	}
}

/*
 * On a wire with long latency a few first timeouts are spurious, until the RTT
 * is known.
 */
static void test_spurious_timeouts_on_long_wire_stop(void **state)
{
	const struct job jobs[] = { { SRDMA_DESC_WRITE, 30000 },
				    { SRDMA_DESC_SEND, 30000 },
				    { SRDMA_DESC_READ, 30000 } };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct world w;
		uint64_t early;

		defaults(&w);
		w.p.wire.window = i ? 1024 : 64;
		w.p.wire.now = &w.p.now;
		w.p.wire.latency = 50 * 1000000ull;
		begin_world(&w);
		while (!is_open(&w.p))
			pass_ms(&w.p, 1);
		run_jobs(&w, 0, jobs, 3);
		run_jobs(&w, 1, jobs, 3);
		early = timeouts(&w);
		assert_in_range(early, 2, 16);
		assert_true(resent(&w) <= early);
		for (int n = 0; n < 10; n++)
			run_jobs(&w, n % 2, jobs, 3);
		assert_int_equal(timeouts(&w), early);
		pair_close(&w.p);
	}
}

/* --- credit, PING, NAK, CLOSE --------------------------------------------- */

/* The credit of a RECV is lost, and then the PING that asks for it. */
static void test_lost_credit_is_probed(void **state)
{
	(void)state;
	for (int pings = 0; pings < 3; pings++) {
		struct world w;
		struct srdma_desc d = { .opcode = SRDMA_DESC_SEND,
					.id = 7,
					.length = 600 };
		struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
					   .id = 8,
					   .length = 600 };

		defaults(&w);
		open_world(&w);
		d.local_addr = (uintptr_t)w.p.side[0].memory;
		recv.local_addr = (uintptr_t)w.p.side[1].memory;
		w.loss = (struct loss){ .side = 1,
					.opcode = SRDMA_OP_ACKNOWLEDGE,
					.kind = SRDMA_ACK_ACK,
					.count = 1 };
		pair_post(&w.p, 1, recv, NULL);
		pair_settle(&w.p);
		assert_int_equal(w.loss.lost, 1);
		w.loss = (struct loss){ .opcode = SRDMA_OP_ACKNOWLEDGE,
					.kind = SRDMA_ACK_PING,
					.count = pings };
		pair_post(&w.p, 0, d, NULL);
		await_end(&w.p, 0, 7, SRDMA_REASON_NONE);
		await_end(&w.p, 1, 8, SRDMA_REASON_NONE);
		assert_int_equal(w.loss.lost, pings);
		assert_int_equal(stats(&w, 0)->timeouts, pings + 1);
		/* a RECV is posted */
		assert_int_equal(stats(&w, 1)->rnr_sent, 0);
		assert_int_equal(resent(&w), 0);
		pair_close(&w.p);
	}
}

/*
 * A sender that waits for a RECV probes less and less often, gets RNR
 * responses, and continues when a RECV is posted.
 */
static void test_probes_for_recv_back_off(void **state)
{
	struct world w;
	struct srdma_desc d = { .opcode = SRDMA_DESC_SEND, .length = 600 };
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .id = 8,
				   .length = 600 };

	(void)state;
	defaults(&w);
	open_world(&w);
	d.local_addr = (uintptr_t)w.p.side[0].memory;
	recv.local_addr = (uintptr_t)w.p.side[1].memory;
	pair_post(&w.p, 0, d, NULL);
	pass_ms(&w.p, 20000);
	assert_in_range(stats(&w, 0)->timeouts, 20, 32);
	assert_int_equal(stats(&w, 1)->rnr_sent, stats(&w, 0)->timeouts);
	assert_int_equal(stats(&w, 0)->rnr_received, stats(&w, 1)->rnr_sent);
	assert_true(stats(&w, 1)->acks_sent >= stats(&w, 1)->rnr_sent);
	pair_expect_none(&w.p, 0);
	pair_post(&w.p, 1, recv, NULL);
	pass_ms(&w.p, 10);
	pair_expect(&w.p, 0, 0, SRDMA_REASON_NONE);
	pair_expect(&w.p, 1, 8, SRDMA_REASON_NONE);
	pair_close(&w.p);
}

/*
 * All responses of a READ are lost, but acks and credits arrive. Its request is
 * repeated less and less often, up to once per second, until its deadline.
 */
static void test_unanswered_read_backs_off(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct world w;
		struct srdma_desc d = { .opcode = SRDMA_DESC_READ,
					.id = 7,
					.length = 300000 };
		struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
					   .length = 1 };
		uint64_t begin;

		defaults(&w);
		w.p.wire.window = i % 2 ? 1024 : 64;
		w.p.depth = 4096;
		w.p.ring = SRDMA_MAX_RING;
		w.p.timeout_ms = 3000;
		open_world(&w);
		d.local_addr = (uintptr_t)w.p.side[0].memory;
		d.remote_addr = (uintptr_t)w.p.side[1].memory;
		recv.local_addr = d.remote_addr;
		w.loss.lose_answers = 1;
		pair_post(&w.p, 0, d, NULL);
		begin = w.p.now;
		while (w.p.now < begin + 2900 * UINT64_C(1000000)) {
			if (i / 2)
				pair_post(&w.p, 1, recv, NULL);
			pass_ms(&w.p, 1);
		}
		assert_in_range(w.loss.reads, 10, 40);
		await_end(&w.p, 0, 7, SRDMA_REASON_DEADLINE);
		pair_close(&w.p);
	}
}

static void test_lost_nak_is_repeated(void **state)
{
	struct world w;
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = 3,
				.length = 9000,
				.rkey = 0x12345678 };

	(void)state;
	defaults(&w);
	open_world(&w);
	w.loss = (struct loss){ .side = 1,
				.opcode = SRDMA_OP_ACKNOWLEDGE,
				.kind = SRDMA_ACK_NAK,
				.count = 1 };
	d.local_addr = (uintptr_t)w.p.side[0].memory;
	d.remote_addr = (uintptr_t)w.p.side[1].memory;
	pair_post(&w.p, 0, d, NULL);
	await_end(&w.p, 0, 3, SRDMA_REASON_BAD_RKEY);
	assert_int_equal(w.loss.lost, 1);
	pair_close(&w.p);
}

/* A CLOSE is repeated to a peer that still sends. */
static void test_lost_close_is_repeated(void **state)
{
	struct world w;
	struct srdma_desc bad = { .opcode = SRDMA_DESC_WRITE,
				  .id = 3,
				  .length = 9000,
				  .local_key = 0x12345678 };
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = 4,
				.length = 9000 };

	(void)state;
	defaults(&w);
	open_world(&w);
	w.loss = (struct loss){ .opcode = SRDMA_OP_ACKNOWLEDGE,
				.kind = SRDMA_ACK_CLOSE,
				.count = 1 };
	pair_post(&w.p, 0, bad, NULL);
	await_end(&w.p, 0, 3, SRDMA_REASON_LOCAL_KEY);
	assert_int_equal(w.loss.lost, 1);
	assert_int_equal(pair_state(&w.p, 1, 0, NULL), SRDMA_QP_RTS);
	d.local_addr = (uintptr_t)w.p.side[1].memory;
	d.remote_addr = (uintptr_t)w.p.side[0].memory;
	pair_post(&w.p, 1, d, NULL);
	await_end(&w.p, 1, 4, SRDMA_REASON_PEER_ERROR);
	pair_close(&w.p);
}

/* --- random losses -------------------------------------------------------- */

static void choose(struct loss *l, struct job *jobs, uint32_t n)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_WRITE_IMM,
				       SRDMA_DESC_READ,	 SRDMA_DESC_READ,
				       SRDMA_DESC_SEND,	 SRDMA_DESC_SEND_IMM };

	for (uint32_t i = 0; i < n; i++)
		jobs[i] = (struct job){ ops[below(l, sizeof(ops))],
					below(l, below(l, 2) ? 32000 : 500) };
}

static void run_batches(struct world *w, int batches)
{
	struct job jobs[20];

	for (int i = 0; i < batches; i++) {
		choose(&w->loss, jobs, 20);
		run_jobs(w, i % 2, jobs, 20);
	}
}

static void test_random_losses(void **state)
{
	struct world w;

	(void)state;
	defaults(&w);
	open_world(&w);
	w.loss.random = 1;
	w.loss.one_in = 10;
	run_batches(&w, 100);
	assert_true(w.loss.lost > 500);
	assert_true(resent(&w) < 2 * (uint64_t)w.loss.lost);
	pair_close(&w.p);
}

/* small packets, a small window, and one read chunk at a time */
static void test_random_losses_with_small_limits(void **state)
{
	struct world w;

	(void)state;
	for (uint32_t n = 1; n <= 4; n++) {
		defaults(&w);
		w.p.mtu = 256;
		w.p.window = n * n;
		w.p.reads = n;
		open_world(&w);
		w.loss.random = n;
		w.loss.one_in = 10;
		run_batches(&w, 6);
		pair_close(&w.p);
	}
}

/* On a wire that may reorder, late packets are not sent again. */
static void test_late_packets_are_not_resent(void **state)
{
	(void)state;
	for (uint32_t loses = 0; loses < 2; loses++) {
		struct world w;

		defaults(&w);
		w.p.wire.window = 1024;
		open_world(&w);
		w.loss.random = 5;
		w.loss.swap_one_in = 5;
		w.loss.one_in = loses ? 10 : 0;
		run_batches(&w, 20);
		assert_true(loses ? w.loss.lost > 50 && resent(&w) > 50
				  /* spurious at the end of a batch */
				  : resent(&w) < 20);
		pair_close(&w.p);
	}
}

/* Without loss no packet is sent twice. */
static void test_no_loss_no_resend(void **state)
{
	(void)state;
	/* settles within pair_settle */
	for (uint32_t polls = 0; polls < 8; polls += 3) {
		struct world w;

		defaults(&w);
		w.p.host[0].dma_polls = polls;
		w.p.host[1].dma_polls = polls / 2;
		open_world(&w);
		w.loss.random = polls;
		run_batches(&w, 40);
		assert_int_equal(resent(&w), 0);
		assert_int_equal(timeouts(&w), 0);
		assert_int_equal(
			pair_refused(&w.p, 0, SRDMA_REFUSED_UNSOLICITED), 0);
		assert_int_equal(
			pair_refused(&w.p, 1, SRDMA_REFUSED_UNSOLICITED), 0);
		pair_close(&w.p);
	}
}

/* A QP with nothing outstanding sets no timer. */
static void test_idle_qp_sets_no_timer(void **state)
{
	const struct job job = { SRDMA_DESC_READ, 20000 };
	struct world w;

	(void)state;
	defaults(&w);
	open_world(&w);
	run_jobs(&w, 0, &job, 1);
	pass_ms(&w.p, DAY_MS / 1000);
	for (int side = 0; side < 2; side++)
		assert_true(srdma_relay_timer(w.p.side[side].relay) ==
			    SRDMA_NEVER);
	pair_close(&w.p);
}

/* A full wire is no loss: the timeout starts when a packet leaves. */
static int full;
static int is_full(void *ctx, int side)
{
	(void)ctx;
	return full && side == 0;
}

static void test_full_wire_is_no_loss(void **state)
{
	const struct job jobs[] = { { SRDMA_DESC_WRITE, 20000 },
				    { SRDMA_DESC_READ, 20000 } };
	struct world w;

	(void)state;
	defaults(&w);
	w.p.wire.full = is_full;
	open_world(&w);
	for (uint32_t i = 0; i < 2; i++)
		post_job(&w.p, 0, i, &jobs[i]);
	full = 1;
	pass_ms(&w.p, 3000);
	assert_int_equal(timeouts(&w), 0);
	full = 0;
	for (uint32_t i = 0; i < 2; i++)
		await_end(&w.p, 0, i + 1, SRDMA_REASON_NONE);
	assert_int_equal(resent(&w), 0);
	pair_close(&w.p);
}

/*
 * Without any response few packets are sent, and the request fails at its
 * deadline.
 */
static void test_no_response_ends_at_deadline(void **state)
{
	struct world w;
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = 3,
				.length = 20000 };
	uint64_t before;

	(void)state;
	defaults(&w);
	w.p.timeout_ms = 10000;
	open_world(&w);
	d.local_addr = (uintptr_t)w.p.side[0].memory;
	d.remote_addr = (uintptr_t)w.p.side[1].memory;
	w.loss.one_in = 1;
	before = w.p.now;
	pair_post(&w.p, 0, d, NULL);
	await_end(&w.p, 0, 3, SRDMA_REASON_DEADLINE);
	assert_in_range((w.p.now - before) / 1000000, 10000, 10010);
	assert_in_range(resent(&w), 10, 25);
	pair_close(&w.p);
}

/* --- packet numbers far ahead of the last acked one ----------------------- */

static struct srdma_qp *qp_of(struct world *w, int side)
{
	return srdma_relay_qp(w->p.side[side].relay, w->p.side[side].qp[0].qpn);
}

/*
 * An end that only sends acks asks for an ack when its numbers are far ahead.
 */
static void test_far_ahead_asks_for_ack(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 20000 };
	struct world w;

	(void)state;
	defaults(&w);
	open_world(&w);
	for (int side = 0; side < 2; side++) {
		struct srdma_qp *qp = qp_of(&w, side);
		uint64_t sent = srdma_session_next_pn(srdma_qp_session(qp));

		srdma_qp_path(qp)->acked_pn = sent - (1 << 20) - 1;
		run_jobs(&w, 0, &job, 1);
		pair_settle(&w.p);
		assert_true(srdma_qp_path(qp)->acked_pn >= sent);
		assert_in_range(srdma_session_next_pn(srdma_qp_session(qp)) -
					sent,
				0, 12);
	}
	assert_int_equal(resent(&w), 0);
	pair_close(&w.p);
}

/*
 * If the packet number is too far ahead, one packet per RTO is sent until an
 * ack arrives.
 */
static void test_too_far_ahead_sends_one_packet_per_rto(void **state)
{
	const struct job job = { SRDMA_DESC_WRITE, 30000 };
	struct world w;
	struct srdma_qp *qp;
	uint64_t sent;

	(void)state;
	defaults(&w);
	open_world(&w);
	qp = qp_of(&w, 0);
	sent = srdma_session_next_pn(srdma_qp_session(qp));
	srdma_qp_path(qp)->acked_pn = sent - (1 << 22) - 1;
	w.loss = (struct loss){ .side = 1,
				.opcode = SRDMA_OP_ACKNOWLEDGE,
				.kind = SRDMA_ACK_ACK,
				.count = 1000 };
	post_job(&w.p, 0, 0, &job);
	pair_run(&w.p, 100);
	assert_int_equal(srdma_session_next_pn(srdma_qp_session(qp)) - sent, 1);
	pass_ms(&w.p, 5000);
	assert_in_range(srdma_session_next_pn(srdma_qp_session(qp)) - sent, 8,
			30);
	w.loss.count = 0;
	await_end(&w.p, 0, 1, SRDMA_REASON_NONE);
	check_job(&w.p, 0, 0, &job);
	assert_true(srdma_qp_path(qp)->acked_pn > sent);
	pair_close(&w.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_lost_packet_is_resent),
		cmocka_unit_test(test_repeated_loss_doubles_timeout),
		cmocka_unit_test(test_lost_tail_is_resent_after_one_timeout),
		cmocka_unit_test(test_lost_open_is_resent),
		cmocka_unit_test(test_loss_before_first_rtt_sample),
		cmocka_unit_test(test_spurious_timeouts_on_long_wire_stop),
		cmocka_unit_test(test_lost_ping_keeps_rtt_estimate),
		cmocka_unit_test(test_five_lost_pings_keep_qp),
		cmocka_unit_test(test_lost_credit_is_probed),
		cmocka_unit_test(test_probes_for_recv_back_off),
		cmocka_unit_test(test_unanswered_read_backs_off),
		cmocka_unit_test(test_lost_nak_is_repeated),
		cmocka_unit_test(test_lost_close_is_repeated),
		cmocka_unit_test(test_random_losses),
		cmocka_unit_test(test_random_losses_with_small_limits),
		cmocka_unit_test(test_late_packets_are_not_resent),
		cmocka_unit_test(test_no_loss_no_resend),
		cmocka_unit_test(test_idle_qp_sets_no_timer),
		cmocka_unit_test(test_full_wire_is_no_loss),
		cmocka_unit_test(test_no_response_ends_at_deadline),
		cmocka_unit_test(test_far_ahead_asks_for_ack),
		cmocka_unit_test(test_too_far_ahead_sends_one_packet_per_rto),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
