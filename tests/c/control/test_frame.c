/* Frames: complete ones are parsed, malformed ones are refused. */
#include "control/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint8_t buffer[FRAME_MAX + 1];

/* Writes a frame whose body are len bytes 7. */
static void put(uint32_t stream, size_t len)
{
	static uint8_t body[FRAME_BODY_MAX];
	struct queue q = { 0 };

	memset(body, 7, len);
	assert_int_equal(frame_put(&q, stream, FRAME_DATA, body, len), 0);
	assert_int_equal(q.first->len, FRAME_HEAD + len);
	memcpy(buffer, q.first->data, q.first->len);
	queue_clear(&q);
}

static void test_frame_is_parsed_as_it_was_written(void **state)
{
	static const size_t lengths[] = { 0, 1, 8192, FRAME_BODY_MAX };
	struct frame f;

	(void)state;
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		const size_t len = lengths[i];

		put(0x01020304, len);
		assert_int_equal(frame_parse(&f, buffer, FRAME_HEAD + len),
				 FRAME_HEAD + len);
		assert_int_equal(f.stream, 0x01020304);
		assert_int_equal(f.type, FRAME_DATA);
		assert_int_equal(f.len, len);
		assert_ptr_equal(f.body, buffer + FRAME_HEAD);
		assert_true(!len || (f.body[0] == 7 && f.body[len - 1] == 7));
		assert_int_equal(frame_parse(&f, buffer, sizeof(buffer)),
				 FRAME_HEAD + len);
	}
}

static void test_frame_that_is_not_complete_waits(void **state)
{
	struct frame f;

	(void)state;
	put(1, 5);
	for (size_t have = 0; have < FRAME_HEAD + 5; have++)
		assert_int_equal(frame_parse(&f, buffer, have), 0);
}

static void test_wrong_length_is_refused(void **state)
{
	static const uint8_t too_long[] = { 0, 1, 0, 5 };
	static const uint8_t huge[] = { 0xff, 0xff, 0xff, 0xff };
	static const uint8_t without_type[] = { 0, 0, 0, 4, 0, 0, 0, 0 };
	static const uint8_t empty[] = { 0, 0, 0, 0 };
	struct frame f;

	(void)state;
	assert_int_equal(frame_parse(&f, too_long, 4), -EMSGSIZE);
	assert_int_equal(frame_parse(&f, huge, 4), -EMSGSIZE);
	assert_int_equal(frame_parse(&f, without_type, 8), -EPROTO);
	assert_int_equal(frame_parse(&f, empty, 4), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame_is_parsed_as_it_was_written),
		cmocka_unit_test(test_frame_that_is_not_complete_waits),
		cmocka_unit_test(test_wrong_length_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
