/* The host's count of consumed completion records. */
#include "qp/cq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint32_t consume(uint32_t written, uint32_t consumed, uint32_t claimed)
{
	struct srdma_cq cq = { .ring = 64,
			       .written = written,
			       .consumed = consumed };

	srdma_cq_consume(&cq, claimed);
	return cq.consumed;
}

static void test_count_moves_up_to_written(void **state)
{
	(void)state;
	assert_int_equal(consume(10, 4, 4), 4);
	assert_int_equal(consume(10, 4, 7), 7);
	assert_int_equal(consume(10, 4, 10), 10);
	assert_int_equal(consume(3, UINT32_MAX - 1, UINT32_MAX), UINT32_MAX);
	assert_int_equal(consume(3, UINT32_MAX - 1, 2), 2);
}

/* Else records that the host has not read could be overwritten. */
static void test_illegal_counts_are_ignored(void **state)
{
	(void)state;
	assert_int_equal(consume(10, 4, 11), 4);
	assert_int_equal(consume(10, 4, 3), 4);
	assert_int_equal(consume(10, 4, UINT32_MAX), 4);
	assert_int_equal(consume(10, 4, 0x80000000), 4);
	assert_int_equal(consume(3, UINT32_MAX - 1, 4), UINT32_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_count_moves_up_to_written),
		cmocka_unit_test(test_illegal_counts_are_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
