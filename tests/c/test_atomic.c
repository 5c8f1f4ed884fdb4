/* What atomics do, and the results that a target keeps (docs/protocol.md 5). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "atomic.h"

static void test_apply(void **state)
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

static void test_kept(void **state)
{
	struct srdma_atomic_results t;
	uint64_t value;

	(void)state;
	assert_int_equal(srdma_atomic_create(&t, 4), 0);
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
		cmocka_unit_test(test_apply),
		cmocka_unit_test(test_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
