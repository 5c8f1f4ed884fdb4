/* Listening addresses of the worker processes: --wire-listen, --host-listen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

enum { THIRD = 2 }; /* index of the worker process in these tests */

static enum options_result parse(struct options *o, const char *host_listen,
				 const char *wire_listen)
{
	char *argv[] = { (char *)(uintptr_t) "srdma-offload",
			 (char *)(uintptr_t) "--control=/x/a",
			 (char *)(uintptr_t) "--workers=3",
			 (char *)(uintptr_t) "--host-dev=rxe0",
			 (char *)(uintptr_t) "--wire-dev=rxe1",
			 (char *)(uintptr_t) "--host-listen",
			 (char *)(uintptr_t)host_listen,
			 (char *)(uintptr_t) "--wire-listen",
			 (char *)(uintptr_t)wire_listen };

	return options_parse(o, 9, argv);
}

static void test_ports_of_worker_processes_are_consecutive(void **state)
{
	static const struct {
		const char *host, *wire, *host_third, *wire_third;
	} rows[] = {
		{ "10.0.0.1:7000", "10.0.1.1:8000", "10.0.0.1:7002",
		  "10.0.1.1:8002" },
		{ "[fd00::1]:7000", "[fd00::2]:8000", "[fd00::1]:7002",
		  "[fd00::2]:8002" },
		{ "10.0.0.1", "10.0.1.1:0", "10.0.0.1", "10.0.1.1:0" },
		{ "[fe80::1]", "[fe80::2]:0", "[fe80::1]", "[fe80::2]:0" },
		{ "here", "there", "here", "there" }, /* the port refuses it */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct options o, third;

		assert_int_equal(parse(&o, rows[i].host, rows[i].wire),
				 OPTIONS_RUN);
		assert_string_equal(o.host_listen, rows[i].host);
		assert_int_equal(options_of_process(&third, &o, THIRD),
				 OPTIONS_RUN);
		assert_string_equal(third.host_listen, rows[i].host_third);
		assert_string_equal(third.wire_listen, rows[i].wire_third);
	}
}

static void test_port_that_is_too_high_is_refused(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, "10.0.0.1:65533", "10.0.0.1:65533"),
			 OPTIONS_RUN);
	assert_int_equal(parse(&o, "10.0.0.1:65534", "10.0.0.1:0"),
			 OPTIONS_WRONG);
	assert_non_null(strstr(o.error, "--host-listen 10.0.0.1:65534"));
	assert_int_equal(parse(&o, "10.0.0.1", "10.0.0.1:65534"),
			 OPTIONS_WRONG);
	assert_non_null(strstr(o.error, "--wire-listen 10.0.0.1:65534"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_ports_of_worker_processes_are_consecutive),
		cmocka_unit_test(test_port_that_is_too_high_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
