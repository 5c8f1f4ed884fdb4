/* The agent's side of the control link: legal frames have their meaning, others
 * are refused (docs/control-link.md 2, 3). tests/control_players.py has the
 * refusals that both agents have in common. */
#include "control/protocol.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HELLO "\xa2\x64name\x64peer\x64time\x1a\x70\x00\x00\x00"
#define OPEN  "\xa3\x62to\x66worker\x63uid\x01\x64path\x65/w.ct"

static struct protocol p;
static struct reason r;

static int reset(void **state)
{
	(void)state;
	p = (struct protocol){ .next = 1 };
	memset(&r, 0, sizeof(r));
	return 0;
}

static int take(uint32_t stream, uint8_t type, const char *body, size_t len,
		int live)
{
	const struct frame f = { stream, type, (const uint8_t *)body, len };

	return protocol_take(&p, &f, live, &r);
}

#define TAKE(stream, type, body, live)                                         \
	take(stream, type, body, sizeof(body) - 1, live)

static void greet(void)
{
	assert_int_equal(TAKE(0, FRAME_HELLO, HELLO, 0), PROTOCOL_GREETED);
}

static void test_hello_comes_first(void **state)
{
	(void)state;
	assert_int_equal(TAKE(0, FRAME_HEARTBEAT, "", 0), -EPROTO);
	assert_string_equal(r.text, "the first frame must be HELLO");
	assert_int_equal(TAKE(1, FRAME_OPEN, OPEN, 0), -EPROTO);
	greet();
	assert_string_equal(p.name, "peer");
	assert_int_equal(p.time, 0x70000000);
	assert_int_equal(TAKE(0, FRAME_HEARTBEAT, "", 0), PROTOCOL_NOTHING);
	assert_int_equal(TAKE(0, FRAME_HELLO, HELLO, 0), PROTOCOL_NOTHING);
	assert_int_equal(TAKE(0, FRAME_HELLO, "\xa1\x64time\x02", 0), -EPROTO);
}

static void test_name_is_safe_for_a_log(void **state)
{
	(void)state;
	assert_int_equal(TAKE(0, FRAME_HELLO,
			      "\xa2\x64name\x63"
			      "a\x1b\x7f\x64time\x01",
			      0),
			 PROTOCOL_GREETED);
	assert_string_equal(p.name, "a??");
}

static void test_time_is_limited(void **state)
{
	(void)state;
	assert_int_equal(
		TAKE(0, FRAME_HELLO,
		     "\xa2\x64name\x60\x64time\x1b\x00\x00\x01\x00\x00\x00\x00"
		     "\x01",
		     0),
		-EPROTO);
	assert_string_equal(r.code, "value");
	assert_int_equal(
		TAKE(0, FRAME_HELLO,
		     "\xa2\x64name\x60\x64time\x1b\x00\x00\x01\x00\x00\x00\x00"
		     "\x00",
		     0),
		PROTOCOL_GREETED);
}

static void test_streams_are_opened_in_order(void **state)
{
	(void)state;
	greet();
	assert_int_equal(TAKE(2, FRAME_OPEN, OPEN, 0), -EPROTO);
	assert_int_equal(TAKE(1, FRAME_OPEN, OPEN, 0), PROTOCOL_OPEN);
	assert_int_equal(TAKE(1, FRAME_OPEN, OPEN, 1), -EPROTO);
	assert_int_equal(TAKE(2, FRAME_OPEN, OPEN, 0), PROTOCOL_OPEN);
	p.next = UINT32_MAX - 1;
	assert_int_equal(TAKE(UINT32_MAX - 1, FRAME_OPEN, OPEN, 0),
			 PROTOCOL_OPEN);
	assert_int_equal(TAKE(UINT32_MAX, FRAME_OPEN, OPEN, 0), -EPROTO);
}

static void test_frames_of_a_stream(void **state)
{
	(void)state;
	greet();
	assert_int_equal(TAKE(1, FRAME_DATA, "x", 0), -EPROTO);
	TAKE(1, FRAME_OPEN, OPEN, 0);
	assert_int_equal(TAKE(1, FRAME_DATA, "x", 1), PROTOCOL_DATA);
	assert_int_equal(TAKE(1, FRAME_DATA, "", 1), -EPROTO);
	assert_int_equal(TAKE(1, FRAME_OPENED, "", 1), -EPROTO);
	assert_int_equal(TAKE(1, FRAME_END, "", 1), PROTOCOL_END);
	assert_int_equal(TAKE(1, FRAME_END, "x", 1), -EPROTO);
	assert_int_equal(TAKE(1, 7, "", 1), -EPROTO);
	/* It was under way when this end ended the stream. */
	assert_int_equal(TAKE(1, FRAME_DATA, "", 0), PROTOCOL_NOTHING);
	assert_int_equal(TAKE(1, FRAME_END, "x", 0), PROTOCOL_NOTHING);
	assert_int_equal(TAKE(1, FRAME_OPENED, "x", 0), PROTOCOL_NOTHING);
}

static void test_reason_of_the_peer(void **state)
{
	(void)state;
	assert_int_equal(TAKE(0, FRAME_REFUSED,
			      "\xa2\x64"
			      "code\x64"
			      "busy\x64text\x63why",
			      0),
			 PROTOCOL_REFUSED);
	assert_string_equal(r.code, "busy");
	assert_string_equal(r.text, "why");
	assert_int_equal(TAKE(0, FRAME_REFUSED, "", 0), PROTOCOL_REFUSED);
	assert_string_equal(r.text, "no reason");
	assert_int_equal(TAKE(0, FRAME_REFUSED, "\xa0", 0), -EPROTO);
	assert_string_equal(r.code, "format");
}

static void test_long_reasons_are_cut_between_characters(void **state)
{
	struct queue q = { 0 };
	struct frame f;
	char text[1001];
	struct reason out;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int i = 1; i + 1 < 1000; i += 2)
		memcpy(text + i, "\xc3\xa9", 2);
	reason_set(&out, "a", "%s", text);
	assert_int_equal(strlen(out.text), sizeof(out.text) - 1);
	reason_set(&out, "a", "x%s", text);
	assert_int_equal(strlen(out.text), sizeof(out.text) - 2);
	assert_int_equal(reason_put(&q, 1, FRAME_END, &out), 0);
	assert_true(frame_parse(&f, q.first->data, q.first->len) > 0);
	assert_int_equal(reason_decode(&r, f.body, f.len), 0);
	assert_string_equal(r.text, out.text);
	queue_clear(&q);
}

static void test_fields_of_open(void **state)
{
	const struct frame worker = { 1, FRAME_OPEN, (const uint8_t *)OPEN,
				      sizeof(OPEN) - 1 };
	static const char agent[] = "\xa2\x62to\x65"
				    "agent\x63uid\x00";
	const struct frame other = { 1, FRAME_OPEN, (const uint8_t *)agent,
				     sizeof(agent) - 1 };
	struct protocol_open o;

	(void)state;
	assert_int_equal(protocol_open(&o, &worker, &r), 0);
	assert_int_equal(o.to_worker, 1);
	assert_int_equal(o.path_len, 5);
	assert_memory_equal(o.path, "/w.ct", 5);
	assert_int_equal(protocol_open(&o, &other, &r), 0);
	assert_int_equal(o.to_worker, 0);
}

static int opening(const char *map, size_t len)
{
	const struct frame f = { 1, FRAME_OPEN, (const uint8_t *)map, len };
	struct protocol_open o;

	return protocol_open(&o, &f, &r);
}

#define OPENING(map) opening(map, sizeof(map) - 1)

static void test_container_of_a_program(void **state)
{
	(void)state;
	assert_int_equal(OPENING("\xa2\x62to\x65"
				 "agent\x69"
				 "container\x65we.-1"),
			 0);
	assert_int_equal(OPENING("\xa1\x62to\x65"
				 "agent"),
			 -EPROTO);
	assert_string_equal(r.text, "OPEN lacks 'uid'");
	assert_int_equal(OPENING("\xa3\x62to\x65"
				 "agent\x63uid\x00\x69"
				 "container\x61w"),
			 -EPROTO);
	assert_string_equal(r.text, "OPEN has a uid and a container");
	assert_int_equal(OPENING("\xa2\x62to\x65"
				 "agent\x69"
				 "container\x00"),
			 -EPROTO);
	assert_int_equal(OPENING("\xa2\x62to\x65"
				 "agent\x69"
				 "container\x60"),
			 -EPROTO);
	assert_int_equal(OPENING("\xa2\x62to\x65"
				 "agent\x69"
				 "container\x63"
				 "a/b"),
			 -EPROTO);
	assert_int_equal(OPENING("\xa2\x62to\x65"
				 "agent\x69"
				 "container\x71"
				 "abcdefghijklmnopq"),
			 -EPROTO);
	assert_string_equal(r.text,
			    "OPEN has a container whose name is not legal");
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hello_comes_first),
		TEST(test_name_is_safe_for_a_log),
		TEST(test_time_is_limited),
		TEST(test_streams_are_opened_in_order),
		TEST(test_frames_of_a_stream),
		TEST(test_reason_of_the_peer),
		TEST(test_long_reasons_are_cut_between_characters),
		TEST(test_fields_of_open),
		TEST(test_container_of_a_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
