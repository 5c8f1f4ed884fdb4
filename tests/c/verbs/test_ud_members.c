/* Members of a multicast group (verbs/ud_members.c). */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "verbs/ud_members.h"

static struct ud_members m;
static const uint8_t gids[3][SRDMA_GID_LEN] = { { 1 }, { 2 }, { 3 } };

static int begin(void **state)
{
	(void)state;
	memset(&m, 0, sizeof(m));
	return 0;
}

static int end(void **state)
{
	(void)state;
	ud_members_forget(&m);
	return m.hosts != NULL;
}

static int tell_list(const uint8_t *gid, const uint32_t *qpns, unsigned n)
{
	uint8_t bytes[UD_TOLD * UD_MEMBER_LEN];
	const struct ud_told told = { .gid = gid,
				      .qpns = bytes,
				      .len = n * UD_MEMBER_LEN };

	for (unsigned i = 0; i < n; i++)
		srdma_store32(bytes + i * UD_MEMBER_LEN, qpns[i]);
	return ud_members_set(&m, &told);
}

/* A host has n members, whose QPNs begin with `first`. */
static void tell(unsigned host, uint32_t first, unsigned n)
{
	uint32_t qpns[UD_TOLD];

	for (unsigned i = 0; i < n; i++)
		qpns[i] = first + i;
	assert_int_equal(tell_list(gids[host], qpns, n), 0);
}

static unsigned copies_of(unsigned host)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m.n; i++)
		n += !memcmp(m.copies[i].gid, gids[host], SRDMA_GID_LEN);
	return n;
}

static int has(uint32_t qp_num)
{
	for (unsigned i = 0; i < m.n; i++)
		if (m.copies[i].member->qp_num == qp_num)
			return 1;
	return 0;
}

/* --- tests --------------------------------------------------------------------------- */

/* A host with 64 members does not take the copies of one with few. */
static void test_hosts_share_the_copies(void **state)
{
	(void)state;
	tell(0, 100, UD_TOLD);
	tell(1, 200, 10);
	assert_int_equal(copies_of(0), UD_MEMBERS_GID);
	assert_int_equal(copies_of(1), 10);
	assert_int_equal(m.left, UD_TOLD - UD_MEMBERS_GID);
	tell(1, 200, UD_TOLD);
	assert_int_equal(copies_of(0), UD_MEMBERS / 2);
	assert_int_equal(copies_of(1), UD_MEMBERS / 2);
	tell(2, 300, 1);
	assert_int_equal(m.n, UD_MEMBERS);
	assert_true(has(300));
	assert_int_equal(m.left, 2 * UD_TOLD + 1 - UD_MEMBERS);
}

/* A host that tells its members again does not fall behind the others. */
static void test_change_of_a_host(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		tell(i, 100 * (i + 1), UD_TOLD);
	tell(0, 101, UD_TOLD - 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(copies_of(i), UD_MEMBERS / 3);
	assert_false(has(100));
	assert_true(has(101));
	assert_true(has(200));
	tell(1, 0, 0);
	tell(1, 200, 1);
	assert_memory_equal(m.copies[1].gid, gids[1], SRDMA_GID_LEN);
}

/* The agent tells QPNs in ascending order. A new one does not take the place of another
 * one. */
static void test_new_member_with_a_lower_qpn(void **state)
{
	(void)state;
	tell(0, 100, UD_MEMBERS_GID);
	tell(0, 90, UD_MEMBERS_GID + 10);
	assert_int_equal(m.n, UD_MEMBERS_GID);
	for (unsigned i = 0; i < UD_MEMBERS_GID; i++)
		assert_int_equal(m.copies[i].member->qp_num, 100 + i);
	assert_int_equal(m.left, 10);
	tell(0, 90, UD_MEMBERS_GID);
	assert_int_equal(m.copies[0].member->qp_num, 100);
	assert_true(has(90));
	assert_int_equal(m.left, 0);
}

static void test_member_that_is_told_twice(void **state)
{
	static const uint32_t twice[] = { 7, 8, 7 };

	(void)state;
	assert_int_equal(tell_list(gids[0], twice, 3), 0);
	assert_int_equal(m.n, 2);
}

static void test_the_qp_itself(void **state)
{
	uint8_t bytes[2 * UD_MEMBER_LEN];
	const struct ud_told told = {
		.gid = gids[0], .qpns = bytes, .len = sizeof(bytes), .own = 7
	};

	(void)state;
	srdma_store32(bytes, 7);
	srdma_store32(bytes + UD_MEMBER_LEN, 8);
	assert_int_equal(ud_members_set(&m, &told), 0);
	assert_int_equal(m.n, 1);
	assert_true(has(8));
}

static void test_hosts_of_a_former_agent(void **state)
{
	uint8_t bytes[UD_MEMBER_LEN];
	const struct ud_told told = {
		.gid = gids[1], .qpns = bytes, .len = sizeof(bytes), .round = 1
	};

	(void)state;
	tell(0, 100, 3);
	tell(1, 200, 3);
	srdma_store32(bytes, 201);
	assert_int_equal(ud_members_set(&m, &told), 0);
	assert_int_equal(m.n, 4);
	ud_members_keep(&m, 1);
	assert_int_equal(m.n, 1);
	assert_true(has(201));
}

static void test_illegal_members(void **state)
{
	static const uint32_t illegal[][2] = { { 7, 0 }, { 7, 1 << 24 } };
	uint8_t bytes[SRDMA_DATA_MAX + UD_MEMBER_LEN] = { 0, 0, 0, 7 };
	struct ud_told told = { .gid = gids[0], .qpns = bytes };

	(void)state;
	tell(0, 100, 2);
	assert_int_equal(tell_list(gids[0], illegal[0], 2), -EPROTO);
	assert_int_equal(tell_list(gids[0], illegal[1], 2), -EPROTO);
	told.len = UD_MEMBER_LEN + 1;
	assert_int_equal(ud_members_set(&m, &told), -EPROTO);
	for (unsigned i = 0; i <= UD_TOLD; i++)
		srdma_store32(bytes + i * UD_MEMBER_LEN, 1 + i);
	told.len = sizeof(bytes);
	assert_int_equal(ud_members_set(&m, &told), -EPROTO);
	assert_int_equal(m.n, 2);
	assert_true(has(100));
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hosts_share_the_copies),
		TEST(test_change_of_a_host),
		TEST(test_new_member_with_a_lower_qpn),
		TEST(test_member_that_is_told_twice),
		TEST(test_the_qp_itself),
		TEST(test_hosts_of_a_former_agent),
		TEST(test_illegal_members),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
