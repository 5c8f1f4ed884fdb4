/*
 * The charges of a list of outgoing ops (op.h): several of them are charged to
 * the identity of the peer at once, before they are added.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ledger/ledger.h"
#include "support/inside.h"
#include "support/relay_pair.h"

static struct pair p;
static struct srdma_qp *qp; /* of side 0 */
static struct srdma_op_list list;

static int setup(void **state)
{
	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	qp = srdma_relay_qp(p.side[0].relay, p.side[0].qp[0].qpn);
	list = (struct srdma_op_list){ 0 };
	return 0;
}

/* The account of the identity asserts that nothing stays charged. */
static int teardown(void **state)
{
	(void)state;
	srdma_op_drop(&list);
	srdma_op_settle(&list, qp);
	pair_close(&p);
	return 0;
}

static uint64_t used(void)
{
	return srdma_account_used(srdma_qp_identity(qp), SRDMA_RES_OPS);
}

static void add(int n)
{
	while (n--)
		assert_non_null(srdma_op_add(&list, qp, SRDMA_OP_FETCH));
}

/* Only what is not prepaid yet is charged, unless it is one op. */
static void test_ops_are_prepaid_once(void **state)
{
	(void)state;
	srdma_op_prepay(&list, qp, 1);
	assert_int_equal(used(), 0);
	srdma_op_prepay(&list, qp, 8);
	assert_int_equal(used(), 8);
	srdma_op_prepay(&list, qp, 8);
	srdma_op_prepay(&list, qp, 9);
	srdma_op_prepay(&list, qp, 3);
	assert_int_equal(used(), 8);
	srdma_op_prepay(&list, qp, 12);
	assert_int_equal(used(), 12);
	srdma_op_settle(&list, qp);
	assert_int_equal(used(), 0);
}

static void test_an_op_is_charged_once(void **state)
{
	(void)state;
	srdma_op_prepay(&list, qp, 4);
	add(3);
	assert_int_equal(used(), 4);
	assert_int_equal(list.prepaid, 1);
	srdma_op_sent(&list);
	assert_int_equal(used(), 4);
	assert_int_equal(list.prepaid, 2);
	add(3);
	assert_int_equal(used(), 5);
	srdma_op_retire(&list);
	assert_int_equal(used(), 4);
	srdma_op_settle(&list, qp);
	assert_int_equal(used(), list.count);
}

/* As many are prepaid as the quota permits, none if it is used up. */
static void test_quota_limits_what_is_prepaid(void **state)
{
	enum { LIMIT = 6 };
	struct srdma_quota q;

	(void)state;
	memset(&q, 0xff, sizeof(q)); /* SRDMA_QUOTA_DEFAULT */
	q.of[SRDMA_RES_OPS].limit = LIMIT;
	srdma_account_limit(srdma_qp_identity(qp), &q);
	srdma_op_prepay(&list, qp, LIMIT + 2);
	assert_int_equal(list.prepaid, LIMIT);
	add(LIMIT);
	assert_false(srdma_op_is_free(qp, &list));
	srdma_op_prepay(&list, qp, LIMIT);
	assert_int_equal(list.prepaid, 0);
	assert_null(srdma_op_add(&list, qp, SRDMA_OP_FETCH));
	assert_int_equal(used(), LIMIT);
}

/* A QP that fails in a burst drops its ops. */
static void test_dropped_ops_leave_what_is_prepaid(void **state)
{
	(void)state;
	srdma_op_prepay(&list, qp, 8);
	add(3);
	srdma_op_drop(&list);
	assert_int_equal(used(), list.prepaid);
	srdma_op_settle(&list, qp);
	assert_int_equal(used(), 0);
}

/* Ops of other QPs of the identity take from the share, not what is prepaid. */
static void test_prepaid_ops_are_not_in_the_share(void **state)
{
	(void)state;
	srdma_op_prepay(&list, qp, srdma_op_outgoing(srdma_qp_env(qp)));
	add(SRDMA_OPS_LEAST);
	assert_true(srdma_op_share(qp, &list));
}

#define X(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		X(test_ops_are_prepaid_once),
		X(test_an_op_is_charged_once),
		X(test_quota_limits_what_is_prepaid),
		X(test_dropped_ops_leave_what_is_prepaid),
		X(test_prepaid_ops_are_not_in_the_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
