/* Requests and receives whose local memory is an SGL (docs/local-interface.md
 * 2.1). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum {
	HALF = PAIR_MEMORY / 2,
	GAP = 3, /* bytes between the parts of a list */
	MOST = 200000,
	REST_MS = 25000,
};

struct list {
	struct srdma_sge sge[SRDMA_MAX_SGES];
	uint8_t n;
	uint32_t length;
};

static struct pair p;
static uint32_t other[2]; /* a second region of each side's memory */

static void open_pair(void)
{
	pair_open(&p);
	pair_connect(&p, 0);
	for (int s = 0; s < 2; s++)
		other[s] = pair_register(
			&p, s,
			(struct pair_region){ 0, PAIR_MEMORY, 15, 0, 0 });
}

static void fill(uint8_t *m, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		m[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

/* A list of n parts for len bytes in the first half of a side's memory. Its
 * parts are apart, in two regions by turns. Every fifth part is empty, and has a
 * key of no region. */
static void cut(struct list *l, int side, uint32_t n, uint32_t len)
{
	uint32_t at = 0, left = len;

	*l = (struct list){ .n = (uint8_t)n, .length = len };
	for (uint32_t i = 0; i < n; i++) {
		const int empty = i % 5 == 3 && i + 1 < n;
		const uint32_t part = empty	   ? 0
				      : i + 1 == n ? left
						   : left / 3 + (left > 2);

		l->sge[i] = (struct srdma_sge){
			.addr = (uintptr_t)p.side[side].memory + at,
			.length = part,
			.lkey = empty	? 0xdead
				: i % 2 ? other[side]
					: 0,
		};
		at += part + GAP;
		left -= part;
	}
}

/* Copies the bytes of the list to or from plain memory. */
static void flatten(const struct list *l, uint8_t *plain, int into)
{
	for (unsigned i = 0; i < l->n; i++) {
		uint8_t *at = (uint8_t *)(uintptr_t)l->sge[i].addr;

		memcpy(into ? at : plain, into ? plain : at, l->sge[i].length);
		plain += l->sge[i].length;
	}
}

/* The bytes between the parts have their old value. */
static void assert_gaps(const struct list *l, uint8_t value)
{
	for (unsigned i = 0; i < l->n; i++) {
		const uint8_t *at = (const uint8_t *)(uintptr_t)l->sge[i].addr +
				    l->sge[i].length;

		for (int k = 0; k < GAP; k++)
			assert_int_equal(at[k], value);
	}
}

static void post(int side, uint8_t opcode, uint64_t id, const struct list *l)
{
	struct srdma_desc d = {
		.opcode = opcode,
		.id = id,
		.sges = l->n,
		.length = l->length,
		.remote_addr = (uintptr_t)p.side[!side].memory + HALF,
	};

	pair_post(&p, side, d, l->sge);
}

static void write_from(uint32_t n, uint32_t len, const uint8_t *text)
{
	uint8_t *target = p.side[1].memory + HALF;
	struct list l;

	cut(&l, 0, n, len);
	flatten(&l, (uint8_t *)(uintptr_t)text, 1);
	memset(target, 0xee, len + 1);
	post(0, SRDMA_DESC_WRITE, 1, &l);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	assert_memory_equal(target, text, len);
	assert_int_equal(target[len], 0xee);
}

static void read_into(uint32_t n, uint32_t len, const uint8_t *text)
{
	static uint8_t got[MOST];
	struct list l;

	cut(&l, 0, n, len);
	memset(p.side[0].memory, 0xdd, HALF);
	memcpy(p.side[1].memory + HALF, text, len);
	post(0, SRDMA_DESC_READ, 2, &l);
	pair_settle(&p);
	pair_expect(&p, 0, 2, SRDMA_REASON_NONE);
	flatten(&l, got, 0);
	assert_memory_equal(got, text, len);
	assert_gaps(&l, 0xdd);
}

/* From n parts to 29 - n parts. The receive is longer than the message. */
static void send_to(uint32_t n, uint32_t len, const uint8_t *text)
{
	static uint8_t got[MOST + 10];
	struct list from, to;
	struct srdma_record r;

	cut(&from, 0, n, len);
	cut(&to, 1, SRDMA_MAX_SGES + 1 - n, len + 10);
	flatten(&from, (uint8_t *)(uintptr_t)text, 1);
	memset(p.side[1].memory, 0xdd, HALF);
	post(1, SRDMA_DESC_RECV, 7, &to);
	post(0, SRDMA_DESC_SEND, 3, &from);
	pair_settle(&p);
	pair_expect(&p, 0, 3, SRDMA_REASON_NONE);
	assert_int_equal(pair_record(&p, 1, &r), 1);
	assert_int_equal(r.id, 7);
	assert_int_equal(r.status, SRDMA_WC_SUCCESS);
	assert_int_equal(r.byte_len, len);
	flatten(&to, got, 0);
	assert_memory_equal(got, text, len);
	assert_gaps(&to, 0xdd);
	for (int i = 0; i < 10; i++)
		assert_int_equal(got[len + (uint32_t)i], 0xdd);
}

static void all_sizes(void)
{
	static const uint32_t sizes[] = { 0,	1,    27,   64,	   4095,  4096,
					  4097, 8192, 9999, 65536, 199999 };
	static uint8_t text[MOST];

	open_pair();
	fill(text, MOST, 5);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (uint32_t n = 1; n <= SRDMA_MAX_SGES; n += 3) {
			write_from(n, sizes[i], text);
			read_into(n, sizes[i], text);
			send_to(n, sizes[i], text);
		}
	pair_expect_none(&p, 0);
	pair_expect_none(&p, 1);
	pair_close(&p);
}

static void test_gather_and_scatter(void **state)
{
	(void)state;
	pair_defaults(&p);
	all_sizes();
}

static void test_slow_dma(void **state)
{
	(void)state;
	pair_defaults(&p);
	p.host[0].dma_polls = 2;
	p.host[1].dma_polls = 3;
	all_sizes();
}

/* A port that refuses two of three DMAs at first. */
static int busy(void *ctx, const struct srdma_dma *dma, int writes)
{
	unsigned *calls = ctx;

	(void)dma;
	(void)writes;
	return (*calls)++ % 3 ? -EAGAIN : 0;
}

static void test_full_port(void **state)
{
	unsigned calls[2] = { 0 };

	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		pair_defaults(&p);
		for (int s = 0; s < 2; s++) {
			p.host[s].ctx = &calls[s];
			p.host[s].dma = busy;
			p.host[s].dma_polls = (uint32_t)slow;
		}
		all_sizes();
	}
}

/* --- packets that are lost --------------------------------------------------- */

static enum srdma_mem_fate lose(void *ctx, struct srdma_mem_datagram *d)
{
	uint32_t *n = ctx;

	(void)d;
	return ++*n % 7 ? SRDMA_MEM_PASS : SRDMA_MEM_DROP;
}

/* Settles again and again until all packets were repeated. */
static void settle_losses(void)
{
	for (int i = 0; i < 200; i++)
		pair_wait_ms(&p, 5);
}

static void test_lost_packets_are_gathered_again(void **state)
{
	static uint8_t text[MOST];
	struct list from, to;
	uint32_t n = 0;

	(void)state;
	pair_defaults(&p);
	open_pair();
	p.wire.ctx = &n;
	p.wire.fate = lose;
	fill(text, MOST, 9);
	cut(&from, 0, 17, MOST);
	cut(&to, 1, 13, MOST);
	flatten(&from, text, 1);
	post(1, SRDMA_DESC_RECV, 7, &to);
	post(0, SRDMA_DESC_SEND, 1, &from);
	settle_losses();
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_expect(&p, 1, 7, SRDMA_REASON_NONE);
	memset(text, 0, MOST);
	flatten(&to, text, 0);
	memcpy(p.side[1].memory + HALF, text, MOST);
	cut(&from, 0, 28, MOST);
	post(0, SRDMA_DESC_READ, 2, &from);
	settle_losses();
	pair_expect(&p, 0, 2, SRDMA_REASON_NONE);
	flatten(&from, text, 0);
	assert_memory_equal(text, p.side[1].memory + HALF, MOST);
	fill(text, MOST, 9);
	assert_memory_equal(text, p.side[1].memory + HALF, MOST);
	assert_true(srdma_relay_stats(p.side[0].relay)->packets_resent > 0);
	pair_close(&p);
}

/* --- memory that a request may not use ---------------------------------------- */

static void expect_error(int side, uint32_t reason)
{
	uint32_t why;

	assert_int_equal(pair_state(&p, side, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, reason);
}

/* Each part of a list is checked, with the right that the opcode needs. */
static void test_every_part_is_checked(void **state)
{
	enum { PARTS = 9 };
	static const struct {
		uint8_t opcode;
		uint32_t access; /* of the region of one part; 0: none */
		uint32_t beyond; /* bytes behind the end of the region */
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0, 0 },    { SRDMA_DESC_WRITE_IMM, 0, 0 },
		{ SRDMA_DESC_READ, 0, 0 },     { SRDMA_DESC_SEND, 0, 0 },
		{ SRDMA_DESC_SEND_IMM, 0, 0 }, { SRDMA_DESC_SEND, 1, 1 },
		{ SRDMA_DESC_READ, 1, 1 },     { SRDMA_DESC_READ, 4, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (unsigned at = 0; at < PARTS; at += 2) {
			struct pair_region region = { 0, 0, rows[i].access, 0,
						      0 };
			struct list l;

			pair_defaults(&p);
			open_pair();
			cut(&l, 0, PARTS, 10000);
			region.at =
				l.sge[at].addr - (uintptr_t)p.side[0].memory;
			region.len = l.sge[at].length - rows[i].beyond;
			l.sge[at].lkey = rows[i].access
						 ? pair_register(&p, 0, region)
						 : 0xbad;
			post(0, rows[i].opcode, 1, &l);
			pair_settle(&p);
			pair_expect(&p, 0, 1, SRDMA_REASON_LOCAL_KEY);
			expect_error(0, SRDMA_REASON_LOCAL_KEY);
			pair_close(&p);
		}
	}
}

static void test_broken_sgl(void **state)
{
	struct list l;

	(void)state;
	pair_defaults(&p);
	open_pair();
	cut(&l, 0, 4, 100);
	l.length++;
	post(0, SRDMA_DESC_SEND, 1, &l);
	pair_settle(&p);
	expect_error(0, SRDMA_REASON_BAD_DESCRIPTOR);
	pair_close(&p);
}

static void test_too_long(void **state)
{
	struct list l;

	(void)state;
	pair_defaults(&p);
	open_pair();
	cut(&l, 0, 2, 100);
	l.sge[0].length = SRDMA_MAX_MESSAGE;
	l.length = l.sge[0].length + l.sge[1].length;
	post(0, SRDMA_DESC_WRITE, 1, &l);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_MESSAGE_TOO_LONG);
	pair_close(&p);
}

/* The memory of a receive is checked when a message uses it: a part that no byte
 * reaches may be wrong. */
static void test_receive_is_checked_at_its_use(void **state)
{
	struct list from, to;

	(void)state;
	for (unsigned bad = 0; bad < 4; bad++) {
		pair_defaults(&p);
		open_pair();
		cut(&from, 0, 2, 100);
		to = (struct list){ .n = 4, .length = 200 };
		for (unsigned i = 0; i < 4; i++)
			to.sge[i] = (struct srdma_sge){
				(uintptr_t)p.side[1].memory + i * 50, 50,
				i == bad ? 0xbad : 0
			};
		post(1, SRDMA_DESC_RECV, 7, &to);
		post(0, SRDMA_DESC_SEND, 1, &from);
		pair_settle(&p);
		if (bad < 2) {
			pair_expect(&p, 0, 1, SRDMA_REASON_TARGET_DMA);
			pair_expect(&p, 1, 7, SRDMA_REASON_LOCAL_KEY);
			expect_error(1, SRDMA_REASON_LOCAL_KEY);
		} else {
			pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
			pair_expect(&p, 1, 7, SRDMA_REASON_NONE);
		}
		pair_close(&p);
	}
}

enum { PACKET = 1024 };

/* A message of three packets comes, each of which has an SGE of the receive. */
static void open_three(uint32_t polls, unsigned bad)
{
	struct list from, to = { .n = 3, .length = 3 * PACKET };

	pair_defaults(&p);
	p.mtu = PACKET;
	p.depth = 1;
	p.host[1].dma_polls = polls;
	open_pair();
	for (unsigned i = 0; i < 3; i++)
		to.sge[i] = (struct srdma_sge){ (uintptr_t)p.side[1].memory +
							(size_t)i * PACKET,
						PACKET, i == bad ? 0xbad : 0 };
	post(1, SRDMA_DESC_RECV, 7, &to);
	cut(&from, 0, 3, 3 * PACKET);
	post(0, SRDMA_DESC_SEND, 1, &from);
}

static void expect_failed_receive(void)
{
	pair_expect(&p, 0, 1, SRDMA_REASON_TARGET_DMA);
	pair_expect(&p, 1, 7, SRDMA_REASON_LOCAL_KEY);
	expect_error(1, SRDMA_REASON_LOCAL_KEY);
}

/* DMA of later packets is under way when that of an earlier one fails. */
static void test_later_packets_of_a_failed_receive(void **state)
{
	(void)state;
	for (uint32_t polls = 0; polls < 6; polls++)
		for (unsigned bad = 0; bad < 3; bad++) {
			open_three(polls, bad);
			pair_settle(&p);
			expect_failed_receive();
			pair_close(&p);
		}
}

/* The receive keeps its place while DMA of its message is under way: another one
 * that a host posts too early does not take it. */
static void test_place_of_a_failed_receive(void **state)
{
	struct list early = { .n = 28, .length = 28 };

	(void)state;
	for (unsigned i = 0; i < 28; i++)
		early.sge[i] = (struct srdma_sge){ 1, 1, 0xbad };
	for (int turns = 1; turns < 12; turns++) {
		open_three(8, 0);
		pair_run(&p, turns);
		post(1, SRDMA_DESC_RECV, 8, &early);
		pair_settle(&p);
		assert_int_equal(srdma_qp_dmas(srdma_relay_qp(
					 p.side[1].relay, p.side[1].qp[0].qpn)),
				 0);
		pair_close(&p);
	}
}

static void test_receive_too_short(void **state)
{
	struct list from, to;

	(void)state;
	pair_defaults(&p);
	open_pair();
	cut(&from, 0, 3, 5001);
	cut(&to, 1, 6, 5000);
	post(1, SRDMA_DESC_RECV, 7, &to);
	post(0, SRDMA_DESC_SEND, 1, &from);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_RECV_TOO_SHORT);
	pair_expect(&p, 1, 7, SRDMA_REASON_RECV_TOO_SHORT);
	pair_close(&p);
}

/* --- DMA that fails ----------------------------------------------------------- */

struct failing {
	int at; /* number of the DMA that fails */
};

static int fail_one(void *ctx, const struct srdma_dma *dma, int writes)
{
	struct failing *f = ctx;

	(void)dma;
	(void)writes;
	return f->at-- ? 0 : -EIO;
}

/* The DMA of one part fails, at once or later, while others are under way. */
static void test_failed_dma(void **state)
{
	static const uint8_t opcodes[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };
	struct failing f;
	struct list l;

	(void)state;
	for (uint32_t polls = 0; polls < 3; polls++)
		for (int i = 0; i < 12; i++) {
			pair_defaults(&p);
			p.host[0].dma_polls = polls;
			open_pair();
			f.at = i / 2;
			p.host[0].ctx = &f;
			p.host[0].dma = fail_one;
			cut(&l, 0, 8, 4000);
			post(0, opcodes[i % 2], 1, &l);
			pair_settle(&p);
			pair_expect(&p, 0, 1, SRDMA_REASON_LOCAL_DMA);
			expect_error(0, SRDMA_REASON_LOCAL_DMA);
			assert_int_equal(
				srdma_qp_dmas(srdma_relay_qp(
					p.side[0].relay, p.side[0].qp[0].qpn)),
				0);
			pair_close(&p);
		}
}

/* DEREG_MR waits for the DMA of the part that names the region, and fails the
 * parts behind. */
static void test_dereg_of_one_part(void **state)
{
	struct side *s = &p.side[0];
	struct list l;
	int turns = 0;

	(void)state;
	pair_defaults(&p);
	p.host[0].dma_polls = 5;
	open_pair();
	cut(&l, 0, 28, HALF / 2);
	l.sge[0].lkey = other[0];
	post(0, SRDMA_DESC_WRITE, 1, &l);
	pair_run(&p, 2);
	assert_int_equal(srdma_relay_mr_dereg(s->relay, s->leg, other[0]),
			 -EINPROGRESS);
	for (; srdma_relay_mr_busy(s->relay, s->leg, other[0]); turns++)
		pair_run(&p, 1);
	assert_in_range(turns, 1, 10);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_LOCAL_KEY);
	pair_close(&p);
}

/* A QP may be destroyed while parts of a list are under way. */
static void test_end_during_dma(void **state)
{
	struct list l, to;

	(void)state;
	for (int turns = 1; turns < 8; turns++) {
		pair_defaults(&p);
		p.host[0].dma_polls = p.host[1].dma_polls = 4;
		open_pair();
		cut(&l, 0, 28, 30000);
		cut(&to, 1, 28, 30000);
		post(1, SRDMA_DESC_RECV, 7, &to);
		post(0, SRDMA_DESC_SEND, 1, &l);
		post(0, SRDMA_DESC_READ, 2, &l);
		pair_run(&p, turns);
		pair_destroy_qp(&p, 0);
		pair_close(&p);
	}
}

/* --- memory for lists ----------------------------------------------------------- */

static void test_no_memory_for_the_list(void **state)
{
	struct list l;

	(void)state;
	for (int side = 0; side < 2; side++) {
		pair_defaults(&p);
		p.depth = 4;
		p.table_memory = 4 * SRDMA_MAX_SGES * SRDMA_SGE_LEN - 1;
		open_pair();
		cut(&l, side, 2, 100);
		post(side, side ? SRDMA_DESC_RECV : SRDMA_DESC_SEND, 1, &l);
		pair_settle(&p);
		pair_expect(&p, side, 1, SRDMA_REASON_LOCAL_DMA);
		expect_error(side, SRDMA_REASON_LOCAL_DMA);
		pair_close(&p);
	}
}

static uint64_t table_bytes(int side)
{
	return p.side[side].relay->env.tables.used;
}

/* A list is kept as long as its receive is posted, however long that is. */
static void test_lists_at_rest(void **state)
{
	static uint8_t text[5000], got[5000];
	struct list from, to;

	(void)state;
	pair_defaults(&p);
	open_pair();
	fill(text, sizeof(text), 3);
	for (int i = 0; i < 2; i++) {
		cut(&from, 0, 3, sizeof(text));
		cut(&to, 1, 5, sizeof(text));
		flatten(&from, text, 1);
		post(1, SRDMA_DESC_RECV, 7, &to);
		pair_wait_ms(&p, REST_MS);
		assert_true(table_bytes(1) > 0);
		post(0, SRDMA_DESC_SEND, 1, &from);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		pair_expect(&p, 1, 7, SRDMA_REASON_NONE);
		flatten(&to, got, 0);
		assert_memory_equal(got, text, sizeof(text));
		assert_true(table_bytes(0) > 0);
		pair_wait_ms(&p, REST_MS);
		pair_wait_ms(&p, REST_MS);
		assert_int_equal(table_bytes(0), 0);
		assert_int_equal(table_bytes(1), 0);
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_later_packets_of_a_failed_receive),
		cmocka_unit_test(test_place_of_a_failed_receive),
		cmocka_unit_test(test_gather_and_scatter),
		cmocka_unit_test(test_slow_dma),
		cmocka_unit_test(test_full_port),
		cmocka_unit_test(test_lost_packets_are_gathered_again),
		cmocka_unit_test(test_every_part_is_checked),
		cmocka_unit_test(test_broken_sgl),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_receive_is_checked_at_its_use),
		cmocka_unit_test(test_receive_too_short),
		cmocka_unit_test(test_failed_dma),
		cmocka_unit_test(test_dereg_of_one_part),
		cmocka_unit_test(test_end_during_dma),
		cmocka_unit_test(test_no_memory_for_the_list),
		cmocka_unit_test(test_lists_at_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
