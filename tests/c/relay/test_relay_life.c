/*
 * Limited life of a QP's secrets between two relays: LIFE of the control socket
 * (docs/local-interface.md 3.6).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/relay_pair.h"

#define SECOND UINT64_C(1000000000)

enum { DAY_MS = 86400000 };

static int give(struct pair *p, int side, uint32_t seconds)
{
	return srdma_relay_qp_life(p->side[side].relay, p->side[side].leg,
				   p->side[side].qp[0].qpn, seconds);
}

static void alive(struct pair *p)
{
	for (int side = 0; side < 2; side++)
		assert_int_equal(pair_state(p, side, 0, NULL), SRDMA_QP_RTS);
}

/* The QP of `side` ended for its keys, and told its peer. */
static void ended(struct pair *p, int side)
{
	uint32_t why;

	assert_int_equal(pair_state(p, side, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_KEY_LIMIT);
	assert_int_equal(pair_state(p, !side, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_PEER_ERROR);
}

static void open_(struct pair *p)
{
	pair_defaults(p);
	pair_open(p);
	pair_connect(p, 0);
}

static void says(const struct pair *p, const char *text)
{
	const char *why = srdma_relay_why(p->side[0].relay);

	if (!strstr(why, text))
		fail_msg("\"%s\" is not in \"%s\"", text, why);
}

static void test_life_ends_both_ends(void **state)
{
	(void)state;
	for (int side = 0; side < 2; side++) {
		struct pair p;

		open_(&p);
		assert_int_equal(give(&p, side, 5), 0);
		pair_wait_ms(&p, 4990);
		alive(&p);
		pair_wait_ms(&p, 20);
		ended(&p, side);
		pair_close(&p);
	}
}

/* A sleeping worker wakes for the end of the life. */
static void test_idle_worker_wakes_for_the_end(void **state)
{
	struct pair p;
	uint64_t end;

	(void)state;
	open_(&p);
	pair_wait_ms(&p, DAY_MS);
	end = p.now + 7 * SECOND;
	assert_true(srdma_relay_timer(p.side[0].relay) > end);
	assert_int_equal(give(&p, 0, 7), 0);
	assert_true(srdma_relay_timer(p.side[0].relay) <= end);
	pair_settle(&p);
	assert_true(srdma_relay_timer(p.side[0].relay) <= end);
	pair_close(&p);
}

static enum srdma_mem_fate lose_requests(void *ctx,
					 struct srdma_mem_datagram *d)
{
	(void)ctx;
	return d->data[0] == SRDMA_OP_ACKNOWLEDGE ? SRDMA_MEM_PASS
						  : SRDMA_MEM_DROP;
}

/* The oldest outstanding request has the reason. */
static void test_outstanding_request_fails_with_key_limit(void **state)
{
	struct pair p;

	(void)state;
	open_(&p);
	p.wire.fate = lose_requests;
	pair_post(&p, 0,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_WRITE,
			  .id = 1,
			  .length = 8,
			  .local_addr = (uintptr_t)p.side[0].memory,
			  .remote_addr = (uintptr_t)p.side[1].memory },
		  NULL);
	assert_int_equal(give(&p, 0, 1), 0);
	for (int i = 0; i < 11; i++)
		pair_wait_ms(&p, 100);
	ended(&p, 0);
	pair_expect(&p, 0, 1, SRDMA_REASON_KEY_LIMIT);
	pair_close(&p);
}

/* Each LIFE replaces the one before, to a later time as to an earlier one. */
static void test_later_life_replaces_the_former(void **state)
{
	struct pair p;

	(void)state;
	open_(&p);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(give(&p, 0, 5), 0);
		pair_wait_ms(&p, 4000);
		alive(&p);
	}
	assert_int_equal(give(&p, 0, 1000), 0);
	pair_wait_ms(&p, 900000);
	alive(&p);
	assert_int_equal(give(&p, 0, 2), 0);
	pair_wait_ms(&p, 1990);
	alive(&p);
	pair_wait_ms(&p, 20);
	ended(&p, 0);
	pair_close(&p);
}

/* The longest life, and none: a QP lives for a year. */
static void test_longest_life(void **state)
{
	struct pair p;

	(void)state;
	open_(&p);
	assert_int_equal(give(&p, 0, INT32_MAX), 0);
	for (int day = 0; day < 365; day++)
		pair_wait_ms(&p, DAY_MS);
	alive(&p);
	pair_close(&p);
}

/* Between KEYS and the first packet of the peer. */
static void test_life_ends_a_qp_in_rtr(void **state)
{
	struct srdma_qp_keys k;
	struct pair p;
	uint32_t why;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	pair_keys(&p, 1, 0, &k);
	assert_int_equal(
		srdma_relay_qp_keys(p.side[1].relay, p.side[1].leg, &k), 0);
	assert_int_equal(give(&p, 1, 3), 0);
	pair_wait_ms(&p, 2990);
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTR);
	pair_wait_ms(&p, 20);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_KEY_LIMIT);
	pair_close(&p);
}

static void test_level_none_has_a_life_too(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.suite = p.level = p.tag_len = 0;
	p.allow_unprotected = 1;
	pair_open(&p);
	pair_connect(&p, 0);
	assert_int_equal(give(&p, 1, 1), 0);
	pair_wait_ms(&p, 1010);
	ended(&p, 1);
	pair_close(&p);
}

/* In ERR the call succeeds and changes nothing. */
static void test_life_of_an_ended_qp(void **state)
{
	struct pair p;

	(void)state;
	open_(&p);
	assert_int_equal(give(&p, 0, 1), 0);
	pair_wait_ms(&p, 1010);
	for (int side = 0; side < 2; side++)
		assert_int_equal(give(&p, side, 1), 0);
	pair_wait_ms(&p, 2000);
	ended(&p, 0);
	pair_destroy_qp(&p, 0);
	pair_close(&p);
}

static void test_life_refusals(void **state)
{
	static const uint32_t illegal[] = { 0, UINT32_C(1) << 31, UINT32_MAX };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	assert_int_equal(give(&p, 0, 5), -ENOTCONN);
	says(&p, "no keys yet");
	pair_init_qp(&p, 1);
	pair_connect(&p, 0);
	assert_int_equal(srdma_relay_qp_life(p.side[0].relay, p.side[0].leg,
					     p.side[0].qp[0].qpn ^ 1, 5),
			 -ENOENT);
	says(&p, "no QP");
	/* a refusal does not replace the life */
	assert_int_equal(give(&p, 0, 5), 0);
	for (size_t i = 0; i < sizeof(illegal) / sizeof(*illegal); i++) {
		assert_int_equal(give(&p, 0, illegal[i]), -EINVAL);
		says(&p, "it must be 1 to 2147483647");
	}
	pair_wait_ms(&p, 4990);
	alive(&p);
	pair_wait_ms(&p, 20);
	ended(&p, 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life_ends_both_ends),
		cmocka_unit_test(test_idle_worker_wakes_for_the_end),
		cmocka_unit_test(test_outstanding_request_fails_with_key_limit),
		cmocka_unit_test(test_later_life_replaces_the_former),
		cmocka_unit_test(test_longest_life),
		cmocka_unit_test(test_life_ends_a_qp_in_rtr),
		cmocka_unit_test(test_level_none_has_a_life_too),
		cmocka_unit_test(test_life_of_an_ended_qp),
		cmocka_unit_test(test_life_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
