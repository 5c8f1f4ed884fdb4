/* Request ids in a session: 24 bits on the wire, 62 bits in the tag (4.2). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/stats.h"
#include "support/traffic.h"

/* 24 bits on the wire are widened to 64 in the session, in both directions. */
static void test_request_ids_are_widened(void **state)
{
	const uint64_t half = 1 << 23, cycle = 1 << 24;
	const struct {
		uint64_t id;
		int want;
	} rows[] = {
		{ 0, 0 },
		{ half, 0 },
		{ cycle, 0 },
		{ cycle - 1, 0 }, /* backwards */
		{ cycle + 5, 0 },
		{ cycle + half, 0 },
		{ 2 * cycle + half, 0 }, /* too far: taken for an old id */
		{ 2 * cycle - 3, 0 },
		{ 2 * cycle + 3, 0 },
	};
	struct protection p = gcm();
	struct pair pair;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct srdma_packet q;
		int len = send(pair.end[0], rows[i].id, 5);
		int r = srdma_session_open(pair.end[1], &q, out, (size_t)len,
					   plain);

		if (rows[i].id == 2 * cycle + half) {
			/*
			 * 2^24 above the expected id: widened to another id, so
			 * that the tag fails
			 */
			assert_int_equal(r, -SRDMA_REFUSED_TAG);
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(q.request_id, rows[i].id);
	}
	pair_destroy(&pair);
}

/* A response names a request that was sent, or at most the next one. */
/* review A11 */
static void test_response_names_sent_request(void **state)
{
	const uint64_t cycle = 1 << 24;
	const struct {
		uint64_t sent, answered;
		int want;
	} rows[] = {
		{ 0, 0, 0 },
		{ 0, 1, 0 }, /* a position: one behind the last request */
		{ 0, 2, -SRDMA_REFUSED_REQUEST_ID },
		{ 0, cycle / 2, -SRDMA_REFUSED_REQUEST_ID },
		{ 0, cycle / 2 + 2, -SRDMA_REFUSED_REQUEST_ID },
		{ 0, cycle - 1, -SRDMA_REFUSED_REQUEST_ID }, /* would be -1 */
		{ cycle + 7, cycle + 7, 0 },
		{ cycle + 7, cycle + 8, 0 },
		{ cycle + 7, cycle + 9, -SRDMA_REFUSED_REQUEST_ID },
		{ cycle + 7, 10, -SRDMA_REFUSED_REQUEST_ID },
		{ cycle + 7, 7, -SRDMA_REFUSED_TAG }, /* widened to cycle + 7 */
		{ cycle + 7, cycle - 3, 0 },
	};
	static const uint8_t opcodes[] = { SRDMA_OP_READ_RESPONSE_ONLY,
					   SRDMA_OP_READ_RESPONSE_MIDDLE,
					   SRDMA_OP_ATOMIC_ACKNOWLEDGE,
					   SRDMA_OP_ACKNOWLEDGE };
	struct protection p = gcm();

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) * 4; i++) {
		const uint64_t id = rows[i / 4].answered;
		struct srdma_packet q;
		struct pair pair;
		int len, want = rows[i / 4].want;

		assert_int_equal(pair_create(&pair, &p), 0);
		assert_true(send(pair.end[1], rows[i / 4].sent, 5) > 0);
		assert_true(sample_at(opcodes[i % 4] * SAMPLE_VARIANTS, &q));
		q.request_id = id;
		q.ack.request_id = (uint32_t)id;
		/*
		 * An ack also has 32 bits of the id in its body, by which it is
		 * refused before its tag is checked.
		 */
		if (opcodes[i % 4] == SRDMA_OP_ACKNOWLEDGE &&
		    want == -SRDMA_REFUSED_TAG)
			want = -SRDMA_REFUSED_REQUEST_ID;
		len = srdma_session_seal(pair.end[0], &q, text, out,
					 sizeof(out));
		assert_true(len > 0);
		assert_int_equal(receive(pair.end[1], len), want);
		pair_destroy(&pair);
	}
}

/*
 * The references by which ids are widened are moved neither back by a repeated
 * request nor by responses of the other direction.
 */
static void test_old_ids_move_no_reference(void **state)
{
	const uint64_t cycle = 1 << 24;
	struct protection p = gcm();
	struct srdma_packet q;
	const uint64_t ids[] = { 0, cycle / 2, cycle / 2 - 5 };
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	/* end 1 sends requests, the last one an old one */
	for (int i = 0; i < 3; i++) {
		len = send(pair.end[1], ids[i], 5);
		assert_int_equal(receive(pair.end[0], len), 0);
	}
	/*
	 * end 0 answers the position behind the newest request: end 1 accepts
	 * it, because its reference stays at its newest id
	 */
	assert_true(
		sample_at(SRDMA_OP_READ_RESPONSE_ONLY * SAMPLE_VARIANTS, &q));
	q.request_id = cycle / 2 + 1;
	len = srdma_session_seal(pair.end[0], &q, text, out, sizeof(out));
	assert_int_equal(receive(pair.end[1], len), 0);
	/*
	 * the response's id does not count as a request of end 0, whose first
	 * request still has id 0
	 */
	len = send(pair.end[0], 0, 5);
	assert_int_equal(
		srdma_session_open(pair.end[1], &q, out, (size_t)len, plain),
		0);
	assert_int_equal(q.request_id, 0);
	pair_destroy(&pair);
}

/* Only verified packets move the reference of the widening. */
static void test_forged_id_moves_no_reference(void **state)
{
	const uint64_t far = 1 << 22;
	struct protection p = gcm();
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	for (int i = 0; i < 8; i++) {
		len = send(pair.end[0], far * (uint64_t)(i % 3), 5);
		out[16] ^= 1;
		assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_TAG);
	}
	len = send(pair.end[0], 0, 5);
	assert_int_equal(receive(pair.end[1], len), 0);
	pair_destroy(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_ids_are_widened),
		cmocka_unit_test(test_response_names_sent_request),
		cmocka_unit_test(test_old_ids_move_no_reference),
		cmocka_unit_test(test_forged_id_moves_no_reference),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
