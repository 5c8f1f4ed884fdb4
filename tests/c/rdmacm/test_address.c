/* Addresses of RDMA-CM and GIDs (docs/run.md 5). */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/addr.h"
#include "rdmacm/objects.h"

static const uint8_t v4[SRDMA_GID_LEN] = { [10] = 0xff, 0xff, 10, 0, 0, 9 };
static const uint8_t v6[SRDMA_GID_LEN] = { 0xfd, [15] = 1 };

static void test_gids_become_addresses(void **state)
{
	const struct {
		const uint8_t *gid;
		int family;
		socklen_t len;
	} rows[] = { { v4, AF_INET, sizeof(struct sockaddr_in) },
		     { v6, AF_INET6, sizeof(struct sockaddr_in6) } };
	struct sockaddr_storage a;
	struct sockaddr *any = (struct sockaddr *)&a;
	uint8_t gid[SRDMA_GID_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		cm_address_of(&a, rows[i].gid, 7000);
		assert_int_equal(a.ss_family, rows[i].family);
		assert_int_equal(cm_address_len(any), rows[i].len);
		assert_int_equal(srdma_addr_port(any), 7000);
		assert_int_equal(cm_address_gid(gid, any), 0);
		assert_memory_equal(gid, rows[i].gid, sizeof(gid));
		assert_false(cm_address_any(any));
	}
}

static void test_any_address(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

	(void)state;
	assert_true(cm_address_any((struct sockaddr *)&in));
	assert_true(cm_address_any((struct sockaddr *)&in6));
	in6.sin6_addr.s6_addr[15] = 1;
	assert_false(cm_address_any((struct sockaddr *)&in6));
}

static void test_localhost(void **state)
{
	const struct {
		const char *text;
		int family, localhost;
	} rows[] = { { "127.0.0.1", AF_INET, 1 }, { "127.0.0.2", AF_INET, 0 },
		     { "0.0.0.0", AF_INET, 0 },	  { "::1", AF_INET6, 1 },
		     { "::2", AF_INET6, 0 },	  { "::", AF_INET6, 0 } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct sockaddr_in in = { .sin_family = AF_INET };
		struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
		const int four = rows[i].family == AF_INET;

		assert_int_equal(inet_pton(rows[i].family, rows[i].text,
					   four ? (void *)&in.sin_addr
						: (void *)&in6.sin6_addr),
				 1);
		assert_int_equal(
			cm_address_localhost(four ? (struct sockaddr *)&in
						  : (struct sockaddr *)&in6),
			rows[i].localhost);
	}
}

static void test_other_families(void **state)
{
	const struct sockaddr a = { .sa_family = AF_UNIX };
	uint8_t gid[SRDMA_GID_LEN];

	(void)state;
	assert_int_equal(cm_address_gid(gid, &a), -EAFNOSUPPORT);
	assert_false(cm_address_any(&a));
	assert_false(cm_address_localhost(&a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gids_become_addresses),
		cmocka_unit_test(test_any_address),
		cmocka_unit_test(test_localhost),
		cmocka_unit_test(test_other_families),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
