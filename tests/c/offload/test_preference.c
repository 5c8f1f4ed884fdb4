#include "preference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "crypto/suite.h"

/* Every suite once, the recommended ones first, then zeros. */
static void test_every_suite_once_recommended_first(void **state)
{
	uint8_t suites[SRDMA_CTL_SUITES_LEN];
	unsigned n = 0, recommended = 0;

	(void)state;
	memset(suites, 0xff, sizeof(suites));
	preference_measure(suites, NULL);
	for (unsigned i = 0; srdma_suite_at(i); i++) {
		assert_non_null(
			memchr(suites, srdma_suite_at(i)->id, sizeof(suites)));
		recommended += srdma_suite_at(i)->recommended;
		n++;
	}
	assert_in_range(n, 1, sizeof(suites) - 1);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(srdma_suite_by_id(suites[i])->recommended,
				 i < recommended);
	for (unsigned i = n; i < sizeof(suites); i++)
		assert_int_equal(suites[i], 0);
}

/* Suites that are not measured keep the order of the table. */
static void test_other_suites_in_table_order(void **state)
{
	uint8_t suites[SRDMA_CTL_SUITES_LEN], last = 0;

	(void)state;
	preference_measure(suites, NULL);
	for (unsigned i = 0; suites[i]; i++) {
		if (srdma_suite_by_id(suites[i])->recommended)
			continue;
		assert_true(suites[i] > last);
		last = suites[i];
	}
	assert_true(last > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_suite_once_recommended_first),
		cmocka_unit_test(test_other_suites_in_table_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
