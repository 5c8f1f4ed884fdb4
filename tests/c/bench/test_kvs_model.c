/*
 * The checker of the key-value store (bench/kvs/model.h) accepts a history of
 * PUTs and GETs only if a correct store may have given these answers. Also the
 * messages on the wire (protocol.h).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "keys.h"
#include "model.h"
#include "protocol.h"

#define PUT(s, e)                                                              \
	{                                                                      \
		.start = s, .end = e, .version = s, .id = 1, .put = 1          \
	}
#define GET(s, e, v)                                                           \
	{                                                                      \
		.start = s, .end = e, .version = v, .id = 1                    \
	}

/*
 * keys: number of keys that exist at the start. Key 1 exists then only if keys
 * is 2.
 */
static const struct {
	const char *what;
	int right;
	uint32_t keys;
	struct kvs_event events[6];
} histories[] = {
	{ "the initial value", 1, 2, { GET(1, 2, 0) } },
	{ "absent, although present at first",
	  0,
	  2,
	  { GET(1, 2, KVS_ABSENT) } },
	{ "absent, and absent at first", 1, 1, { GET(1, 2, KVS_ABSENT) } },
	{ "present, although absent at first", 0, 1, { GET(1, 2, 0) } },
	{ "the last PUT", 1, 2, { PUT(1, 2), GET(3, 4, 1) } },
	{ "the value before the last PUT", 0, 2, { PUT(1, 2), GET(3, 4, 0) } },
	{ "absent after a PUT", 0, 1, { PUT(1, 2), GET(3, 4, KVS_ABSENT) } },
	{ "the PUT before the last",
	  0,
	  2,
	  { PUT(1, 2), PUT(3, 4), GET(5, 6, 1) } },
	{ "old value during a PUT", 1, 2, { PUT(1, 4), GET(2, 3, 0) } },
	{ "new value during a PUT", 1, 2, { PUT(1, 4), GET(2, 3, 1) } },
	{ "either of two concurrent PUTs",
	  1,
	  2,
	  { PUT(1, 4), PUT(2, 3), GET(5, 6, 1), GET(7, 8, 2) } },
	{ "a PUT that ended after the last one began",
	  1,
	  2,
	  { PUT(1, 6), PUT(2, 3), PUT(4, 5), GET(7, 8, 1) } },
	{ "a PUT that ended before the last one began",
	  0,
	  2,
	  { PUT(1, 6), PUT(2, 3), PUT(4, 5), GET(7, 8, 2) } },
	{ "a PUT that ended during the GET",
	  1,
	  2,
	  { PUT(1, 2), PUT(4, 6), GET(3, 7, 1), GET(5, 8, 4) } },
	{ "a later PUT", 0, 2, { GET(1, 2, 3), PUT(3, 4) } },
	{ "a version without a PUT", 0, 2, { PUT(1, 2), GET(5, 6, 3) } },
	{ "a PUT of another key",
	  0,
	  2,
	  { { .start = 1, .end = 2, .version = 1, .id = 0, .put = 1 },
	    GET(3, 4, 1) } },
};

static void test_histories(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(histories) / sizeof(histories[0]); i++) {
		const struct kvs_event *e = histories[i].events;
		struct kvs_history *h;
		struct kvs_event wrong;

		assert_int_equal(kvs_history_create(&h, 6), 0);
		for (; e->end; e++)
			assert_int_equal(kvs_history_add(h, e), 0);
		if (kvs_history_check(h, histories[i].keys, &wrong) !=
		    histories[i].right)
			fail_msg("%s", histories[i].what);
		kvs_history_destroy(h);
	}
}

static void test_check_reports_wrong_event(void **state)
{
	const struct kvs_event put = PUT(1, 2), right = GET(3, 4, 1),
			       late = GET(5, 6, 0);
	struct kvs_event wrong;
	struct kvs_history *h;

	(void)state;
	kvs_history_create(&h, 3);
	kvs_history_add(h, &late);
	kvs_history_add(h, &right);
	kvs_history_add(h, &put);
	assert_int_equal(kvs_history_add(h, &put), -ENOSPC);
	assert_int_equal(kvs_history_count(h), 3);
	assert_int_equal(kvs_history_check(h, 2, &wrong), 0);
	assert_memory_equal(&wrong, &late, sizeof(late));
	kvs_history_destroy(h);
	assert_int_equal(kvs_history_create(&h, 0), -EINVAL);
	kvs_history_destroy(NULL);
}

static void test_value_holds_its_key(void **state)
{
	uint8_t value[KVS_VALUE_LEN];
	uint64_t version;

	(void)state;
	kvs_value_make(value, 5, 77);
	assert_int_equal(kvs_value_read(value, 5, &version), 0);
	assert_int_equal(version, 77);
	assert_int_equal(kvs_value_read(value, 6, &version), -EBADMSG);
	for (int i = 0; i < KVS_VALUE_LEN; i++) {
		value[i] ^= 1;
		assert_int_equal(kvs_value_read(value, 5, &version), -EBADMSG);
		value[i] ^= 1;
	}
}

static struct kvs_request request(uint8_t opcode, uint32_t sequence)
{
	struct kvs_request r = { .opcode = opcode, .sequence = sequence };

	kvs_key_make(r.key, sequence);
	if (opcode == KVS_PUT) {
		r.length = KVS_VALUE_LEN;
		kvs_value_make(r.value, sequence, sequence);
	}
	return r;
}

static void test_request_slots(void **state)
{
	struct kvs_request get = request(KVS_GET, 3), put = request(KVS_PUT, 4);
	struct kvs_request slot = { 0 }, out;

	(void)state;
	assert_int_equal(kvs_request_take(&out, &slot, 3), 0);
	assert_int_equal(kvs_request_seal(&put), 0);
	memcpy(&slot, &put, sizeof(slot));
	assert_int_equal(kvs_request_take(&out, &slot, 3), 0);
	assert_int_equal(kvs_request_take(&out, &slot, 4), 1);
	assert_memory_equal(&out, &put, sizeof(out));

	/*
	 * A GET is written into the last half of the slot. The first half still
	 * holds bytes of the earlier PUT, which do not count.
	 */
	assert_int_equal(kvs_request_seal(&get), KVS_GET_AT);
	memcpy((uint8_t *)&slot + KVS_GET_AT, (uint8_t *)&get + KVS_GET_AT,
	       KVS_SLOT_LEN - KVS_GET_AT);
	assert_int_equal(kvs_request_take(&out, &slot, 3), 1);
	assert_memory_equal(out.key, get.key, KVS_KEY_LEN);
}

/*
 * An RDMA WRITE may be visible in part. A slot with 8-byte words of two
 * requests is valid only if all its words are of one request.
 */
static void test_torn_requests(void **state)
{
	struct kvs_request a = request(KVS_PUT, 8), b = request(KVS_PUT, 16);
	struct kvs_request out;

	(void)state;
	kvs_request_seal(&a);
	kvs_request_seal(&b);
	for (unsigned words = 0; words < 256; words++) {
		_Alignas(8) uint8_t slot[KVS_SLOT_LEN];

		for (int w = 0; w < 8; w++)
			memcpy(slot + 8 * w,
			       (const uint8_t *)(words >> w & 1 ? &b : &a) +
				       8 * w,
			       8);
		assert_int_equal(kvs_request_take(&out, slot, 16),
				 words == 255);
		assert_int_equal(kvs_request_take(&out, slot, 8), words == 0);
	}
}

static void test_legal_requests(void **state)
{
	const struct {
		uint8_t opcode, length, zero;
		int legal;
	} rows[] = {
		{ KVS_GET, 0, 0, 1 },
		{ KVS_BYE, 0, 0, 1 },
		{ KVS_PUT, KVS_VALUE_LEN, 0, 1 },
		{ KVS_GET, KVS_VALUE_LEN, 0, 0 },
		{ KVS_PUT, 0, 0, 0 },
		{ KVS_PUT, KVS_VALUE_LEN - 1, 0, 0 },
		{ KVS_PUT, 255, 0, 0 },
		{ KVS_GET, 0, 1, 0 },
		{ 0, 0, 0, 0 },
		{ KVS_BYE + 1, 0, 0, 0 },
		{ 255, 255, 255, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvs_request r = { .opcode = rows[i].opcode,
					 .length = rows[i].length,
					 .zero = { 0, rows[i].zero } };

		assert_int_equal(kvs_request_legal(&r), rows[i].legal);
	}
}

static void test_legal_answers(void **state)
{
	struct kvs_answer a = { .sequence = 9, .length = KVS_VALUE_LEN };

	(void)state;
	assert_int_equal(kvs_answer_len(&a), KVS_ANSWER_LEN);
	assert_true(kvs_answer_legal(&a, KVS_ANSWER_LEN, 9));
	assert_false(kvs_answer_legal(&a, KVS_ANSWER_LEN, 8));
	assert_false(kvs_answer_legal(&a, KVS_ANSWER_HEADER, 9));
	assert_false(kvs_answer_legal(&a, KVS_ANSWER_LEN + 1, 9));
	a.length = 0;
	assert_true(kvs_answer_legal(&a, KVS_ANSWER_HEADER, 9));
	assert_false(kvs_answer_legal(&a, KVS_ANSWER_HEADER - 1, 9));
	a.length = 7;
	assert_false(kvs_answer_legal(&a, KVS_ANSWER_HEADER + 7, 9));
	a.length = 0;
	a.status = KVS_BAD + 1;
	assert_false(kvs_answer_legal(&a, KVS_ANSWER_HEADER, 9));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histories),
		cmocka_unit_test(test_check_reports_wrong_event),
		cmocka_unit_test(test_value_holds_its_key),
		cmocka_unit_test(test_request_slots),
		cmocka_unit_test(test_torn_requests),
		cmocka_unit_test(test_legal_requests),
		cmocka_unit_test(test_legal_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
