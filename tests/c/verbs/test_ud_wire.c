/* The messages between UD QPs (docs/run.md 4.1). */
#include "verbs/ud_wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "verbs/group_gid.h"

static const struct ud_hello request = { UD_REQUEST, 0x010203, 0xffffff };
static const struct ud_hello reply = { UD_REPLY, 0, 1 };
static const struct ud_hello ready = { UD_READY, 0, 1 };

static void comes_back(const struct ud_hello *h)
{
	uint8_t bytes[UD_HELLO];
	struct ud_hello found;

	ud_hello_write(bytes, h);
	assert_int_equal(ud_hello_read(&found, bytes, sizeof(bytes)), 0);
	assert_int_equal(found.kind, h->kind);
	assert_int_equal(found.ud, h->ud);
	assert_int_equal(found.session, h->session);
}

static void test_hello(void **state)
{
	static const uint8_t expected[UD_HELLO] = { 2, 1, 0, 0,	  0,   1,
						    2, 3, 0, 255, 255, 255 };
	uint8_t bytes[UD_HELLO];

	(void)state;
	ud_hello_write(bytes, &request);
	assert_memory_equal(bytes, expected, UD_HELLO);
	comes_back(&request);
	comes_back(&reply);
	comes_back(&ready);
}

/* One byte of a message has another value. */
static void refuse(const struct ud_hello *h, size_t at, uint8_t value)
{
	uint8_t bytes[UD_HELLO];
	struct ud_hello found;

	ud_hello_write(bytes, h);
	assert_int_not_equal(bytes[at], value);
	bytes[at] = value;
	assert_int_equal(ud_hello_read(&found, bytes, sizeof(bytes)), -EPROTO);
}

static void test_illegal_hello(void **state)
{
	const struct ud_hello none = { UD_REQUEST, 0, 1 };
	const struct ud_hello no_session = { UD_REQUEST, 1, 0 };
	uint8_t bytes[UD_HELLO + 1] = { 0 };
	struct ud_hello found;

	(void)state;
	refuse(&request, 0, 1); /* its ends do not say ready */
	refuse(&request, 0, 3);
	refuse(&request, 1, 4);
	refuse(&request, 1, 0);
	refuse(&request, 2, 1);
	refuse(&request, 3, 1);
	refuse(&request, 4, 1); /* a QPN has 24 bits */
	refuse(&request, 8, 1);
	refuse(&reply, 7, 1);
	refuse(&ready, 7, 1);
	refuse(&ready, 11, 0);
	ud_hello_write(bytes, &none);
	assert_int_equal(ud_hello_read(&found, bytes, UD_HELLO), -EPROTO);
	ud_hello_write(bytes, &no_session);
	assert_int_equal(ud_hello_read(&found, bytes, UD_HELLO), -EPROTO);
	ud_hello_write(bytes, &request);
	assert_int_equal(ud_hello_read(&found, bytes, UD_HELLO - 1), -EPROTO);
	assert_int_equal(ud_hello_read(&found, bytes, UD_HELLO + 1), -EPROTO);
	assert_int_equal(ud_hello_read(&found, bytes, 0), -EPROTO);
}

static void test_head(void **state)
{
	static const uint8_t expected[UD_HEAD] = { 1, 0, 0, 0, 0x11, 0, 0, 2 };
	const struct ud_head head = { .qkey = 0x11000002 };
	uint8_t bytes[UD_HEAD_MAX] = { 0 };
	struct ud_head found;

	(void)state;
	ud_head_write(bytes, &head);
	assert_memory_equal(bytes, expected, UD_HEAD);
	assert_int_equal(ud_head_read(&found, bytes, UD_HEAD), 0);
	assert_int_equal(found.qkey, 0x11000002);
	assert_null(found.group);
	assert_int_equal(ud_head_len(&found), UD_HEAD);
	assert_int_equal(ud_head_read(&found, bytes, UD_HEAD - 1), -EPROTO);
	for (int i = 0; i < 4; i++) {
		ud_head_write(bytes, &head);
		bytes[i] ^= 0x80;
		assert_int_equal(ud_head_read(&found, bytes, sizeof(bytes)),
				 -EPROTO);
	}
}

static void test_head_of_a_group(void **state)
{
	static const uint8_t expected[UD_HEAD_MAX] = {
		2, 0, 0, 0, 0, 0, 0,	5,    0,   0, 0, 0,
		0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3
	};
	const struct ud_head head = { 5, expected + UD_HEAD };
	uint8_t bytes[UD_HEAD_MAX];
	struct ud_head found;

	(void)state;
	ud_head_write(bytes, &head);
	assert_memory_equal(bytes, expected, UD_HEAD_MAX);
	assert_int_equal(ud_head_read(&found, bytes, UD_HEAD_MAX), 0);
	assert_int_equal(found.qkey, 5);
	assert_ptr_equal(found.group, bytes + UD_HEAD);
	assert_int_equal(ud_head_len(&found), UD_HEAD_MAX);
	assert_int_equal(ud_head_read(&found, bytes, UD_HEAD_MAX - 1), -EPROTO);
	bytes[0] = 3;
	assert_int_equal(ud_head_read(&found, bytes, UD_HEAD_MAX), -EPROTO);
	bytes[0] = 2;
	bytes[20] = 10; /* a GID of a host */
	assert_int_equal(ud_head_read(&found, bytes, UD_HEAD_MAX), -EPROTO);
}

static void test_gids_of_groups(void **state)
{
	static const struct {
		uint8_t first, before, ipv4;
		int group;
	} cases[] = {
		{ 0xff, 0, 0, 1 },    { 0xfe, 0, 0, 0 },
		{ 0, 0xff, 0xe0, 1 }, { 0, 0xff, 0xef, 1 },
		{ 0, 0xff, 0xdf, 0 }, { 0, 0xff, 0xf0, 0 },
		{ 0, 0, 0xe0, 0 },    { 1, 0xff, 0xe0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const uint8_t gid[16] = { [0] = cases[i].first,
					  [10] = cases[i].before,
					  [11] = cases[i].before,
					  [12] = cases[i].ipv4 };

		assert_int_equal(verbs_gid_is_group(gid), cases[i].group);
	}
}

static void test_grh(void **state)
{
	uint8_t from[SRDMA_GID_LEN], to[SRDMA_GID_LEN], bytes[UD_GRH];
	const struct ud_route route = { from, to, 0x102 };
	static const uint8_t start[8] = { 0x60, 0, 0, 0, 1, 2, 0x1b, 64 };

	(void)state;
	memset(from, 1, sizeof(from));
	memset(to, 2, sizeof(to));
	ud_grh_write(bytes, &route);
	assert_memory_equal(bytes, start, sizeof(start));
	assert_memory_equal(bytes + 8, from, sizeof(from));
	assert_memory_equal(bytes + 24, to, sizeof(to));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_illegal_hello),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_head_of_a_group),
		cmocka_unit_test(test_gids_of_groups),
		cmocka_unit_test(test_grh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
