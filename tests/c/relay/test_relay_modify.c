/* Rights, time limit and grace of a QP: MODIFY of the control socket
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

/* --- grace ---------------------------------------------------------------- */

enum { GRACE_MS = 500 };

/* The peer executed WRITE 1 of side 0. SEND 2 waits for a receive of it. */
static void open_with_grace(uint32_t ms)
{
	open_pair();
	assert_int_equal(
		modify(0,
		       (struct srdma_qp_change){ .fields = SRDMA_QP_FIELD_GRACE,
						 .grace_ms = ms }),
		0);
	post(SRDMA_DESC_WRITE, 8);
	pair_post(&p, 0,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_SEND, .id = 2 },
		  NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
}

static void end_peer(enum srdma_reason reason)
{
	if (reason == SRDMA_REASON_PEER_HOST_GONE)
		srdma_relay_leg_close(p.side[1].leg);
	while (reason == SRDMA_REASON_PEER_CLOSED &&
	       srdma_relay_qp_destroy(p.side[1].relay, p.side[1].leg,
				      p.side[1].qp[0].qpn))
		pair_run(&p, 1);
	pair_settle(&p);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_ERR);
}

static void test_requests_wait_for_the_end_of_the_grace(void **state)
{
	static const enum srdma_reason reasons[] = {
		SRDMA_REASON_PEER_CLOSED, SRDMA_REASON_PEER_HOST_GONE
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_with_grace(GRACE_MS);
		end_peer(reasons[i]);
		pair_expect_none(&p, 0);
		pair_wait_ms(&p, GRACE_MS - 10);
		post(SRDMA_DESC_SEND, 8); /* it waits too */
		pair_settle(&p);
		pair_expect_none(&p, 0);
		pair_wait_ms(&p, 11);
		pair_expect(&p, 0, 2, reasons[i]);
		pair_expect(&p, 0, 1, SRDMA_REASON_FLUSHED);
		pair_expect(&p, 0, 0, reasons[i]); /* QP event */
		post(SRDMA_DESC_SEND, 8);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_FLUSHED);
		pair_close(&p);
	}
}

static enum srdma_mem_fate lose_acks(void *ctx, struct srdma_mem_datagram *d)
{
	const int *losing = ctx;

	return *losing && d->side ? SRDMA_MEM_DROP : SRDMA_MEM_PASS;
}

/* The CLOSE of the peer says what it has executed. */
static void test_executed_requests_complete_at_once(void **state)
{
	int losing = 0;

	(void)state;
	pair_defaults(&p);
	p.wire.fate = lose_acks;
	p.wire.ctx = &losing;
	pair_open(&p);
	pair_connect(&p, 0);
	assert_int_equal(
		modify(0,
		       (struct srdma_qp_change){ .fields = SRDMA_QP_FIELD_GRACE,
						 .grace_ms = GRACE_MS }),
		0);
	losing = 1;
	post(SRDMA_DESC_WRITE, 8);
	pair_post(&p, 0,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_SEND, .id = 2 },
		  NULL);
	pair_run(&p, 20);
	pair_expect_none(&p, 0);
	losing = 0;
	end_peer(SRDMA_REASON_PEER_CLOSED);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, GRACE_MS);
	pair_expect(&p, 0, 2, SRDMA_REASON_PEER_CLOSED);
	pair_close(&p);
}

static void test_receives_do_not_wait_for_the_grace(void **state)
{
	(void)state;
	open_with_grace(GRACE_MS);
	pair_post(&p, 0,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_RECV, .id = 7 },
		  NULL);
	pair_settle(&p);
	end_peer(SRDMA_REASON_PEER_CLOSED);
	pair_expect(&p, 0, 7, SRDMA_REASON_FLUSHED);
	pair_expect_none(&p, 0);
	pair_close(&p);
}

static void test_event_without_requests_does_not_wait(void **state)
{
	(void)state;
	open_pair();
	assert_int_equal(
		modify(0,
		       (struct srdma_qp_change){ .fields = SRDMA_QP_FIELD_GRACE,
						 .grace_ms = GRACE_MS }),
		0);
	end_peer(SRDMA_REASON_PEER_CLOSED);
	pair_expect(&p, 0, 0, SRDMA_REASON_PEER_CLOSED);
	post(SRDMA_DESC_SEND, 8);
	pair_settle(&p);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, GRACE_MS);
	pair_expect(&p, 0, 1, SRDMA_REASON_PEER_CLOSED);
	pair_expect_none(&p, 0);
	pair_close(&p);
}

/* Other ends of a QP, and of a QP without a grace, complete requests at once. */
static void test_no_grace(void **state)
{
	(void)state;
	open_with_grace(0);
	end_peer(SRDMA_REASON_PEER_CLOSED);
	pair_expect(&p, 0, 2, SRDMA_REASON_PEER_CLOSED);
	pair_close(&p);

	open_with_grace(GRACE_MS);
	assert_int_equal(srdma_relay_qp_end(p.side[0].relay, p.side[0].leg,
					    p.side[0].qp[0].qpn,
					    SRDMA_REASON_WIRE_LOST),
			 0);
	pair_settle(&p);
	pair_expect(&p, 0, 2, SRDMA_REASON_WIRE_LOST);
	pair_close(&p);
}

static void test_destroy_in_the_grace(void **state)
{
	(void)state;
	open_with_grace(GRACE_MS);
	end_peer(SRDMA_REASON_PEER_CLOSED);
	assert_int_equal(srdma_relay_qp_destroy(p.side[0].relay, p.side[0].leg,
						p.side[0].qp[0].qpn),
			 0);
	pair_wait_ms(&p, GRACE_MS);
	pair_expect_none(&p, 0);
	pair_close(&p);
}

static void test_refusals(void **state)
{
	static const struct {
		uint32_t fields, access, timeout_ms, grace_ms;
		const char *why;
	} rows[] = {
		{ 0, 0, 0, 0, "fields 0x0" },
		{ 8, 0, 0, 0, "fields 0x8" },
		{ 1, 1, 0, 0, "access 0x1" },
		{ 3, 16, 1, 0, "access 0x10" },
		{ 2, 0, 0, 0, "a timeout of 0 ms" },
		{ 2, 0, SRDMA_MAX_TIMEOUT_MS + 1, 0, "a timeout of 600001 ms" },
		{ 2, 0, SRDMA_NO_TIMEOUT - 1, 0, "a timeout of 4294967294 ms" },
		{ 4, 0, 0, SRDMA_MAX_TIMEOUT_MS + 1, "a grace of 600001 ms" },
	};
	struct srdma_qp_change unknown = { .qpn = 1, .fields = 1 };

	(void)state;
	open_pair();
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct srdma_qp_change change = {
			.fields = rows[i].fields,
			.access = rows[i].access,
			.timeout_ms = rows[i].timeout_ms,
			.grace_ms = rows[i].grace_ms,
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
		cmocka_unit_test(test_requests_wait_for_the_end_of_the_grace),
		cmocka_unit_test(test_executed_requests_complete_at_once),
		cmocka_unit_test(test_receives_do_not_wait_for_the_grace),
		cmocka_unit_test(test_event_without_requests_does_not_wait),
		cmocka_unit_test(test_no_grace),
		cmocka_unit_test(test_destroy_in_the_grace),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
