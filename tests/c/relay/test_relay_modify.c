/* Rights and time limit of a QP: MODIFY of the control socket
 * (docs/local-interface.md 3.6). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/relay_pair.h"

enum { WRITE = 2, READ = 4, ATOMIC = 8 };

static struct pair p;

static void open_pair(void)
{
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
}

static int modify(int side, struct srdma_qp_change change)
{
	change.qpn = p.side[side].qp[0].qpn;
	return srdma_relay_qp_modify(p.side[side].relay, p.side[side].leg,
				     &change);
}

static void post(uint8_t opcode, uint32_t length)
{
	const struct srdma_desc d = {
		.opcode = opcode,
		.id = 1,
		.length = length,
		.local_addr = (uintptr_t)p.side[0].memory,
		.remote_addr = (uintptr_t)p.side[1].memory,
	};

	pair_post(&p, 0, d, NULL);
}

/* Every set of rights against every operation. */
static void test_rights(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t needs;
	} rows[] = {
		{ SRDMA_DESC_WRITE, WRITE },
		{ SRDMA_DESC_WRITE_IMM, WRITE },
		{ SRDMA_DESC_READ, READ },
		{ SRDMA_DESC_FETCH_ADD, ATOMIC },
		{ SRDMA_DESC_COMPARE_SWAP, ATOMIC },
	};
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 7 };

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (uint32_t access = 0; access < 16; access += 2) {
			open_pair();
			assert_int_equal(
				modify(1,
				       (struct srdma_qp_change){
					       .fields = SRDMA_QP_FIELD_ACCESS,
					       .access = access }),
				0);
			pair_post(&p, 1, recv, NULL);
			post(rows[i].opcode, 8);
			pair_settle(&p);
			pair_expect(&p, 0, 1,
				    access & rows[i].needs
					    ? SRDMA_REASON_NONE
					    : SRDMA_REASON_NO_RIGHT);
			pair_close(&p);
		}
}

/* A SEND, and an access to no bytes, need no right. */
static void test_what_needs_no_right(void **state)
{
	const struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 7 };

	(void)state;
	open_pair();
	assert_int_equal(modify(1,
				(struct srdma_qp_change){
					.fields = SRDMA_QP_FIELD_ACCESS }),
			 0);
	pair_post(&p, 1, recv, NULL);
	post(SRDMA_DESC_SEND, 0);
	post(SRDMA_DESC_WRITE, 0);
	post(SRDMA_DESC_READ, 0);
	pair_settle(&p);
	for (int i = 0; i < 3; i++)
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);
}

static void test_time_limit(void **state)
{
	(void)state;
	open_pair();
	assert_int_equal(modify(0,
				(struct srdma_qp_change){
					.fields = SRDMA_QP_FIELD_TIMEOUT,
					.timeout_ms = 500 }),
			 0);
	post(SRDMA_DESC_SEND, 8);
	pair_settle(&p);
	pair_wait_ms(&p, 490);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, 11);
	pair_expect(&p, 0, 1, SRDMA_REASON_NO_RECV_CREDIT);
	pair_close(&p);
}

/* Without a limit a SEND waits for a receive as long as the peer lives. */
static void test_no_time_limit(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .id = 7,
				   .length = 8 };

	(void)state;
	open_pair();
	assert_int_equal(modify(0,
				(struct srdma_qp_change){
					.fields = SRDMA_QP_FIELD_TIMEOUT,
					.timeout_ms = SRDMA_NO_TIMEOUT }),
			 0);
	post(SRDMA_DESC_SEND, 8);
	for (int i = 0; i < 1000; i++)
		pair_wait_ms(&p, 1000);
	pair_expect_none(&p, 0);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	recv.local_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 1, recv, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_expect(&p, 1, 7, SRDMA_REASON_NONE);
	pair_close(&p);
}

static void test_refusals(void **state)
{
	static const struct {
		uint32_t fields, access, timeout_ms;
		const char *why;
	} rows[] = {
		{ 0, 0, 0, "fields 0x0" },
		{ 4, 0, 0, "fields 0x4" },
		{ 1, 1, 0, "access 0x1" },
		{ 3, 16, 1, "access 0x10" },
		{ 2, 0, 0, "a timeout of 0 ms" },
		{ 2, 0, SRDMA_MAX_TIMEOUT_MS + 1, "a timeout of 600001 ms" },
		{ 2, 0, SRDMA_NO_TIMEOUT - 1, "a timeout of 4294967294 ms" },
	};
	struct srdma_qp_change unknown = { .qpn = 1, .fields = 1 };

	(void)state;
	open_pair();
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct srdma_qp_change change = {
			.fields = rows[i].fields,
			.access = rows[i].access,
			.timeout_ms = rows[i].timeout_ms,
		};

		assert_int_equal(modify(0, change), -EINVAL);
		assert_non_null(
			strstr(srdma_relay_why(p.side[0].relay), rows[i].why));
	}
	assert_int_equal(
		srdma_relay_qp_modify(p.side[0].relay, p.side[0].leg, &unknown),
		-ENOENT);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_what_needs_no_right),
		cmocka_unit_test(test_time_limit),
		cmocka_unit_test(test_no_time_limit),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
