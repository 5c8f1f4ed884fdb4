/*
 * Atomics between two relays (docs/protocol.md 5): each is executed once and
 * answered.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/arriving.h"

enum { READS = 4, COUNTER = 64, RESULT = 4096, SPAN = SRDMA_ATOMIC_LEN };

static uint64_t value_at(const struct pair *p, int side, uint64_t at)
{
	uint64_t value;

	memcpy(&value, p->side[side].memory + at, sizeof(value));
	return value;
}

static void set(struct pair *p, int side, uint64_t at, uint64_t value)
{
	memcpy(p->side[side].memory + at, &value, sizeof(value));
}

/*
 * An atomic of side 0 on the counter of side 1; its result goes to result slot
 * id.
 */
static struct srdma_desc atomic(const struct pair *p, uint8_t op, uint64_t id,
				uint64_t swap_add, uint64_t compare)
{
	return (struct srdma_desc){
		.opcode = op,
		.id = id,
		.length = SPAN,
		.local_addr = (uintptr_t)p->side[0].memory + RESULT + id * SPAN,
		.remote_addr = (uintptr_t)p->side[1].memory + COUNTER,
		.swap_add = swap_add,
		.compare = compare,
	};
}

static void add(struct pair *p, uint64_t id, uint64_t n)
{
	pair_post(p, 0, atomic(p, SRDMA_DESC_FETCH_ADD, id, n, 0), NULL);
}

static uint64_t result_of(const struct pair *p, uint64_t id)
{
	return value_at(p, 0, RESULT + id * SPAN);
}

static void expect_result(struct pair *p, uint64_t id, uint64_t original)
{
	struct srdma_record r;

	assert_int_equal(pair_record(p, 0, &r), 1);
	assert_int_equal(r.id, id);
	assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
	assert_int_equal(r.byte_len, SPAN);
	assert_true(r.opcode == SRDMA_WC_FETCH_ADD ||
		    r.opcode == SRDMA_WC_COMP_SWAP);
	assert_int_equal(result_of(p, id), original);
}

static void open_pair(struct pair *p)
{
	pair_defaults(p);
	p->reads = READS;
	pair_open(p);
	pair_connect(p, 0);
}

/* --- effect --------------------------------------------------------------- */

static void test_atomic_changes_value_and_returns_original(void **state)
{
	static const struct {
		uint8_t op;
		uint64_t swap_add, compare, before, after;
	} rows[] = {
		{ SRDMA_DESC_FETCH_ADD, 1, 0, 41, 42 },
		{ SRDMA_DESC_FETCH_ADD, 1, 0, UINT64_MAX, 0 },
		{ SRDMA_DESC_FETCH_ADD, UINT64_C(1) << 63, 0, 5,
		  (UINT64_C(1) << 63) + 5 },
		{ SRDMA_DESC_COMPARE_SWAP, 0x0102030405060708, 9, 9,
		  0x0102030405060708 },
		{ SRDMA_DESC_COMPARE_SWAP, 7, 8, 9, 9 },
	};
	struct srdma_record r;
	struct pair p;

	(void)state;
	open_pair(&p);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		set(&p, 1, COUNTER, rows[i].before);
		pair_post(&p, 0,
			  atomic(&p, rows[i].op, i, rows[i].swap_add,
				 rows[i].compare),
			  NULL);
		pair_settle(&p);
		assert_int_equal(value_at(&p, 1, COUNTER), rows[i].after);
		assert_int_equal(result_of(&p, i), rows[i].before);
		assert_int_equal(pair_record(&p, 0, &r), 1);
		assert_int_equal(r.id, i);
		assert_int_equal(r.vendor_err, 0);
		assert_int_equal(r.byte_len, SPAN);
		assert_int_equal(r.opcode, rows[i].op == SRDMA_DESC_FETCH_ADD
						   ? SRDMA_WC_FETCH_ADD
						   : SRDMA_WC_COMP_SWAP);
	}
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->atomics_executed,
			 sizeof(rows) / sizeof(*rows));
	pair_close(&p);
}

/* Requests of all kinds take effect in order, however slow DMA is. */
static void test_atomics_take_effect_in_order(void **state)
{
	const uint64_t ten = 10;
	struct srdma_desc write, read;
	struct pair p;

	(void)state;
	for (uint32_t polls = 0; polls < 4; polls++) {
		open_pair(&p);
		p.host[0].dma_polls = p.host[1].dma_polls = polls;
		write = atomic(&p, SRDMA_DESC_WRITE, 0, 0, 0);
		read = atomic(&p, SRDMA_DESC_READ, 3, 0, 0);
		pair_post(&p, 0, write, &ten);
		add(&p, 1, 5);
		pair_post(&p, 0, atomic(&p, SRDMA_DESC_COMPARE_SWAP, 2, 99, 15),
			  NULL);
		pair_post(&p, 0, read, NULL);
		add(&p, 4, 1);
		pair_settle(&p);
		pair_expect(&p, 0, 0, SRDMA_REASON_NONE);
		expect_result(&p, 1, 10);
		expect_result(&p, 2, 15);
		pair_expect(&p, 0, 3, SRDMA_REASON_NONE);
		assert_true(result_of(&p, 3) == 99 || result_of(&p, 3) == 100);
		expect_result(&p, 4, 99);
		assert_int_equal(value_at(&p, 1, COUNTER), 100);
		pair_close(&p);
	}
}

/*
 * With proofs: an atomic needs the ATOMIC right and one node that covers all 8
 * bytes.
 */
static void test_atomic_needs_right_and_one_node(void **state)
{
	enum { BLOCK = 64, ODD = 4 };
	static const struct {
		uint8_t rights;
		uint64_t at; /* offset in the region */
		uint32_t reason;
	} rows[] = {
		{ SRDMA_MEMKEY_ATOMIC, 68, SRDMA_REASON_NONE },
		{ SRDMA_MEMKEY_ALL, 68, SRDMA_REASON_NONE },
		{ SRDMA_MEMKEY_READ | SRDMA_MEMKEY_WRITE, 68,
		  SRDMA_REASON_BAD_CAPABILITY },
		/* the last 4 bytes of a node and the first 4 of the next */
		{ SRDMA_MEMKEY_ALL, 2 * BLOCK - ODD,
		  SRDMA_REASON_BAD_CAPABILITY },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_desc d;
		struct pair p;
		uint32_t key;

		pair_defaults(&p);
		p.mode = SRDMA_MODE_MEM;
		pair_open(&p);
		pair_connect(&p, 0);
		key = pair_register(
			&p, 1,
			(struct pair_region){ .at = ODD,
					      .len = 3 * BLOCK,
					      .access = SRDMA_ACCESS_ALL |
							SRDMA_ACCESS_PROOF,
					      .log2_block = 6,
					      .depth = 48 });
		d = atomic(&p, SRDMA_DESC_FETCH_ADD, 0, 3, 0);
		d.rkey = key;
		d.remote_addr = (uintptr_t)p.side[1].memory + ODD + rows[i].at;
		d.capability = pair_install(
			&p, 0,
			(struct srdma_cap_params){ .key = key,
						   .offset = BLOCK,
						   .length = 2 * BLOCK,
						   .rights = rows[i].rights });
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 0, rows[i].reason);
		assert_int_equal(value_at(&p, 1, ODD + rows[i].at),
				 rows[i].reason ? 0 : 3);
		assert_int_equal(
			srdma_relay_stats(p.side[1].relay)->proofs_verified,
			!rows[i].reason);
		pair_close(&p);
	}
}

/* --- refusals ------------------------------------------------------------- */

static void test_remote_refusals(void **state)
{
	enum {
		ALL = SRDMA_ACCESS_ALL,
		NO_ATOMIC = ALL & ~SRDMA_ACCESS_REMOTE_ATOMIC,
		SIZE = 100, /* bytes of the region */
	};
	static const struct {
		uint32_t access;
		uint64_t at;
		uint32_t reason;
	} rows[] = {
		{ ALL, 1, SRDMA_REASON_MISALIGNED },
		{ ALL, 4, SRDMA_REASON_MISALIGNED },
		{ ALL, SIZE + 1, SRDMA_REASON_MISALIGNED },
		{ ALL, 88, SRDMA_REASON_NONE },
		{ ALL, 96, SRDMA_REASON_OUT_OF_BOUNDS },
		{ ALL, 104, SRDMA_REASON_OUT_OF_BOUNDS },
		{ ALL, (uint64_t)-8, SRDMA_REASON_OUT_OF_BOUNDS },
		{ NO_ATOMIC, 0, SRDMA_REASON_NO_RIGHT },
		{ ALL | SRDMA_ACCESS_PROOF, 0, SRDMA_REASON_PROOF_REQUIRED },
		{ 0, 0, SRDMA_REASON_BAD_RKEY },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
		const uint32_t reason = rows[i / 2].reason;
		struct srdma_desc d;
		struct pair p;

		open_pair(&p);
		d = atomic(&p,
			   i % 2 ? SRDMA_DESC_FETCH_ADD
				 : SRDMA_DESC_COMPARE_SWAP,
			   0, 1, 0);
		d.remote_addr =
			(uintptr_t)p.side[1].memory + 8 + rows[i / 2].at;
		d.rkey = p.side[1].key + 1;
		if (rows[i / 2].access & SRDMA_ACCESS_PROOF)
			d.rkey = pair_register(
				&p, 1,
				(struct pair_region){
					8, SIZE, rows[i / 2].access, 6, 1 });
		else if (rows[i / 2].access)
			d.rkey = pair_register(
				&p, 1,
				(struct pair_region){
					8, SIZE, rows[i / 2].access, 0, 0 });
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 0, reason);
		for (uint64_t at = 0; at < SIZE + 24; at++)
			assert_int_equal(p.side[1].memory[at],
					 !reason && at == 8 + 88);
		pair_close(&p);
	}
}

static void test_local_refusals(void **state)
{
	static const struct {
		uint32_t access; /* access of the local region */
		uint32_t length;
		uint32_t reason;
	} rows[] = {
		{ SRDMA_ACCESS_LOCAL_WRITE, SPAN, SRDMA_REASON_NONE },
		{ SRDMA_ACCESS_REMOTE_READ, SPAN, SRDMA_REASON_LOCAL_KEY },
		{ SRDMA_ACCESS_LOCAL_WRITE, SPAN - 1,
		  SRDMA_REASON_BAD_DESCRIPTOR },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_desc d;
		struct pair p;

		open_pair(&p);
		add(&p, 0, 0);
		pair_settle(&p);
		expect_result(&p, 0, 0);
		d = atomic(&p, SRDMA_DESC_FETCH_ADD, 1, 1, 0);
		d.length = rows[i].length;
		d.local_key = pair_register(
			&p, 0,
			(struct pair_region){ RESULT, 64, rows[i].access, 0,
					      0 });
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		if (rows[i].reason == SRDMA_REASON_BAD_DESCRIPTOR)
			/* asynchronous event of the QP */
			pair_expect(&p, 0, 0, rows[i].reason);
		else
			pair_expect(&p, 0, 1, rows[i].reason);
		assert_int_equal(value_at(&p, 1, COUNTER), !rows[i].reason);
		pair_close(&p);
	}
}

static int fail_dma(void *ctx, const struct srdma_dma *dma, int writes)
{
	(void)dma;
	return writes ? *(int *)ctx : 0;
}

/* DMA fails at the responder or at the requester. */
static void test_dma_failure_is_reported(void **state)
{
	static int err = -EIO;

	(void)state;
	for (int side = 0; side < 2; side++) {
		struct pair p;

		open_pair(&p);
		p.host[side].ctx = &err;
		p.host[side].dma = fail_dma;
		add(&p, 0, 1);
		pair_settle(&p);
		pair_expect(&p, 0, 0,
			    side ? SRDMA_REASON_TARGET_DMA
				 : SRDMA_REASON_LOCAL_DMA);
		assert_int_equal(value_at(&p, 1, COUNTER), !side);
		pair_close(&p);
	}
}

/* --- responder ------------------------------------------------------------ */

static struct srdma_packet add_packet(const struct scene *s, uint64_t id)
{
	const struct side *target = &s->pair.side[1];

	return (struct srdma_packet){
		.opcode = SRDMA_OP_FETCH_ADD,
		.request_id = id,
		.va = (uintptr_t)target->memory + COUNTER,
		.rkey = target->key,
		.swap_add = 1,
	};
}

/*
 * A repeated atomic gets a response while its result is kept and is never
 * executed again. Side 0 posted nothing, so that it drops all responses as
 * unsolicited.
 */
static void test_repeated_atomic_is_not_executed_again(void **state)
{
	enum { FORGOTTEN = 6, ATOMICS = SRDMA_ATOMIC_RESULTS + FORGOTTEN };
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.reads = READS;
	scene_open(&s, 1);
	for (uint64_t id = 0; id < ATOMICS; id++)
		arrive(&s, add_packet(&s, id));
	assert_int_equal(s.answers, ATOMICS);
	for (uint64_t id = 0; id < ATOMICS; id++) {
		struct srdma_packet p = add_packet(&s, id);
		const unsigned answers = s.answers;

		p.swap_add = 1000;
		p.rkey++; /* not checked again */
		arrive(&s, p);
		assert_int_equal(s.answers - answers, id >= FORGOTTEN);
		EXPECT_POSITION(&s, ATOMICS, 0);
	}
	assert_int_equal(value_at(&s.pair, 1, COUNTER), ATOMICS);
	assert_int_equal(target_stats(&s)->duplicates, ATOMICS);
	assert_int_equal(target_stats(&s)->atomics_executed, ATOMICS);
	assert_int_equal(target_stats(&s)->atomics_repeated,
			 SRDMA_ATOMIC_RESULTS);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/* Records the original value in each response. */
static enum srdma_mem_fate note_original(void *ctx,
					 struct srdma_mem_datagram *d)
{
	struct {
		struct scene scene;
		uint64_t original;
		unsigned count;
	} *seen = ctx;
	struct srdma_packet p;

	if (d->side == 1 && !srdma_wire_parse(&p, d->data, d->len, 16, 4096) &&
	    p.opcode == SRDMA_OP_ATOMIC_ACKNOWLEDGE) {
		seen->original = p.original;
		seen->count++;
	}
	return SRDMA_MEM_PASS;
}

static void test_repeated_atomic_returns_first_result(void **state)
{
	struct {
		struct scene scene;
		uint64_t original;
		unsigned count;
	} seen;

	(void)state;
	scene_begin(&seen.scene);
	seen.scene.pair.reads = READS;
	seen.scene.pair.wire.ctx = &seen;
	seen.scene.pair.wire.fate = note_original;
	seen.count = 0;
	scene_open(&seen.scene, 1);
	set(&seen.scene.pair, 1, COUNTER, 70);
	for (uint64_t id = 0; id < 3; id++) {
		arrive(&seen.scene, add_packet(&seen.scene, id));
		assert_int_equal(seen.original, 70 + id);
	}
	for (uint64_t id = 3; id-- > 0;) {
		arrive(&seen.scene, add_packet(&seen.scene, id));
		assert_int_equal(seen.original, 70 + id);
	}
	assert_int_equal(seen.count, 6);
	scene_close(&seen.scene);
}

/*
 * A repeated request id that was no atomic has no result and gets no response.
 */
static void test_atomic_behind_position_is_dropped(void **state)
{
	struct srdma_packet odd;
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	arrive(&s, piece(&s, 0, 0, 1));
	arrive(&s, add_packet(&s, 0));
	assert_int_equal(s.answers, 0);
	arrive(&s, add_packet(&s, 1));
	odd = add_packet(&s, 1);
	odd.offset = 8; /* an atomic has no offset */
	arrive(&s, odd);
	assert_int_equal(value_at(&s.pair, 1, COUNTER), 1);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/* An early atomic is kept and executed in order. */
static void test_early_atomics_execute_in_order(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	for (uint64_t id = 5; id > 0; id--)
		arrive(&s, add_packet(&s, id));
	assert_int_equal(value_at(&s.pair, 1, COUNTER), 0);
	assert_int_equal(target_stats(&s)->kept, 5);
	EXPECT_GAP(&s, 0, 0, 0, SRDMA_GAP_IDS + 1);
	arrive(&s, add_packet(&s, 0));
	pair_settle(&s.pair);
	assert_int_equal(value_at(&s.pair, 1, COUNTER), 6);
	EXPECT_POSITION(&s, 6, 0);
	assert_int_equal(s.answers, 6);
	scene_close(&s);
}

/* Kept atomics that are dropped return their buffers. */
static void test_dropped_early_atomics_free_buffers(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	for (uint64_t id = 9; id > 0; id--)
		arrive(&s, add_packet(&s, id));
	assert_int_equal(target_stats(&s)->kept, 9);
	arrive(&s, message(0, 8)); /* without a posted RECV */
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NO_RECV);
	assert_int_equal(value_at(&s.pair, 1, COUNTER), 0);
	scene_close(&s);
}

/*
 * Without a free response slot an atomic and the requests behind it wait. One
 * slot is reserved for repetitions.
 */
/* RFC 5042 R6.4.3.3-1 */
static void test_no_free_slot_atomics_wait(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.reads = READS;
	scene_open(&s, 1);
	s.pair.host[1].dma_polls = 20;
	for (uint64_t id = 0; id < READS + 2; id++)
		put_on(&s, 0, add_packet(&s, id));
	pair_run(&s.pair, 4);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP), 0);
	assert_int_equal(target_stats(&s)->kept, 3);
	/* repetition of a request in progress */
	put_on(&s, 0, add_packet(&s, 0));
	pair_run(&s.pair, 90);
	assert_int_equal(s.answers, READS + 2);
	assert_int_equal(value_at(&s.pair, 1, COUNTER), READS + 2);
	assert_int_equal(target_stats(&s)->atomics_repeated, 0);
	scene_close(&s);
}

/* --- requester ------------------------------------------------------------ */

/* Counts the requests of side 0 and can drop responses. */
struct watch {
	struct pair pair;
	int blocked;	   /* 1: drop responses */
	uint64_t first;	   /* request id whose response is dropped */
	unsigned requests; /* atomics sent */
	uint64_t newest;
	unsigned writes;
};

static enum srdma_mem_fate watch(void *ctx, struct srdma_mem_datagram *d)
{
	struct watch *w = ctx;
	struct srdma_packet p;

	assert_int_equal(srdma_wire_parse(&p, d->data, d->len, 16, 4096), 0);
	if (srdma_wire_traits(p.opcode) & SRDMA_T_ATOMIC) {
		w->requests++;
		if (p.request_id > w->newest)
			w->newest = p.request_id;
	}
	w->writes += (srdma_wire_traits(p.opcode) & SRDMA_T_WRITE) != 0;
	return w->blocked && p.opcode == SRDMA_OP_ATOMIC_ACKNOWLEDGE &&
			       p.request_id == w->first
		       ? SRDMA_MEM_DROP
		       : SRDMA_MEM_PASS;
}

static void watch_open(struct watch *w, int window)
{
	memset(w, 0, sizeof(*w));
	pair_defaults(&w->pair);
	w->pair.reads = READS;
	w->pair.depth = 2 * SRDMA_ATOMIC_RESULTS;
	w->pair.ring = 4 * w->pair.depth;
	w->pair.wire.ctx = w;
	w->pair.wire.fate = watch;
	w->pair.wire.window = window;
	w->blocked = 1;
	pair_open(&w->pair);
	pair_connect(&w->pair, 0);
}

/*
 * Window (b): the requester sends no atomic whose result would evict a result
 * that it has not received.
 */
static void test_unanswered_atomic_limits_window(void **state)
{
	enum { RESULTS = SRDMA_ATOMIC_RESULTS, ATOMICS = RESULTS + 30 };

	(void)state;
	for (int window = 64; window <= 1024; window += 960) {
		struct watch w;

		watch_open(&w, window);
		for (uint64_t id = 0; id < ATOMICS; id++)
			add(&w.pair, id, 1);
		for (int ms = 0; ms < 100; ms++)
			pair_wait_ms(&w.pair, 1);
		assert_int_equal(w.newest, RESULTS - 1);
		assert_int_equal(value_at(&w.pair, 1, COUNTER), RESULTS);
		assert_true(w.requests > RESULTS); /* it was repeated */
		pair_expect_none(&w.pair, 0);
		w.blocked = 0;
		for (int ms = 0; ms < 2000; ms++)
			pair_wait_ms(&w.pair, 1);
		for (uint64_t id = 0; id < ATOMICS; id++)
			expect_result(&w.pair, id, id);
		assert_int_equal(value_at(&w.pair, 1, COUNTER), ATOMICS);
		pair_close(&w.pair);
	}
}

/* FENCE waits for the responses to all earlier requests. */
static void test_fence_waits_for_atomic_response(void **state)
{
	struct srdma_desc fenced;
	struct watch w;

	(void)state;
	watch_open(&w, 64);
	fenced = atomic(&w.pair, SRDMA_DESC_WRITE, 1, 0, 0);
	fenced.flags = SRDMA_DESC_FENCE;
	add(&w.pair, 0, 1);
	pair_post(&w.pair, 0, fenced, NULL);
	pair_settle(&w.pair);
	assert_int_equal(value_at(&w.pair, 1, COUNTER), 1);
	assert_int_equal(w.writes, 0);
	w.blocked = 0;
	pair_wait_ms(&w.pair, 200);
	pair_wait_ms(&w.pair, 200);
	assert_int_equal(w.writes, 1);
	expect_result(&w.pair, 0, 0);
	pair_expect(&w.pair, 0, 1, SRDMA_REASON_NONE);
	pair_close(&w.pair);
}

/* A response of the wrong kind, or to no request, is dropped. */
static void test_unsolicited_responses_are_dropped(void **state)
{
	struct srdma_packet answer = { .original = 77 };
	struct srdma_desc read;
	struct watch w;
	struct srdma_qp *a, *b;
	uint8_t out[SRDMA_MAX_PACKET], data[SPAN] = { 0 };
	int len;

	(void)state;
	watch_open(&w, 64);
	read = atomic(&w.pair, SRDMA_DESC_READ, 1, 0, 0);
	add(&w.pair, 0, 1);
	pair_post(&w.pair, 0, read, NULL);
	w.pair.host[1].dma_polls = 10; /* delays the response to the READ */
	pair_run(&w.pair, 4);
	a = srdma_relay_qp(w.pair.side[0].relay, w.pair.side[0].qp[0].qpn);
	b = srdma_relay_qp(w.pair.side[1].relay, w.pair.side[1].qp[0].qpn);
	for (uint64_t id = 0; id < 3; id++) {
		answer.request_id = id;
		answer.opcode = id ? SRDMA_OP_ATOMIC_ACKNOWLEDGE
				   : SRDMA_OP_READ_RESPONSE_ONLY;
		answer.payload_len = id ? 0 : SPAN;
		len = srdma_session_seal(srdma_qp_session(b), &answer, data,
					 out, sizeof(out));
		assert_true(len > 0);
		assert_int_equal(srdma_port_mem_inject(srdma_path_conn(a), out,
						       (uint32_t)len),
				 0);
		pair_run(&w.pair, 1);
		assert_int_equal(
			pair_refused(&w.pair, 0,
				     id < 2 ? SRDMA_REFUSED_UNSOLICITED
					    : SRDMA_REFUSED_REQUEST_ID),
			id < 2 ? id + 1 : 0);
	}
	w.blocked = 0;
	for (int ms = 0; ms < 500; ms++)
		pair_wait_ms(&w.pair, 1);
	expect_result(&w.pair, 0, 0);
	pair_expect(&w.pair, 0, 1, SRDMA_REASON_NONE);
	assert_int_equal(result_of(&w.pair, 1), 1);
	pair_close(&w.pair);
}

/* --- several QPs ---------------------------------------------------------- */

/* All QPs add to one counter: each original value is returned once. */
static void test_atomics_of_many_qps_are_serialized(void **state)
{
	enum { EACH = 50 };
	uint8_t seen[PAIR_QPS * EACH] = { 0 };
	struct srdma_record r;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.reads = READS;
	pair_open(&p);
	for (int i = 0; i < PAIR_QPS; i++)
		pair_connect(&p, i);
	for (uint64_t n = 0; n < EACH; n++) {
		for (uint64_t i = 0; i < PAIR_QPS; i++) {
			struct srdma_desc d = atomic(&p, SRDMA_DESC_FETCH_ADD,
						     i * EACH + n, 1, 0);

			d.qpn = p.side[0].qp[i].qpn;
			pair_post(&p, 0, d, NULL);
		}
	}
	pair_settle(&p);
	assert_int_equal(value_at(&p, 1, COUNTER), sizeof(seen));
	for (size_t i = 0; i < sizeof(seen); i++) {
		assert_int_equal(pair_record(&p, 0, &r), 1);
		assert_int_equal(r.vendor_err, 0);
		assert_true(result_of(&p, r.id) < sizeof(seen));
		assert_int_equal(seen[result_of(&p, r.id)]++, 0);
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_atomic_changes_value_and_returns_original),
		cmocka_unit_test(test_atomics_take_effect_in_order),
		cmocka_unit_test(test_atomic_needs_right_and_one_node),
		cmocka_unit_test(test_remote_refusals),
		cmocka_unit_test(test_local_refusals),
		cmocka_unit_test(test_dma_failure_is_reported),
		cmocka_unit_test(test_repeated_atomic_is_not_executed_again),
		cmocka_unit_test(test_repeated_atomic_returns_first_result),
		cmocka_unit_test(test_atomic_behind_position_is_dropped),
		cmocka_unit_test(test_early_atomics_execute_in_order),
		cmocka_unit_test(test_dropped_early_atomics_free_buffers),
		cmocka_unit_test(test_no_free_slot_atomics_wait),
		cmocka_unit_test(test_unanswered_atomic_limits_window),
		cmocka_unit_test(test_fence_waits_for_atomic_response),
		cmocka_unit_test(test_unsolicited_responses_are_dropped),
		cmocka_unit_test(test_atomics_of_many_qps_are_serialized),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
