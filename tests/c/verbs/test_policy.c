/* The policy that `srdma run` passes on (docs/run.md 3). */
#include "verbs/policy.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#define BASE "worker=/w\nagent=/a\nidentity=host-a\n"

static const char *read_text(struct verbs_policy *p, const char *text)
{
	if (text)
		setenv(VERBS_POLICY_ENV, text, 1);
	else
		unsetenv(VERBS_POLICY_ENV);
	return verbs_policy_read(p);
}

static void test_settings_are_read(void **state)
{
	struct verbs_policy p;

	(void)state;
	assert_null(read_text(&p, BASE "peer=10.0.0.0/24 spiffe://x/a "
				       "spiffe://x/b\n"));
	assert_string_equal(p.worker, "/w");
	assert_string_equal(p.agent, "/a");
	assert_string_equal(p.identity, "host-a");
	assert_int_equal(p.n, 1);
	assert_int_equal(p.peers[0].bits, 120);
	assert_int_equal(p.peers[0].n, 2);
	assert_string_equal(p.peers[0].allowed[1], "spiffe://x/b");
}

static void test_libraries_are_optional(void **state)
{
	struct verbs_policy p;

	(void)state;
	assert_null(read_text(&p, BASE));
	assert_null(p.libibverbs);
	assert_null(p.librdmacm);
	assert_null(read_text(&p, BASE "libibverbs=/v\nlibrdmacm=/c\n"));
	assert_string_equal(p.libibverbs, "/v");
	assert_string_equal(p.librdmacm, "/c");
}

static void test_bad_policies_are_refused(void **state)
{
	static const char *const bad[] = {
		NULL,
		"",
		"worker=/w\nagent=/a\n",
		BASE "colour=red\n",
		BASE "worker=\n",
		BASE "no equals sign\n",
		BASE "peer=\n",
		BASE "peer=10.0.0.0/24\n",
		BASE "peer=10.0.0.0/33 spiffe://x/a\n",
		BASE "peer=fd00::/129 spiffe://x/a\n",
		BASE "peer=10.0.0.0/ spiffe://x/a\n",
		BASE "peer=10.0.0.0/2x spiffe://x/a\n",
		BASE "peer=somewhere spiffe://x/a\n",
		BASE "peer=10.0.0.1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 "
		     "17\n",
	};
	struct verbs_policy p;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_non_null(read_text(&p, bad[i]));
}

static void test_limits(void **state)
{
	struct verbs_policy p;
	char *text = calloc(1, 2 * VERBS_POLICY_LEN);

	(void)state;
	strcpy(text, BASE);
	for (int i = 0; i < VERBS_PEERS; i++)
		sprintf(text + strlen(text), "peer=10.0.0.%d spiffe://x/a\n",
			i);
	assert_null(read_text(&p, text));
	strcat(text, "peer=10.0.1.0 spiffe://x/a\n");
	assert_non_null(read_text(&p, text));
	memset(text, 'x', VERBS_POLICY_LEN);
	assert_non_null(read_text(&p, text));
	free(text);
}

static void gid_of(uint8_t gid[16], uint8_t last, uint8_t before)
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 10;
	gid[14] = before;
	gid[15] = last;
}

static void test_narrowest_range_counts(void **state)
{
	struct verbs_policy p;
	uint8_t gid[16];

	(void)state;
	assert_null(read_text(&p, BASE "peer=10.0.0.0/16 wide\n"
				       "peer=10.0.3.0/24 narrow\n"
				       "peer=10.0.3.7 one\n"
				       "peer=10.0.4.0/22 odd\n"));
	gid_of(gid, 1, 9);
	assert_string_equal(verbs_policy_peer(&p, gid)->allowed[0], "wide");
	gid_of(gid, 1, 3);
	assert_string_equal(verbs_policy_peer(&p, gid)->allowed[0], "narrow");
	gid_of(gid, 7, 3);
	assert_string_equal(verbs_policy_peer(&p, gid)->allowed[0], "one");
	gid_of(gid, 7, 7);
	assert_string_equal(verbs_policy_peer(&p, gid)->allowed[0], "odd");
	gid_of(gid, 7, 8);
	assert_string_equal(verbs_policy_peer(&p, gid)->allowed[0], "wide");
	gid[12] = 11;
	assert_null(verbs_policy_peer(&p, gid));
}

static void test_identities_at_any_gid(void **state)
{
	const char *patterns[VERBS_PATTERNS];
	struct verbs_policy p;

	(void)state;
	assert_null(read_text(&p, BASE "peer=10.0.0.1 first second\n"
				       "peer=10.0.0.2 third\n"));
	assert_int_equal(verbs_policy_patterns(&p, patterns), 3);
	assert_string_equal(patterns[0], "first");
	assert_string_equal(patterns[1], "second");
	assert_string_equal(patterns[2], "third");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_settings_are_read),
		cmocka_unit_test(test_libraries_are_optional),
		cmocka_unit_test(test_bad_policies_are_refused),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_narrowest_range_counts),
		cmocka_unit_test(test_identities_at_any_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
