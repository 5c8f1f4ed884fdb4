/* The wr_ids of a shared queue (host/id_pool.c). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/id_pool.h"

enum { DEPTH = 3 };

static void test_ids_end_in_any_order(void **state)
{
	struct srdma_id_pool *p = srdma_id_pool_create(DEPTH);
	uint64_t number[DEPTH], id = 0;

	(void)state;
	for (unsigned i = 0; i < DEPTH; i++) {
		assert_false(srdma_id_pool_is_full(p));
		number[i] = srdma_id_pool_add(p, 100 + i);
	}
	assert_true(srdma_id_pool_is_full(p));
	assert_int_equal(srdma_id_pool_take(p, number[1], &id), 0);
	assert_int_equal(id, 101);
	assert_false(srdma_id_pool_is_full(p));
	assert_int_equal(srdma_id_pool_take(p, number[2], &id), 0);
	assert_int_equal(id, 102);
	assert_int_equal(srdma_id_pool_take(p, number[0], &id), 0);
	assert_int_equal(id, 100);
	srdma_id_pool_free(p);
}

static void test_a_number_ends_once(void **state)
{
	struct srdma_id_pool *p = srdma_id_pool_create(DEPTH);
	uint64_t first = srdma_id_pool_add(p, 1), second, id = 9;

	(void)state;
	assert_int_equal(srdma_id_pool_take(p, first + 1, &id), -ENOENT);
	assert_int_equal(srdma_id_pool_take(p, UINT64_MAX, &id), -ENOENT);
	assert_int_equal(srdma_id_pool_take(p, first, &id), 0);
	assert_int_equal(srdma_id_pool_take(p, first, &id), -ENOENT);
	second = srdma_id_pool_add(p, 2); /* at the same place */
	assert_int_equal(second % DEPTH, first % DEPTH);
	id = 9;
	assert_int_equal(srdma_id_pool_take(p, first, &id), -ENOENT);
	assert_int_equal(id, 9);
	assert_int_equal(srdma_id_pool_take(p, second, &id), 0);
	assert_int_equal(id, 2);
	srdma_id_pool_free(p);
	srdma_id_pool_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ids_end_in_any_order),
		cmocka_unit_test(test_a_number_ends_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
