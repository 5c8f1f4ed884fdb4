/* Memory of growing tables: its limit and its count. */
#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROW = 24 };

static void test_tables_share_the_limit(void **state)
{
	struct srdma_table_memory m = { .most = 10 * ROW };
	uint64_t *a, *b;

	(void)state;
	a = srdma_table_take(&m, 6, ROW);
	assert_non_null(a);
	assert_int_equal(a[0] | a[6 * ROW / 8 - 1], 0);
	assert_int_equal(m.used, 6 * ROW);
	assert_null(srdma_table_take(&m, 5, ROW));
	assert_int_equal(m.used, 6 * ROW);
	b = srdma_table_take(&m, 4, ROW);
	assert_non_null(b);
	assert_null(srdma_table_take(&m, 1, 1));
	srdma_table_give(&m, a, 6, ROW);
	assert_int_equal(m.used, 4 * ROW);
	srdma_table_give(&m, NULL, 6, ROW);
	srdma_table_give(&m, b, 4, ROW);
	assert_int_equal(m.used, 0);
}

static void test_without_limit_bytes_are_counted(void **state)
{
	struct srdma_table_memory m = { 0 };
	void *table = srdma_table_take(&m, 1000, ROW);

	(void)state;
	assert_non_null(table);
	assert_int_equal(m.used, 1000 * ROW);
	srdma_table_give(&m, table, 1000, ROW);
	assert_int_equal(m.used, 0);
}

static void test_room_doubles(void **state)
{
	(void)state;
	assert_int_equal(srdma_table_room(0, 4, 1), 4);
	assert_int_equal(srdma_table_room(0, 4, 5), 8);
	assert_int_equal(srdma_table_room(8, 4, 8), 8);
	assert_int_equal(srdma_table_room(8, 4, 33), 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables_share_the_limit),
		cmocka_unit_test(test_without_limit_bytes_are_counted),
		cmocka_unit_test(test_room_doubles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
