/* Log lines are JSON objects, whatever the texts of a peer contain. */
#include "control/audit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_fields_of_a_line(void **state)
{
	struct audit a;

	(void)state;
	audit_begin(&a, "linked", 1700000000005);
	audit_text(&a, "computer", "a\"b\\c\n\x7f\xc3\xa9");
	audit_number(&a, "ahead", -7);
	a.line[audit_end(&a)] = '\0';
	assert_string_equal(a.line,
			    "{\"time\": 1700000000.005, \"event\": \"linked\", "
			    "\"computer\": \"a\\\"b\\\\c????\", \"ahead\": -7}"
			    "\n");
}

static void test_long_lines_are_cut(void **state)
{
	char text[3000];
	struct audit a;
	size_t len;

	(void)state;
	memset(text, '"', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	audit_begin(&a, "refused", 0);
	for (int i = 0; i < 5; i++) {
		audit_text(&a, "text", text);
		audit_number(&a, "number", INT64_MIN);
	}
	len = audit_end(&a);
	assert_true(len <= sizeof(a.line));
	assert_memory_equal(a.line + len - 2, "}\n", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields_of_a_line),
		cmocka_unit_test(test_long_lines_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
