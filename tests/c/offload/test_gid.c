/* GIDs of --gid and --wire-listen. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gid.h"
#include "options.h"

static const uint8_t none[SRDMA_CTL_GID_LEN];

#define FOUR(A, B, C, D)                                                       \
	{                                                                      \
		[10] = 0xff, 0xff, A, B, C, D                                  \
	}

static void test_addresses(void **state)
{
	static const struct {
		const char *text;
		uint8_t gid[SRDMA_CTL_GID_LEN];
	} rows[] = {
		{ "10.0.0.1", FOUR(10, 0, 0, 1) },
		{ "::ffff:10.0.0.1", FOUR(10, 0, 0, 1) },
		{ "::ffff:a00:1", FOUR(10, 0, 0, 1) },
		{ "127.0.0.1", FOUR(127, 0, 0, 1) },
		{ "223.255.255.255", FOUR(223, 255, 255, 255) },
		{ "::1", { [15] = 1 } },
		{ "fe80::1", { 0xfe, 0x80, [15] = 1 } },
		{ "2001:db8::2", { 0x20, 1, 0xd, 0xb8, [15] = 2 } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint8_t gid[SRDMA_CTL_GID_LEN];

		assert_int_equal(gid_parse(gid, rows[i].text), 0);
		assert_memory_equal(gid, rows[i].gid, sizeof(gid));
		assert_false(gid_is_zero(gid));
	}
}

static void test_refusals(void **state)
{
	static const struct {
		const char *text;
		int rc;
	} rows[] = {
		{ "", -EINVAL },
		{ "a", -EINVAL },
		{ "10.0.0", -EINVAL },
		{ "10.0.0.1 ", -EINVAL },
		{ "10.0.0.1:4791", -EINVAL },
		{ "[::1]", -EINVAL },
		{ "fe80::1%eth0", -EINVAL },
		{ "0.0.0.0", -EADDRNOTAVAIL },
		{ "0.0.0.1", -EADDRNOTAVAIL },
		{ "224.0.0.1", -EADDRNOTAVAIL },
		{ "255.255.255.255", -EADDRNOTAVAIL },
		{ "::", -EADDRNOTAVAIL },
		{ "::ffff:0.0.0.0", -EADDRNOTAVAIL },
		{ "::ffff:224.0.0.1", -EADDRNOTAVAIL },
		{ "ff02::1", -EADDRNOTAVAIL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint8_t gid[SRDMA_CTL_GID_LEN] = { 0 };

		assert_int_equal(gid_parse(gid, rows[i].text), rows[i].rc);
		assert_memory_equal(gid, none, sizeof(gid));
	}
}

static void parse(struct options *o, const char *device, const char *listen,
		  const char *gid)
{
	const char *words[10] = { "srdma-offload", "--control", "/x/a",
				  "--wire-dev", device };
	char *argv[10];
	int n = 5;

	if (listen) {
		words[n++] = "--wire-listen";
		words[n++] = listen;
	}
	if (gid) {
		words[n++] = "--gid";
		words[n++] = gid;
	}
	memcpy(argv, words, sizeof(argv)); /* getopt_long() takes char * */
	assert_int_equal(options_parse(o, n, argv), OPTIONS_RUN);
}

/* Each worker process has the GID of the worker. */
static void test_options(void **state)
{
	static const struct {
		const char *device, *listen, *given;
		uint8_t gid[SRDMA_CTL_GID_LEN];
	} rows[] = {
		{ "shm:/x", NULL, NULL, { 0 } },
		{ "shm:/x", NULL, "10.0.0.7", FOUR(10, 0, 0, 7) },
		{ "udp", "10.0.0.1", NULL, FOUR(10, 0, 0, 1) },
		{ "udp", "10.0.0.1:5", "10.0.0.7", FOUR(10, 0, 0, 7) },
		{ "udp", "[fd00::9]:5", NULL, { 0xfd, [15] = 9 } },
		{ "udp", "[::ffff:1.2.3.4]", NULL, FOUR(1, 2, 3, 4) },
		{ "udp", "0.0.0.0", NULL, { 0 } },
		{ "udp", "[::]:5", NULL, { 0 } },
		{ "udp", "here", NULL, { 0 } },
		{ "rxe0", "10.0.0.1:0", NULL, FOUR(10, 0, 0, 1) },
		{ "rxe0", "0.0.0.0:0", NULL, { 0 } },
		{ "rxe0", NULL, NULL, { 0 } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct options o, second;

		parse(&o, rows[i].device, rows[i].listen, rows[i].given);
		assert_memory_equal(o.gid, rows[i].gid, sizeof(o.gid));
		assert_int_equal(options_of_process(&second, &o, 1),
				 OPTIONS_RUN);
		assert_memory_equal(second.gid, o.gid, sizeof(o.gid));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
