/*
 * Many QPs: their limit, tables that are allocated only while a QP is active,
 * and the behaviour without memory (docs/local-interface.md 5).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { MANY = 3000, LIMIT = 50, REST_MS = 25000 };

static struct pair p;

static void open_pair(uint32_t depth)
{
	pair_defaults(&p);
	p.depth = depth;
	p.ring = SRDMA_MAX_RING;
}

static struct srdma_table_memory *tables(int side)
{
	return &p.side[side].relay->env.tables;
}

/* --- the limit ------------------------------------------------------------ */

static int init(uint32_t *qpn)
{
	const struct srdma_qp_params params = { .sq = 1, .rq = 1 };
	struct srdma_qp_info info;
	int err = srdma_relay_qp_init(p.side[0].relay, p.side[0].leg, &params,
				      &info);

	*qpn = info.qpn;
	return err;
}

static void test_qp_limit(void **state)
{
	struct srdma_relay *r;
	uint32_t qpn[LIMIT], more;

	(void)state;
	open_pair(1);
	p.qps = LIMIT;
	pair_open(&p);
	r = p.side[0].relay;
	for (int i = 0; i < LIMIT; i++)
		assert_int_equal(init(&qpn[i]), 0);
	assert_int_equal(init(&more), -EDQUOT);
	assert_non_null(strstr(srdma_relay_why(r), "limit of 50 QPs"));
	/* Each QP that is destroyed makes room for one. */
	for (int i = 0; i < LIMIT; i++) {
		assert_int_equal(
			srdma_relay_qp_destroy(r, p.side[0].leg, qpn[i]), 0);
		assert_int_equal(init(&qpn[i]), 0);
		assert_int_equal(init(&more), -EDQUOT);
	}
	pair_close(&p);
}

static void test_too_large_qp_limit_is_refused(void **state)
{
	struct srdma_relay_params params = {
		.mtu = 4096, .window = 1, .reads = 1, .qps = SRDMA_MAX_QPS + 1
	};
	struct srdma_port *other;
	struct srdma_relay *r;

	(void)state;
	open_pair(1);
	assert_int_equal(
		srdma_port_mem_wire_pair(&params.wire, &other, &p.wire), 0);
	assert_int_equal(srdma_port_mem_host(&params.host, &p.host[0]), 0);
	assert_int_equal(srdma_relay_create(&r, &params), -EINVAL);
	other->ops->destroy(other);
}

/* --- thousands ------------------------------------------------------------ */

static struct srdma_qp_info many[2][MANY];

static void write_one(int i, uint64_t id)
{
	pair_post(&p, 0,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_WRITE,
			  .id = id,
			  .qpn = many[0][i].qpn,
			  .length = 64,
			  .local_addr = (uintptr_t)p.side[0].memory,
			  .remote_addr = (uintptr_t)p.side[1].memory,
		  },
		  NULL);
}

/* Checks that open idle QPs have no tables. */
static void check_quiet(void)
{
	for (int s = 0; s < 2; s++) {
		assert_int_equal(tables(s)->used, 0);
		assert_int_equal(p.side[s].relay->qp_count, MANY);
	}
}

static void open_many(void)
{
	for (int i = 0; i < MANY; i++) {
		p.life = (uint8_t)i;
		pair_connect(&p, 0);
		many[0][i] = p.side[0].qp[0];
		many[1][i] = p.side[1].qp[0];
	}
}

/* A permutation of the QPs. */
static int nth(int i)
{
	return i * 1009 % MANY;
}

static void close_many(void)
{
	for (int i = 0; i < MANY; i++) {
		p.side[0].qp[0] = many[0][nth(i)];
		p.side[1].qp[0] = many[1][nth(i)];
		pair_destroy_qp(&p, 0);
	}
}

/* RFC 5042 R6.4.2-1 */
static void test_idle_qps_free_their_tables(void **state)
{
	(void)state;
	open_pair(2);
	pair_open(&p);
	open_many();
	check_quiet();
	for (int i = 0; i < MANY; i++) {
		write_one(nth(i), (uint64_t)i);
		if (i % LIMIT < LIMIT - 1)
			continue;
		pair_settle(&p);
		for (int n = i + 1 - LIMIT; n <= i; n++)
			pair_expect(&p, 0, (uint64_t)n, SRDMA_REASON_NONE);
	}
	assert_true(tables(0)->used >= MANY * sizeof(struct srdma_flight));
	pair_wait_ms(&p, REST_MS);
	pair_wait_ms(&p, REST_MS);
	check_quiet();
	/* the QPs still work */
	write_one(7, 7);
	pair_settle(&p);
	pair_expect(&p, 0, 7, SRDMA_REASON_NONE);
	close_many();
	for (int s = 0; s < 2; s++) {
		assert_int_equal(p.side[s].relay->qp_count, 0);
		assert_int_equal(tables(s)->used, 0);
	}
	pair_close(&p);
}

/* PINGs of an idle QP that waits for messages do not count as activity. */
static void test_pings_do_not_keep_tables(void **state)
{
	const struct srdma_stats *count;
	uint64_t sealed;

	(void)state;
	open_pair(2);
	pair_open(&p);
	pair_connect(&p, 0);
	many[0][0] = p.side[0].qp[0];
	count = srdma_relay_stats(p.side[0].relay);
	pair_post(
		&p, 1,
		(struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
				     .id = 1,
				     .local_addr = (uintptr_t)p.side[1].memory,
				     .length = 64 },
		NULL);
	write_one(0, 7);
	pair_settle(&p);
	pair_expect(&p, 0, 7, SRDMA_REASON_NONE);
	assert_true(tables(0)->used > 0);
	sealed = count->packets_sealed;
	for (int s = 0; s < 25; s++)
		pair_wait_ms(&p, 1000);
	assert_true(count->packets_sealed > sealed + 3);
	assert_int_equal(tables(0)->used, 0);
	assert_int_equal(tables(1)->used, 0);
	pair_close(&p);
}

/* --- no memory ------------------------------------------------------------ */

struct row {
	uint8_t opcode;
	int side; /* side whose tables get no memory */
	uint32_t length;
	int wide; /* 1: inline data */
};

static void post(const struct row *row, uint64_t id)
{
	static const uint8_t payload[8];

	pair_post(&p, 0,
		  (struct srdma_desc){
			  .opcode = row->opcode,
			  .id = id,
			  .length = row->length,
			  .swap_add = 1,
			  .local_addr =
				  row->wide ? 0 : (uintptr_t)p.side[0].memory,
			  .remote_addr = (uintptr_t)p.side[1].memory,
		  },
		  row->wide ? payload : NULL);
}

/*
 * A request that gets no table memory waits. It continues when there is memory,
 * or fails at its deadline.
 */
static void check_waits(const struct row *row)
{
	open_pair(4);
	p.timeout_ms = 1000;
	pair_open(&p);
	pair_connect(&p, 0);
	tables(row->side)->most = 1;
	post(row, 1);
	pair_settle(&p);
	pair_expect_none(&p, 0);
	tables(row->side)->most = 0;
	for (int i = 0; i < 20; i++)
		pair_wait_ms(&p, 10);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);

	open_pair(4);
	p.timeout_ms = 1000;
	p.table_memory = 1;
	pair_open(&p);
	tables(!row->side)->most = 0;
	pair_connect(&p, 0);
	post(row, 1);
	for (int i = 0; i < 120; i++)
		pair_wait_ms(&p, 10);
	pair_expect(&p, 0, 1, SRDMA_REASON_DEADLINE);
	assert_int_equal(tables(row->side)->used, 0);
	pair_close(&p);
}

static void test_request_waits_for_table_memory(void **state)
{
	static const struct row rows[] = {
		{ SRDMA_DESC_WRITE, 0, 64, 0 },
		{ SRDMA_DESC_READ, 0, 64, 0 },
		{ SRDMA_DESC_READ, 1, 64, 0 },
		{ SRDMA_DESC_FETCH_ADD, 1, 8, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		check_waits(&rows[i]);
}

static void test_inline_data_without_memory_fails(void **state)
{
	static const struct row row = { SRDMA_DESC_WRITE, 0, 8, 1 };
	uint32_t reason;

	(void)state;
	open_pair(4);
	p.table_memory = 3 * SRDMA_MAX_INLINE;
	pair_open(&p);
	pair_connect(&p, 0);
	post(&row, 1);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_LOCAL_DMA);
	assert_int_equal(pair_state(&p, 0, 0, &reason), SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_LOCAL_DMA);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_qp_limit),
		cmocka_unit_test(test_too_large_qp_limit_is_refused),
		cmocka_unit_test(test_idle_qps_free_their_tables),
		cmocka_unit_test(test_pings_do_not_keep_tables),
		cmocka_unit_test(test_request_waits_for_table_memory),
		cmocka_unit_test(test_inline_data_without_memory_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
