/* The clock by which certificates are checked, and the form of identities. */
#include "control/credentials.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "offload/wallclock.h"

static void test_clock_that_was_never_set_is_refused(void **state)
{
	static const int64_t times[] = { 0, -1, 1000000, WALLCLOCK_LEAST - 1,
					 INT64_MAX };
	const struct credentials c = { .begin = 0 };
	struct reason r;

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		assert_int_equal(credentials_check_clock(&c, times[i], &r),
				 -EPROTO);
		assert_string_equal(r.code, "clock");
		assert_non_null(strstr(r.text, "clock of the NIC was never"));
	}
	assert_int_equal(credentials_check_clock(&c, WALLCLOCK_LEAST, &r), 0);
}

static void test_clock_before_the_own_certificate_is_refused(void **state)
{
	const struct credentials c = { .begin = WALLCLOCK_LEAST + 86400 };
	struct reason r;

	(void)state;
	assert_int_equal(credentials_check_clock(&c, c.begin - 1, &r), -EPROTO);
	assert_string_equal(r.text,
			    "the clock of the NIC is at 2026-01-01 23:59, "
			    "before the notBefore of its own certificate: set "
			    "it");
	assert_int_equal(credentials_check_clock(&c, c.begin, &r), 0);
}

static void test_form_of_identities(void **state)
{
	static const char *const valid[] = { "spiffe://test/a", "a://b",
					     "x+y-z.1://host" };
	static const char *const invalid[] = {
		"",	     "host-a",	   "spiffe:",	   "spiffe:/a",
		"spiffe://", "spiffe:///", "spiffe://?a",  "1a://b",
		"://b",	     "a://b\n",	   "a://\xc3\xa9", "a b://c",
	};
	char longest[IDENTITY_MAX + 2] = "a://";

	(void)state;
	for (size_t i = 0; i < sizeof(valid) / sizeof(*valid); i++)
		assert_true(identity_is_valid(valid[i], strlen(valid[i])));
	for (size_t i = 0; i < sizeof(invalid) / sizeof(*invalid); i++)
		assert_false(identity_is_valid(invalid[i], strlen(invalid[i])));
	assert_false(identity_is_valid("a://b\0c", 7));
	memset(longest + 4, 'x', sizeof(longest) - 4);
	assert_true(identity_is_valid(longest, IDENTITY_MAX));
	assert_false(identity_is_valid(longest, IDENTITY_MAX + 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clock_that_was_never_set_is_refused),
		cmocka_unit_test(
			test_clock_before_the_own_certificate_is_refused),
		cmocka_unit_test(test_form_of_identities),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
