/*
 * Separation of sessions and protections, level none, and the order of checks
 * in 4.6.
 */
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

/* Two sessions that differ in any parameter refuse each other's packets. */
static void test_sessions_refuse_each_other(void **state)
{
	const struct {
		size_t offset;
		int want;
	} rows[] = {
#define ROW(field, want) { offsetof(struct srdma_session_params, field), want }
		ROW(generation, -SRDMA_REFUSED_TAG),
		ROW(local_eid, -SRDMA_REFUSED_TAG),
		ROW(peer_eid, -SRDMA_REFUSED_TAG),
		ROW(peer_qpn, -SRDMA_REFUSED_TAG),
		ROW(rx_secret, -SRDMA_REFUSED_TAG),
		ROW(role, -SRDMA_REFUSED_TAG), /* role 0 instead of 1 */
		ROW(local_qpn, -SRDMA_REFUSED_UNKNOWN_QP),
		ROW(tx_secret, 0), /* used in the other direction only */
		ROW(tx_pn, 0),
#undef ROW
	};
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
			struct srdma_session_params b = pair_params(&p, 1);
			struct srdma_session *other;
			struct pair pair;
			int len;

			((uint8_t *)&b)[rows[k].offset] ^= 1;
			assert_int_equal(pair_create(&pair, &p), 0);
			assert_int_equal(srdma_session_create(&other, &b), 0);
			len = send(pair.end[0], 0, 16);
			assert_int_equal(receive(other, len), rows[k].want);
			srdma_session_destroy(other);
			pair_destroy(&pair);
		}
	}
}

/* A packet of one suite, level or tag length is refused with any other. */
/* review A31 */
static void test_protections_refuse_each_other(void **state)
{
	struct protection p, q;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair a;
		int len;

		assert_int_equal(pair_create(&a, &p), 0);
		len = send(a.end[0], 0, 16);
		for (unsigned k = 0; protection_at(k, &q); k++) {
			struct pair b;
			int r;

			assert_int_equal(pair_create(&b, &q), 0);
			r = receive(b.end[1], len);
			if (k == i)
				assert_int_equal(r, 0);
			else
				assert_int_equal(
					r, p.tag_len == q.tag_len
						   ? -SRDMA_REFUSED_TAG
						   : -SRDMA_REFUSED_TAG_CODE);
			pair_destroy(&b);
		}
		pair_destroy(&a);
	}
}

/*
 * A protected QP drops tag code 0, and an unprotected QP drops every other
 * code.
 */
/* RFC 5042 X1 */
static void test_level_none_and_protected_refuse_each_other(void **state)
{
	struct protection p = none();
	struct pair bare;

	(void)state;
	assert_int_equal(pair_create(&bare, &p), 0);
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair pair;
		int len;

		assert_int_equal(pair_create(&pair, &p), 0);
		len = send(bare.end[0], 0, 16);
		assert_int_equal(receive(pair.end[1], len),
				 -SRDMA_REFUSED_TAG_CODE);
		len = send(pair.end[0], 0, 16);
		assert_int_equal(receive(bare.end[1], len),
				 -SRDMA_REFUSED_TAG_CODE);
		pair_destroy(&pair);
	}
	pair_destroy(&bare);
}

/* Level none still checks QPN, window and request ids. */
static void test_level_none_checks_qpn_window_and_ids(void **state)
{
	const struct protection bare = none();
	struct srdma_packet q;
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &bare), 0);
	len = send(pair.end[0], 0, 16);
	out[7] ^= 1;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_UNKNOWN_QP);
	out[7] ^= 1;
	out[8] |= 0x04;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_EPOCH);
	out[8] &= (uint8_t)~0x04;
	assert_int_equal(receive(pair.end[0], len), -SRDMA_REFUSED_UNKNOWN_QP);
	assert_int_equal(receive(pair.end[1], len), 0);
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_REPLAY);
	assert_true(sample_at(SRDMA_OP_ACKNOWLEDGE * SAMPLE_VARIANTS, &q));
	len = srdma_session_seal(pair.end[0], &q, NULL, out, sizeof(out));
	assert_true(len > 0);
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_REQUEST_ID);
	pair_destroy(&pair);
}

/* The order of 4.6: the first failing check determines the reason. */
/* RFC 5042 R5.4.1-1 */
static void test_order_of_checks(void **state)
{
	struct protection p = gcm();
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	assert_int_equal(pair_settle(&pair), 0);
	len = send(pair.end[0], PAIR_NEXT_ID, 16);
	assert_int_equal(receive(pair.end[1], len), 0);
	out[20] ^= 1; /* the tag of a packet that was received before */
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_REPLAY);
	assert_int_equal(srdma_session_forgeries(pair.end[1]), 0);
	out[7] ^= 1;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_UNKNOWN_QP);
	out[1] ^= 1;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_HEADER);

	len = send(pair.end[0], PAIR_NEXT_ID + 1, 16);
	out[8] |= 0x08; /* the epoch is checked before the tag */
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_EPOCH);
	assert_int_equal(srdma_session_forgeries(pair.end[1]), 0);
	pair_destroy(&pair);
}

/* Routers may change this byte; all others are protected (test_flips). */
static void test_fecn_becn_byte_may_change(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair pair;

		assert_int_equal(pair_create(&pair, &p), 0);
		for (unsigned v = 0; v < 256; v += 15) {
			int len = send(pair.end[0], v, 16);

			out[4] = (uint8_t)v;
			assert_int_equal(receive(pair.end[1], len), 0);
		}
		pair_destroy(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sessions_refuse_each_other),
		cmocka_unit_test(test_protections_refuse_each_other),
		cmocka_unit_test(
			test_level_none_and_protected_refuse_each_other),
		cmocka_unit_test(test_level_none_checks_qpn_window_and_ids),
		cmocka_unit_test(test_order_of_checks),
		cmocka_unit_test(test_fecn_becn_byte_may_change),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
