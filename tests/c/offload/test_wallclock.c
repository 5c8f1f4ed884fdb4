#include "wallclock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The time is known if it is plausible, and fits into an expiry. */
static void test_times(void **state)
{
	static const struct {
		int64_t seconds;
		uint32_t want;
	} times[] = {
		{ INT64_MIN, UINT32_MAX },
		{ -1, UINT32_MAX },
		{ 0, UINT32_MAX },
		{ WALLCLOCK_LEAST - 1, UINT32_MAX },
		{ WALLCLOCK_LEAST, WALLCLOCK_LEAST },
		{ 1800000000, 1800000000 },
		{ UINT32_MAX - 1, UINT32_MAX - 1 },
		{ UINT32_MAX, UINT32_MAX },
		{ INT64_MAX, UINT32_MAX },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(times) / sizeof(*times); i++)
		assert_int_equal(wallclock_seconds(times[i].seconds),
				 times[i].want);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_times) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
