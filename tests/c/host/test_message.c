/* Messages between a program and its agent (agent.md 2). */
#include "host/message.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int parse(struct srdma_agent_event *e, const struct srdma_message *w)
{
	return srdma_message_parse(e, w->data + SRDMA_MESSAGE_LENGTH,
				   w->len - SRDMA_MESSAGE_LENGTH);
}

/* Begins an event with this many fields besides its name. */
static void begin(struct srdma_message *w, size_t fields)
{
	srdma_message_free(w);
	srdma_message_map(w, fields + 1);
	srdma_message_text(w, "event");
	srdma_message_text(w, "x");
}

static void expect_illegal(struct srdma_message *w)
{
	struct srdma_agent_event e;

	assert_int_equal(srdma_message_finish(w), 0);
	assert_int_equal(parse(&e, w), -EPROTO);
	srdma_message_free(w);
}

/* --- writing ------------------------------------------------------------- */

static void test_bytes_of_a_message(void **state)
{
	static const uint8_t want[] = {
		0,    0,   0,	 12,			/* length */
		0xa2,					/* a map of 2 */
		0x61, 'a', 0x82, 0x18, 100, 0x41, 0xff, /* "a": [100, h'ff'] */
		0x62, 'b', 'c',	 0x00,			/* "bc": 0 */
	};
	struct srdma_message w = { 0 };

	(void)state;
	srdma_message_map(&w, 2);
	srdma_message_text(&w, "a");
	srdma_message_array(&w, 2);
	srdma_message_uint(&w, 100);
	srdma_message_bytes(&w, "\xff", 1);
	srdma_message_text(&w, "bc");
	srdma_message_uint(&w, 0);
	assert_int_equal(srdma_message_finish(&w), 0);
	assert_int_equal(w.len, sizeof(want));
	assert_memory_equal(w.data, want, sizeof(want));
	srdma_message_free(&w);
	assert_int_equal(srdma_message_finish(&w), -ENOMEM);
}

static void test_longest_message(void **state)
{
	static uint8_t data[SRDMA_AGENT_MAX];
	struct srdma_message w = { 0 };

	(void)state;
	srdma_message_bytes(&w, data, SRDMA_AGENT_MAX / 2);
	assert_int_equal(srdma_message_finish(&w), 0);
	srdma_message_bytes(&w, data, SRDMA_AGENT_MAX / 2);
	assert_int_equal(srdma_message_finish(&w), -ENOMEM);
	srdma_message_free(&w);
	srdma_message_bytes(&w, data, SRDMA_AGENT_MAX);
	assert_int_equal(srdma_message_finish(&w), -ENOMEM);
	srdma_message_free(&w);
}

/* --- parsing ------------------------------------------------------------- */

static void test_peer(void **state)
{
	struct srdma_message w = { 0 };
	struct srdma_agent_event e;

	(void)state;
	begin(&w, 6);
	srdma_message_text(&w, "identity");
	srdma_message_text(&w, "spiffe://x/y");
	srdma_message_text(&w, "data");
	srdma_message_bytes(&w, "\0\1", 2);
	srdma_message_text(&w, "suite");
	srdma_message_array(&w, 3);
	srdma_message_uint(&w, 2);
	srdma_message_uint(&w, 3);
	srdma_message_uint(&w, 16);
	srdma_message_text(&w, "mode");
	srdma_message_uint(&w, 2);
	srdma_message_text(&w, "trust_group"); /* not used */
	srdma_message_text(&w, "");
	srdma_message_text(&w, "wish");
	srdma_message_uint(&w, 1ULL << 40);
	assert_int_equal(parse(&e, &w), 0);
	assert_string_equal(e.event, "x");
	assert_string_equal(e.peer.identity, "spiffe://x/y");
	assert_int_equal(e.peer.data_len, 2);
	assert_memory_equal(e.peer.data, "\0\1", 2);
	assert_int_equal(e.peer.protection.suite, 2);
	assert_int_equal(e.peer.protection.level, 3);
	assert_int_equal(e.peer.protection.tag_len, 16);
	assert_int_equal(e.peer.mode, 2);
	assert_true(e.wish == 1ULL << 40);
	assert_int_equal(e.arrival, 0);
	srdma_message_free(&w);
}

static void test_error_with_a_long_text(void **state)
{
	struct srdma_message w = { 0 };
	struct srdma_agent_event e;
	char text[2000];

	(void)state;
	memset(text, 't', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	begin(&w, 2);
	srdma_message_text(&w, "code");
	srdma_message_text(&w, "tls");
	srdma_message_text(&w, "text");
	srdma_message_text(&w, text);
	assert_int_equal(parse(&e, &w), 0);
	assert_string_equal(e.code, "tls");
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
	srdma_message_free(&w);
}

static void test_bytes_that_are_no_map(void **state)
{
	static const char *const wrong[] = {
		"",	    /* nothing */
		"\xff",	    /* an end without a beginning */
		"\xa1",	    /* a map without its pair */
		"\x01",	    /* a number */
		"\x81\x01", /* an array */
		"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", /* a map of 2^64 - 1 */
		"\xa1\x01\x01", /* a key that is no text */
		"\xa1\x65"
		"event\x7f\x61x\xff", /* text of unknown length */
		"\xa1\x65"
		"event\x60", /* an event without a name */
		"\xa1\x64"
		"code\x60", /* no event */
		"\xa1\x65"
		"event\x61x\x01", /* a second item */
	};
	struct srdma_agent_event e;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(srdma_message_parse(&e,
						     (const uint8_t *)wrong[i],
						     strlen(wrong[i])),
				 -EPROTO);
}

/* An array that announces 2^32 - 1 items, and arrays in arrays: neither takes
 * memory, or the stack, in proportion. */
static void test_sizes_are_judged_first(void **state)
{
	static const uint8_t array[] = { 0x9a, 0xff, 0xff, 0xff, 0xff, 0xff };
	static const uint8_t map[] = { 0xba, 0xff, 0xff, 0xff, 0xff, 0x60 };
	static uint8_t nested[SRDMA_AGENT_MAX];
	struct srdma_agent_event e;

	(void)state;
	assert_int_equal(srdma_message_parse(&e, array, sizeof(array)),
			 -EPROTO);
	assert_int_equal(srdma_message_parse(&e, map, sizeof(map)), -EPROTO);
	for (int first = 0x81; first <= 0x9f; first += 0x1e) {
		memset(nested, first, sizeof(nested) - 1);
		assert_int_equal(
			srdma_message_parse(&e, nested, sizeof(nested)),
			-EPROTO);
	}
}

static void test_fields_of_wrong_types(void **state)
{
	static const char *const texts[] = { "code", "text", "identity",
					     "address" };
	static const char *const others[] = { "data",	 "suite", "mode",
					      "arrival", "wish",  "remote",
					      "lasting" };
	static const uint8_t data[SRDMA_DATA_MAX + 1];
	struct srdma_message w = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		begin(&w, 1);
		srdma_message_text(&w, texts[i]);
		srdma_message_uint(&w, 1);
		expect_illegal(&w);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		begin(&w, 1);
		srdma_message_text(&w, others[i]);
		srdma_message_text(&w, "1");
		expect_illegal(&w);
	}
	begin(&w, 1);
	srdma_message_text(&w, "mode");
	srdma_message_uint(&w, 256);
	expect_illegal(&w);
	for (size_t n = 1; n < 3; n++) { /* [65536] and [65536, 65536] */
		begin(&w, 1);
		srdma_message_text(&w, "address");
		srdma_message_array(&w, n);
		for (size_t i = 0; i < n; i++)
			srdma_message_uint(&w, 65536);
		expect_illegal(&w);
	}
	begin(&w, 1);
	srdma_message_text(&w, "data");
	srdma_message_bytes(&w, data, sizeof(data));
	expect_illegal(&w);
	begin(&w, 1);
	srdma_message_text(&w, "suite");
	srdma_message_array(&w, 2);
	srdma_message_uint(&w, 1);
	srdma_message_uint(&w, 1);
	expect_illegal(&w);
}

/* A float has the major type of true and false. */
static void test_float_in_place_of_a_bool(void **state)
{
	static const uint8_t begin_of_map[] = "\xa2\x65"
					      "event\x66"
					      "opened\x67"
					      "lasting";
	static const uint8_t others[][9] = {
		{ 0xf6 }, { 0xf7 }, { 0xf9 }, { 0xfa }, { 0xfb },
	};
	static const size_t lens[] = { 1, 1, 3, 5, 9 };
	uint8_t bytes[sizeof(begin_of_map) - 1 + sizeof(others[0])];
	struct srdma_agent_event e;

	(void)state;
	memcpy(bytes, begin_of_map, sizeof(begin_of_map) - 1);
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		memcpy(bytes + sizeof(begin_of_map) - 1, others[i], lens[i]);
		assert_int_equal(
			srdma_message_parse(&e, bytes,
					    sizeof(begin_of_map) - 1 + lens[i]),
			-EPROTO);
	}
}

/* `address` of `listening` is [host, port], that of `refused` is a text. */
static void test_address_of_a_refused_peer(void **state)
{
	struct srdma_message w = { 0 };
	struct srdma_agent_event e;

	(void)state;
	begin(&w, 1);
	srdma_message_text(&w, "address");
	srdma_message_text(&w, "192.0.2.1");
	assert_int_equal(srdma_message_finish(&w), 0);
	assert_int_equal(parse(&e, &w), 0);
	assert_int_equal(e.port, 0);
	srdma_message_free(&w);
}

static void test_identity(void **state)
{
	struct srdma_message w = { 0 };
	struct srdma_agent_event e;
	char name[SRDMA_IDENTITY_LEN + 1];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[SRDMA_IDENTITY_LEN - 1] = '\0';
	begin(&w, 1);
	srdma_message_text(&w, "identity");
	srdma_message_text(&w, name); /* 255 bytes */
	assert_int_equal(srdma_message_finish(&w), 0);
	assert_int_equal(parse(&e, &w), 0);
	assert_string_equal(e.peer.identity, name);
	w.data[w.len - 1] = '\0';
	assert_int_equal(parse(&e, &w), -EPROTO);
	name[SRDMA_IDENTITY_LEN - 1] = 'x';
	name[SRDMA_IDENTITY_LEN] = '\0';
	begin(&w, 1);
	srdma_message_text(&w, "identity");
	srdma_message_text(&w, name);
	expect_illegal(&w);
}

/* --- talks ---------------------------------------------------------------- */

static void test_fields_of_talks(void **state)
{
	static const uint8_t gid[SRDMA_GID_LEN] = { 1, 2, 3 };
	struct srdma_message w = { 0 };
	struct srdma_agent_event e;

	(void)state;
	begin(&w, 3);
	srdma_message_text(&w, "port");
	srdma_message_uint(&w, 65535);
	srdma_message_text(&w, "talk");
	srdma_message_uint(&w, UINT64_MAX);
	srdma_message_text(&w, "gid");
	srdma_message_bytes(&w, gid, sizeof(gid));
	assert_int_equal(srdma_message_finish(&w), 0);
	assert_int_equal(parse(&e, &w), 0);
	assert_int_equal(e.port, 65535);
	assert_true(e.has_talk);
	assert_int_equal(e.talk, UINT64_MAX);
	assert_memory_equal(e.gid, gid, sizeof(gid));
	srdma_message_free(&w);
}

static void test_illegal_fields_of_talks(void **state)
{
	static const uint8_t gid[SRDMA_GID_LEN + 1];
	static const char *const numbers[] = { "port", "talk" };
	struct srdma_message w = { 0 };

	(void)state;
	for (size_t len = 0; len <= sizeof(gid); len++) {
		if (len == SRDMA_GID_LEN)
			continue;
		begin(&w, 1);
		srdma_message_text(&w, "gid");
		srdma_message_bytes(&w, gid, len);
		expect_illegal(&w);
	}
	begin(&w, 1);
	srdma_message_text(&w, "port");
	srdma_message_uint(&w, 65536);
	expect_illegal(&w);
	for (size_t i = 0; i < 2; i++) {
		begin(&w, 1);
		srdma_message_text(&w, numbers[i]);
		srdma_message_text(&w, "1");
		expect_illegal(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields_of_talks),
		cmocka_unit_test(test_illegal_fields_of_talks),
		cmocka_unit_test(test_bytes_of_a_message),
		cmocka_unit_test(test_longest_message),
		cmocka_unit_test(test_peer),
		cmocka_unit_test(test_error_with_a_long_text),
		cmocka_unit_test(test_bytes_that_are_no_map),
		cmocka_unit_test(test_sizes_are_judged_first),
		cmocka_unit_test(test_fields_of_wrong_types),
		cmocka_unit_test(test_float_in_place_of_a_bool),
		cmocka_unit_test(test_address_of_a_refused_peer),
		cmocka_unit_test(test_identity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
