/* Maps of the control link: deterministic CBOR is accepted, any other input is
 * refused, and values are found by their keys. */
#include "control/fields.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct input {
	const char *bytes;
	size_t len;
};

#define INPUT(text)                                                            \
	{                                                                      \
		text, sizeof(text) - 1                                         \
	}

static int check(const struct input *in)
{
	return fields_check((const uint8_t *)in->bytes, in->len);
}

static void test_deterministic_maps_are_accepted(void **state)
{
	static const struct input inputs[] = {
		INPUT("\xa0"),
		INPUT("\xa1\x61"
		      "a\x00"),
		INPUT("\xa1\x61"
		      "a\x17"),
		INPUT("\xa1\x61"
		      "a\x18\x18"),
		INPUT("\xa1\x61"
		      "a\x19\x01\x00"),
		INPUT("\xa1\x61"
		      "a\x1a\x00\x01\x00\x00"),
		INPUT("\xa1\x61"
		      "a\x1b\x00\x00\x00\x01\x00\x00\x00\x00"),
		INPUT("\xa1\x61"
		      "a\x20"), /* a negative number */
		INPUT("\xa1\x61"
		      "a\x42\xff\x00"), /* bytes */
		INPUT("\xa1\x61"
		      "a\x64"
		      "\xc3\xa9\x00x"), /* text with a zero byte */
		INPUT("\xa1\x61"
		      "a\x82\x01\xa1\x61"
		      "b\x80"), /* array, map, empty array */
		INPUT("\xa2\x61"
		      "a\xf5\x61"
		      "b\xf4"), /* true, false */
		INPUT("\xa3\x61"
		      "b\x01\x62"
		      "aa\x01\x62"
		      "ab\x01"), /* shorter keys first */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++)
		assert_int_equal(check(&inputs[i]), 0);
}

static void test_other_input_is_refused(void **state)
{
	static const struct input inputs[] = {
		INPUT(""),
		INPUT("\x01"), /* not a map */
		INPUT("\x80"),
		INPUT("\xa0\xa0"), /* bytes behind the map */
		INPUT("\xa1\x61"
		      "a"),	       /* no value */
		INPUT("\xa1\x01\x01"), /* a key that is not text */
		INPUT("\xa1\x61"
		      "a\x18"), /* cut */
		INPUT("\xa1\x61"
		      "a\x18\x17"), /* not the shortest form */
		INPUT("\xa1\x61"
		      "a\x19\x00\xff"),
		INPUT("\xa1\x61"
		      "a\x1a\x00\x00\xff\xff"),
		INPUT("\xa1\x61"
		      "a\x1b\x00\x00\x00\x00\xff\xff\xff\xff"),
		INPUT("\xa1\x61"
		      "a\x1c"),	   /* reserved */
		INPUT("\xbf\xff"), /* indefinite length */
		INPUT("\xa1\x61"
		      "a\x7f\x61"
		      "b\xff"),
		INPUT("\xa1\x61"
		      "a\x62"
		      "b"), /* text that is cut */
		INPUT("\xa1\x61"
		      "a\x61\xff"), /* not UTF-8 */
		INPUT("\xa1\x61"
		      "a\x5b\xff\xff\xff\xff\xff\xff\xff\xff"),
		INPUT("\xa1\x61"
		      "a\x9b\xff\xff\xff\xff\xff\xff\xff\xff"),
		INPUT("\xbb\xff\xff\xff\xff\xff\xff\xff\xff"),
		INPUT("\xa2\x61"
		      "b\x01\x61"
		      "a\x01"), /* wrong order */
		INPUT("\xa2\x62"
		      "aa\x01\x61"
		      "b\x01"),
		INPUT("\xa2\x61"
		      "a\x01\x61"
		      "a\x01"), /* a key twice */
		INPUT("\xa1\x61"
		      "a\xc0\x00"), /* tag */
		INPUT("\xa1\x61"
		      "a\xf6"), /* null */
		INPUT("\xa1\x61"
		      "a\xf8\x15"),
		INPUT("\xa1\x61"
		      "a\xf9\x00\x00"), /* float */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++)
		assert_int_equal(check(&inputs[i]), -EPROTO);
}

/* {"a": [[...]]}: arrays of this depth inside the map. */
static int check_depth(unsigned depth)
{
	uint8_t in[64] = { 0xa1, 0x61, 'a' };

	memset(in + 3, 0x81, depth);
	in[3 + depth - 1] = 0x80;
	return fields_check(in, 3 + depth);
}

static void test_nested_values_are_limited(void **state)
{
	(void)state;
	assert_int_equal(check_depth(15), 0);
	assert_int_equal(check_depth(16), -EPROTO);
}

static void test_every_cut_of_a_map_is_refused(void **state)
{
	static const char map[] = "\xa2\x64name\x63nic\x64time\x1a\x69\x00\x00"
				  "\x00";

	(void)state;
	for (size_t len = 0; len < sizeof(map) - 1; len++)
		assert_int_equal(fields_check((const uint8_t *)map, len),
				 -EPROTO);
	assert_int_equal(fields_check((const uint8_t *)map, sizeof(map) - 1),
			 0);
}

static void test_values_are_found(void **state)
{
	static const char map[] = "\xa4\x61"
				  "a\x81\x61"
				  "x\x61"
				  "b\xa1\x61"
				  "x\x01\x61"
				  "x\x18\x2a\x61"
				  "y\x62ok";
	const uint8_t *in = (const uint8_t *)map;
	const size_t len = sizeof(map) - 1;
	struct field f;

	(void)state;
	assert_int_equal(fields_check(in, len), 0);
	assert_int_equal(fields_find(&f, in, len, "x"), 1);
	assert_int_equal(f.type, FIELD_UINT);
	assert_int_equal(f.number, 42);
	assert_int_equal(fields_find(&f, in, len, "y"), 1);
	assert_int_equal(f.type, FIELD_TEXT);
	assert_int_equal(f.len, 2);
	assert_memory_equal(f.text, "ok", 2);
	assert_int_equal(fields_find(&f, in, len, "a"), 1);
	assert_int_not_equal(f.type, FIELD_TEXT);
	assert_int_equal(fields_find(&f, in, len, "z"), 0);
	assert_int_equal(fields_find(&f, in, len, ""), 0);
	assert_int_equal(fields_find(&f, (const uint8_t *)"\xa0", 1, "x"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deterministic_maps_are_accepted),
		cmocka_unit_test(test_other_input_is_refused),
		cmocka_unit_test(test_nested_values_are_limited),
		cmocka_unit_test(test_every_cut_of_a_map_is_refused),
		cmocka_unit_test(test_values_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
