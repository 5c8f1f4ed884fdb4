/* The table of streams: each stream is found by its number until it is removed. */
#include "control/streams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Streams of this test. The linker takes this function instead of stream.c's. */
struct stream {
	uint32_t number;
};

uint32_t stream_number(const struct stream *s)
{
	return s->number;
}

static struct streams table;
static struct stream stream[STREAMS_MAX];

static void fill(uint32_t first, uint32_t step)
{
	memset(&table, 0, sizeof(table));
	for (uint32_t i = 0; i < STREAMS_MAX; i++) {
		stream[i].number = first + i * step;
		streams_add(&table, &stream[i]);
	}
	assert_int_equal(table.count, STREAMS_MAX);
}

/* removed 1: the streams with the index i % 3 == 0 were removed. */
static void check(int removed)
{
	for (uint32_t i = 0; i < STREAMS_MAX; i++) {
		struct stream *found = streams_find(&table, stream[i].number);

		assert_ptr_equal(found,
				 removed && i % 3 == 0 ? NULL : &stream[i]);
	}
}

static void test_streams_are_found_until_they_are_removed(void **state)
{
	static const uint32_t firsts[] = { 1, 1000000, UINT32_MAX - 100000 };
	static const uint32_t steps[] = { 1, 7, 2 * STREAMS_MAX };

	(void)state;
	for (unsigned n = 0; n < 3; n++) {
		fill(firsts[n], steps[n]);
		check(0);
		assert_null(streams_find(&table, firsts[n] - 1));
		for (uint32_t i = 0; i < STREAMS_MAX; i += 3)
			streams_remove(&table, &stream[i]);
		check(1);
		for (uint32_t i = 0; i < STREAMS_MAX; i += 3)
			streams_add(&table, &stream[i]);
		check(0);
		for (uint32_t i = 0; i < STREAMS_MAX; i++)
			streams_remove(&table, &stream[i]);
		assert_int_equal(table.count, 0);
		for (unsigned i = 0; i < 2 * STREAMS_MAX; i++)
			assert_null(table.place[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams_are_found_until_they_are_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
