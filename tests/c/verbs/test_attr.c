/* The attributes of a QP that the worker is told (verbs/attr.c). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>

#include "verbs/objects.h"

enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	LIMITS = SRDMA_QP_FIELD_TIMEOUT | SRDMA_QP_FIELD_GRACE,
	RETRIES = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
};

static struct srdma_qp_change told;
static int calls;

int srdma_change_qp(struct srdma_qp *qp, const struct srdma_qp_change *change)
{
	(void)qp;
	told = *change;
	calls++;
	return 0;
}

static int tell(enum ibv_qp_type type, struct ibv_qp_attr attr, int mask)
{
	struct verbs_qp qp = { .transport = verbs_transport_of(type) };

	told = (struct srdma_qp_change){ 0 };
	calls = 0;
	return verbs_attr_tell(&qp, &attr, mask);
}

static void test_rights(void **state)
{
	const struct ibv_qp_attr attr = { .qp_access_flags = ALL };

	(void)state;
	assert_int_equal(tell(IBV_QPT_RC, attr, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(told.fields, SRDMA_QP_FIELD_ACCESS);
	assert_int_equal(told.access, ALL & ~IBV_ACCESS_LOCAL_WRITE);
	/* An RC QP that is the peer of a UC QP must not READ. */
	assert_int_equal(tell(IBV_QPT_UC, attr, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(told.fields, SRDMA_QP_FIELD_ACCESS);
	assert_int_equal(told.access, IBV_ACCESS_REMOTE_WRITE);
}

static void test_limits_of_rc(void **state)
{
	struct ibv_qp_attr attr = { .timeout = 20, .retry_cnt = 7 };

	(void)state;
	assert_int_equal(tell(IBV_QPT_RC, attr, IBV_QP_TIMEOUT), 0);
	assert_int_equal(told.fields, LIMITS);
	assert_int_equal(told.timeout_ms, 34359); /* 8 * 4.096 us * 2^20 */
	assert_int_equal(told.grace_ms, 10000);
	attr.timeout = 14;
	assert_int_equal(tell(IBV_QPT_RC, attr, IBV_QP_RETRY_CNT), 0);
	assert_int_equal(told.timeout_ms, 30000);
	assert_int_equal(told.grace_ms, 536);
	attr.timeout = 31;
	assert_int_equal(tell(IBV_QPT_RC, attr, IBV_QP_TIMEOUT), 0);
	assert_int_equal(told.timeout_ms, SRDMA_TIMEOUT_MAX_MS);
	attr.rnr_retry = 7;
	assert_int_equal(tell(IBV_QPT_RC, attr, IBV_QP_RNR_RETRY), 0);
	assert_int_equal(told.timeout_ms, SRDMA_TIMEOUT_NONE);
	assert_int_equal(tell(IBV_QPT_RC, attr, IBV_QP_SQ_PSN), 0);
	assert_int_equal(calls, 0);
}

/* A UC QP has no such attributes: it gets its limits when it goes to RTS. */
static void test_limits_of_uc(void **state)
{
	static const int absent[] = {
		IBV_QP_TIMEOUT,		 IBV_QP_RETRY_CNT,
		IBV_QP_RNR_RETRY,	 IBV_QP_MIN_RNR_TIMER,
		IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC,
	};
	const struct ibv_qp_attr attr = { 0 };

	(void)state;
	assert_int_equal(tell(IBV_QPT_UC, attr, IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
	assert_int_equal(told.fields, LIMITS);
	assert_int_equal(told.timeout_ms, SRDMA_TIMEOUT_NONE);
	assert_int_equal(told.grace_ms, 10000);
	for (unsigned i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
		assert_int_equal(
			tell(IBV_QPT_UC, attr, IBV_QP_SQ_PSN | absent[i]),
			EINVAL);
		assert_int_equal(calls, 0);
	}
}

static void test_illegal_values(void **state)
{
	(void)state;
	assert_int_equal(tell(IBV_QPT_RC, (struct ibv_qp_attr){ .timeout = 32 },
			      RETRIES),
			 EINVAL);
	assert_int_equal(tell(IBV_QPT_RC,
			      (struct ibv_qp_attr){ .retry_cnt = 8 }, RETRIES),
			 EINVAL);
	assert_int_equal(tell(IBV_QPT_RC,
			      (struct ibv_qp_attr){ .rnr_retry = 8 }, RETRIES),
			 EINVAL);
	assert_int_equal(calls, 0);
}

static void test_types(void **state)
{
	(void)state;
	assert_null(verbs_transport_of(0));
	assert_null(verbs_transport_of(IBV_QPT_RAW_PACKET));
	assert_null(verbs_transport_of(IBV_QPT_XRC_SEND));
	assert_null(verbs_transport_of(IBV_QPT_DRIVER));
	assert_false(verbs_transport_has(verbs_transport_of(IBV_QPT_RC), 64));
	assert_false(verbs_transport_has(verbs_transport_of(IBV_QPT_UC),
					 IBV_WR_RDMA_READ));
	assert_true(verbs_transport_has(verbs_transport_of(IBV_QPT_UC),
					IBV_WR_RDMA_WRITE));
	assert_false(verbs_transport_has(verbs_transport_of(IBV_QPT_UD),
					 IBV_WR_RDMA_WRITE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_limits_of_rc),
		cmocka_unit_test(test_limits_of_uc),
		cmocka_unit_test(test_illegal_values),
		cmocka_unit_test(test_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
