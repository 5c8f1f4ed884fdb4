/* Properties of IP addresses. Other tests use their text form. */
#include "base/addr.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage out;

	assert_int_equal(srdma_addr_parse(&out, text, 0), 0);
	return out;
}

static void test_link_local_addresses(void **state)
{
	static const struct {
		const char *text;
		int is;
	} cases[] = {
		{ "[fe80::1]", 1 }, { "[febf::1]", 1 },	  { "[fec0::1]", 0 },
		{ "[::1]", 0 },	    { "169.254.0.1", 0 }, { "10.0.0.1", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct sockaddr_storage a = address(cases[i].text);

		assert_int_equal(srdma_addr_is_link_local(&a), cases[i].is);
	}
}

static void test_same_ip_with_other_ports_and_interfaces(void **state)
{
	static const struct {
		const char *a, *b;
		int same;
	} cases[] = {
		{ "10.0.0.1:5", "10.0.0.1:6", 1 },
		{ "10.0.0.1", "10.0.0.2", 0 },
		{ "[fe80::1]:5", "[fe80::1]:6", 1 },
		{ "[fe80::1]", "[fe80::2]", 0 },
		{ "10.0.0.1", "[::ffff:10.0.0.1]", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sockaddr_storage a = address(cases[i].a);
		const struct sockaddr_storage b = address(cases[i].b);

		if (a.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&a)->sin6_scope_id = 7;
		assert_int_equal(
			srdma_addr_same_ip((const struct sockaddr *)&a,
					   (const struct sockaddr *)&b),
			cases[i].same);
	}
}

static void test_address_of_a_gid(void **state)
{
	static const struct {
		const char *gid, *text;
	} cases[] = {
		{ "::ffff:10.0.0.1", "10.0.0.1:0" },
		{ "2001:db8::1", "[2001:db8::1]:0" },
		{ "fe80::1", "[fe80::1]:0" },
	};
	char text[SRDMA_NAME_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sockaddr_storage out;
		struct in6_addr gid;

		assert_int_equal(inet_pton(AF_INET6, cases[i].gid, &gid), 1);
		srdma_addr_of_gid(&out, &gid);
		srdma_addr_format(text, (const struct sockaddr *)&out);
		assert_string_equal(text, cases[i].text);
	}
}

static void test_gid_of_an_address(void **state)
{
	struct in6_addr gid, expected;
	struct in_addr ip;

	(void)state;
	assert_int_equal(inet_pton(AF_INET, "10.1.2.3", &ip), 1);
	assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.3", &expected), 1);
	srdma_addr_gid_of4(gid.s6_addr, &ip);
	assert_memory_equal(&gid, &expected, sizeof(gid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_link_local_addresses),
		cmocka_unit_test(test_same_ip_with_other_ports_and_interfaces),
		cmocka_unit_test(test_address_of_a_gid),
		cmocka_unit_test(test_gid_of_an_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
