/* The queue counts the memory that it uses, and is empty after its last byte. */
#include "control/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { CHUNKS = 1000 };

static void fill(struct queue *q, size_t len)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		uint8_t *data = queue_add(q, len);

		assert_non_null(data);
		memset(data, 7, len);
	}
}

static void test_short_messages_are_counted_with_their_chunks(void **state)
{
	struct queue q = { 0 };

	(void)state;
	fill(&q, 1);
	assert_true(q.bytes >= CHUNKS * (sizeof(struct chunk) + 1));
	queue_clear(&q);
	assert_int_equal(q.bytes, 0);
	assert_null(q.first);
	assert_null(q.last);
}

static void test_parts_of_a_chunk_leave_the_queue(void **state)
{
	struct queue q = { 0 };
	size_t before;

	(void)state;
	fill(&q, 10);
	before = q.bytes;
	queue_take(&q, 4);
	assert_int_equal(before - q.bytes, 4);
	queue_take(&q, 6);
	assert_int_equal(before - q.bytes, sizeof(struct chunk) + 10);
	queue_take(&q, 4);
	queue_clear(&q);
	assert_int_equal(q.bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_short_messages_are_counted_with_their_chunks),
		cmocka_unit_test(test_parts_of_a_chunk_leave_the_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
