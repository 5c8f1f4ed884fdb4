/*
 * Execution of atomics, and the results that a responder keeps
 * (docs/protocol.md 5).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/atomic_op.h"
#include "responder/atomic.h"

static void test_apply_changes_value(void **state)
{
	static const struct {
		struct srdma_atomic how;
		uint64_t old, left;
	} rows[] = {
		{ { SRDMA_ATOMIC_FETCH_ADD, 1, 0 }, 41, 42 },
		{ { SRDMA_ATOMIC_FETCH_ADD, 1, 0 }, UINT64_MAX, 0 },
		{ { SRDMA_ATOMIC_FETCH_ADD, UINT64_MAX, 0 }, 42, 41 },
		{ { SRDMA_ATOMIC_FETCH_ADD, 0, 0 }, 42, 42 },
		{ { SRDMA_ATOMIC_COMPARE_SWAP, 7, 42 }, 42, 7 },
		{ { SRDMA_ATOMIC_COMPARE_SWAP, 7, 42 }, 41, 41 },
		{ { SRDMA_ATOMIC_COMPARE_SWAP, 0, UINT64_MAX }, UINT64_MAX, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(srdma_atomic_apply(&rows[i].how, rows[i].old),
				 rows[i].left);
}

static struct srdma_table_memory memory;

/*
 * The table of results grows without losing any, stays unchanged without
 * memory, and holds at most `size` results.
 */
static void test_results_grow_up_to_size(void **state)
{
	enum { SIZE = 100, ROW = sizeof(struct srdma_atomic_result) };
	struct srdma_atomic_results t;
	uint64_t value;

	(void)state;
	srdma_atomic_create(&t, &memory, SIZE);
	assert_int_equal(memory.used, 0);
	for (uint64_t id = 0; id < 64; id++) {
		assert_int_equal(srdma_atomic_make_room(&t, 1), 0);
		srdma_atomic_keep(&t, id, id + 1000);
	}
	assert_int_equal(memory.used, 64 * ROW);
	memory.most = memory.used + (SIZE - 1) * ROW;
	assert_int_equal(srdma_atomic_make_room(&t, 1), -ENOMEM);
	assert_int_equal(srdma_atomic_find(&t, 0, &value), 0);
	memory.most = 0;
	for (uint64_t id = 64; id < 2 * SIZE; id++) {
		assert_int_equal(srdma_atomic_make_room(&t, 3), 0);
		srdma_atomic_keep(&t, id, id + 1000);
		for (uint64_t i = 0; i <= id; i++) {
			value = 0;
			assert_int_equal(srdma_atomic_find(&t, i, &value),
					 i + SIZE > id ? 0 : -ENOENT);
			assert_int_equal(value, i + SIZE > id ? i + 1000 : 0);
		}
	}
	assert_int_equal(memory.used, SIZE * ROW);
	srdma_atomic_destroy(&t);
	assert_int_equal(memory.used, 0);
}

static void test_results_keep_latest(void **state)
{
	struct srdma_atomic_results t;
	uint64_t value;

	(void)state;
	srdma_atomic_create(&t, &memory, 4);
	assert_int_equal(srdma_atomic_make_room(&t, 1), 0);
	assert_int_equal(srdma_atomic_find(&t, 0, &value), -ENOENT);
	for (uint64_t id = 10; id < 30; id++) {
		srdma_atomic_keep(&t, id, id * id);
		for (uint64_t i = 5; i <= id + 1; i++) {
			const int kept = i >= 10 && i <= id && i + 4 > id;

			value = 1;
			assert_int_equal(srdma_atomic_find(&t, i, &value),
					 kept ? 0 : -ENOENT);
			assert_int_equal(value, kept ? i * i : 1);
		}
	}
	srdma_atomic_destroy(&t);
	srdma_atomic_destroy(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_apply_changes_value),
		cmocka_unit_test(test_results_grow_up_to_size),
		cmocka_unit_test(test_results_keep_latest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
