/*
 * Only sealed packets are accepted. The tests flip every bit of every kind of
 * packet in every protection, truncate, extend, relabel, replay, reflect and
 * splice them. A refused packet leaves no state and no plaintext.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/pair.h"
#include "session/session_state.h"
#include "wire/stats.h"

enum { ROUTER_BYTE = 4, LONGEST_EXTENSION = 64, UNTOUCHED = 0xa5 };

static uint8_t text[SRDMA_MAX_PAYLOAD], plain[SRDMA_MAX_PAYLOAD];

/* A sealed packet: its bytes and its content. */
struct sealed {
	struct srdma_packet p;
	uint8_t data[SRDMA_MAX_PACKET + LONGEST_EXTENSION];
	int len;
};

static void seal(struct pair *pair, int from, struct srdma_packet p,
		 struct sealed *s)
{
	memset(s, 0, sizeof(*s));
	s->len = srdma_session_seal(pair->end[from], &p, text, s->data,
				    SRDMA_MAX_PACKET);
	assert_true(s->len > 0);
	s->p = p;
}

/* Sum over the live epochs. */
static uint64_t forgeries(const struct srdma_session *s)
{
	return s->forgeries[0] + s->forgeries[1] + s->forgeries[2] +
	       s->forgeries[3];
}

/* Opens a packet that must be refused. Returns the reason. */
static int refuse(struct srdma_session *s, const uint8_t *data, int len)
{
	const struct srdma_session before = *s;
	struct srdma_packet q;
	int r;

	memset(plain, UNTOUCHED, 64);
	r = srdma_session_open(s, &q, data, (size_t)len, plain);
	assert_in_range(-r, SRDMA_REFUSED_SHORT, SRDMA_REFUSED_TAG);
	assert_memory_equal(&s->window, &before.window, sizeof(s->window));
	assert_int_equal(s->peer_next, before.peer_next);
	assert_int_equal(s->own_next, before.own_next);
	assert_int_equal(s->tx_pn, before.tx_pn);
	assert_int_equal(forgeries(s),
			 forgeries(&before) + (r == -SRDMA_REFUSED_TAG));
	for (int i = 0; i < 64; i++)
		if (plain[i] != UNTOUCHED && plain[i] != 0)
			fail_msg("a refused packet left plaintext");
	return -r;
}

/* Opens a packet that must be accepted with this payload. */
static void accept(struct srdma_session *s, const struct sealed *d,
		   const uint8_t *want)
{
	struct srdma_packet q;

	assert_int_equal(
		srdma_session_open(s, &q, d->data, (size_t)d->len, plain), 0);
	assert_int_equal(q.pn, d->p.pn);
	assert_int_equal(q.request_id, d->p.request_id);
	assert_int_equal(q.payload_len, d->p.payload_len);
	assert_memory_equal(plain, want, q.payload_len);
	assert_int_equal(srdma_session_highest(s), q.pn);
}

/*
 * Runs a check for every sample packet in every protection, alternating the
 * direction.
 */
static void for_all(void (*check)(struct pair *, int, struct srdma_packet,
				  const struct protection *))
{
	struct protection p;

	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair pair;

		assert_int_equal(pair_create(&pair, &p), 0);
		assert_int_equal(pair_settle(&pair), 0);
		for (unsigned k = 0; k < SAMPLES; k++) {
			struct srdma_packet q;

			if (sample_at(k, &q))
				check(&pair, (int)(k & 1), q, &p);
		}
		pair_destroy(&pair);
	}
}

static void check_flips(struct pair *pair, int from, struct srdma_packet p,
			const struct protection *how)
{
	struct srdma_session *to = pair->end[!from];
	struct sealed s;
	int payload_end;

	seal(pair, from, p, &s);
	payload_end = (int)(s.p.payload_at + s.p.payload_len);
	for (int bit = 0; bit < s.len * 8; bit++) {
		const int at = bit / 8;

		if (at == ROUTER_BYTE ||
		    (how->level == SRDMA_LEVEL_HEADER &&
		     at >= (int)s.p.payload_at && at < payload_end))
			continue;
		s.data[at] ^= (uint8_t)(1 << bit % 8);
		refuse(to, s.data, s.len);
		s.data[at] ^= (uint8_t)(1 << bit % 8);
	}
	/* the refusals left no state: the original is still accepted */
	accept(to, &s, text);
	assert_int_equal(refuse(to, s.data, s.len), SRDMA_REFUSED_REPLAY);
}

/* RFC 5042 R5.4.2-1, A5.1.3, A5.2, A5.4.2; review A6 */
static void test_every_flipped_bit_is_refused(void **state)
{
	(void)state;
	for_all(check_flips);
}

static void check_router_byte(struct pair *pair, int from,
			      struct srdma_packet p,
			      const struct protection *how)
{
	struct sealed s;

	(void)how;
	for (int bit = 0; bit < 8; bit++) {
		seal(pair, from, p, &s);
		s.data[ROUTER_BYTE] ^= (uint8_t)(1 << bit);
		accept(pair->end[!from], &s, text);
	}
}

static void test_router_byte_may_change(void **state)
{
	(void)state;
	for_all(check_router_byte);
}

/* Level header does not protect the payload: changed bits are delivered. */
static void check_unprotected(struct pair *pair, int from,
			      struct srdma_packet p,
			      const struct protection *how)
{
	uint8_t want[SRDMA_MAX_PAYLOAD];
	struct sealed s;

	if (how->level != SRDMA_LEVEL_HEADER)
		return;
	for (uint32_t bit = 0; bit < p.payload_len * 8; bit++) {
		memcpy(want, text, p.payload_len);
		want[bit / 8] ^= (uint8_t)(1 << bit % 8);
		seal(pair, from, p, &s);
		s.data[s.p.payload_at + bit / 8] ^= (uint8_t)(1 << bit % 8);
		accept(pair->end[!from], &s, want);
	}
}

/* review A19 */
static void test_level_header_leaves_payload_unprotected(void **state)
{
	(void)state;
	for_all(check_unprotected);
}

static void check_lengths(struct pair *pair, int from, struct srdma_packet p,
			  const struct protection *how)
{
	struct srdma_session *to = pair->end[!from];
	struct sealed s;

	(void)how;
	seal(pair, from, p, &s);
	for (int n = 1; n <= LONGEST_EXTENSION; n++) {
		refuse(to, s.data, s.len - (n < s.len ? n : s.len));
		refuse(to, s.data, s.len + n); /* the added bytes are zeros */
		s.data[s.len + n - 1] = 0x5a;
		refuse(to, s.data, s.len + n);
		s.data[s.len + n - 1] = 0;
		if (n < s.len)
			refuse(to, s.data + n, s.len - n);
	}
	accept(to, &s, text);
}

static void test_truncated_or_extended_is_refused(void **state)
{
	(void)state;
	for_all(check_lengths);
}

/* Every other opcode, for example WRITE instead of READ. */
static void check_relabel(struct pair *pair, int from, struct srdma_packet p,
			  const struct protection *how)
{
	struct srdma_session *to = pair->end[!from];
	struct sealed s;

	(void)how;
	seal(pair, from, p, &s);
	for (int v = 1; v < 256; v++) {
		s.data[0] ^= (uint8_t)v;
		refuse(to, s.data, s.len);
		s.data[0] ^= (uint8_t)v;
	}
	accept(to, &s, text);
}

static void test_other_opcode_is_refused(void **state)
{
	(void)state;
	for_all(check_relabel);
}

/* Back to the sender, unchanged and with the sender's QPN. */
static void check_reflect(struct pair *pair, int from, struct srdma_packet p,
			  const struct protection *how)
{
	const struct srdma_session_params own = pair_params(how, (uint8_t)from);
	struct sealed s;
	uint8_t copy[SRDMA_MAX_PACKET];

	seal(pair, from, p, &s);
	assert_int_equal(refuse(pair->end[from], s.data, s.len),
			 SRDMA_REFUSED_UNKNOWN_QP);
	memcpy(copy, s.data, (size_t)s.len);
	copy[5] = (uint8_t)(own.local_qpn >> 16);
	copy[6] = (uint8_t)(own.local_qpn >> 8);
	copy[7] = (uint8_t)own.local_qpn;
	refuse(pair->end[from], copy, s.len);
	accept(pair->end[!from], &s, text);
}

/* RFC 5042 A5.4.1; review A32 */
static void test_reflected_is_refused(void **state)
{
	(void)state;
	for_all(check_reflect);
}

/* The start of one packet and the rest of another of the same length. */
static void check_splice(struct pair *pair, int from, struct srdma_packet p,
			 const struct protection *how)
{
	struct srdma_session *to = pair->end[!from];
	uint8_t mixed[SRDMA_MAX_PACKET];
	struct sealed a, b;
	int end;

	seal(pair, from, p, &a);
	p.va++;
	p.rkey++;
	p.imm++;
	seal(pair, from, p, &b);
	assert_int_equal(a.len, b.len);
	end = how->level == SRDMA_LEVEL_HEADER ? (int)a.p.payload_at : a.len;
	for (int cut = 1; cut < end; cut++) {
		memcpy(mixed, a.data, (size_t)cut);
		memcpy(mixed + cut, b.data + cut, (size_t)(b.len - cut));
		if (memcmp(mixed, a.data, (size_t)a.len) &&
		    memcmp(mixed, b.data, (size_t)b.len))
			refuse(to, mixed, a.len);
	}
	accept(to, &a, text);
	accept(to, &b, text);
}

static void test_spliced_is_refused(void **state)
{
	(void)state;
	for_all(check_splice);
}

/* Wrong tags: all zero, all one, that of the packet before. */
static void check_tags(struct pair *pair, int from, struct srdma_packet p,
		       const struct protection *how)
{
	struct srdma_session *to = pair->end[!from];
	struct sealed before, s;
	uint8_t tag[SRDMA_MAX_TAG];

	seal(pair, from, p, &before);
	seal(pair, from, p, &s);
	memcpy(tag, s.data + s.p.tag_at, how->tag_len);
	memset(s.data + s.p.tag_at, 0, how->tag_len);
	assert_int_equal(refuse(to, s.data, s.len), SRDMA_REFUSED_TAG);
	memset(s.data + s.p.tag_at, 0xff, how->tag_len);
	assert_int_equal(refuse(to, s.data, s.len), SRDMA_REFUSED_TAG);
	memcpy(s.data + s.p.tag_at, before.data + s.p.tag_at, how->tag_len);
	assert_int_equal(refuse(to, s.data, s.len), SRDMA_REFUSED_TAG);
	memcpy(s.data + s.p.tag_at, tag, how->tag_len);
	accept(to, &s, text);
}

static void test_wrong_tag_is_refused(void **state)
{
	(void)state;
	for_all(check_tags);
}

/* No byte of a long payload stays in plain after its tag fails. */
/* review A25 */
static void test_refused_long_payload_is_wiped(void **state)
{
	struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
				  .request_id = PAIR_NEXT_ID,
				  .payload_len = SRDMA_MAX_PAYLOAD };
	struct protection how;

	(void)state;
	for (unsigned i = 0; protection_at(i, &how); i++) {
		struct srdma_packet q;
		struct pair pair;
		struct sealed s;

		assert_int_equal(pair_create(&pair, &how), 0);
		assert_int_equal(pair_settle(&pair), 0);
		seal(&pair, 0, p, &s);
		s.data[s.p.tag_at] ^= 1;
		memset(plain, UNTOUCHED, sizeof(plain));
		assert_int_equal(srdma_session_open(pair.end[1], &q, s.data,
						    (size_t)s.len, plain),
				 -SRDMA_REFUSED_TAG);
		for (size_t k = 0; k < sizeof(plain); k++)
			if (plain[k] != UNTOUCHED && plain[k] != 0)
				fail_msg(
					"plaintext byte %zu of a forged packet",
					k);
		pair_destroy(&pair);
	}
}

static int fill_text(void **state)
{
	(void)state;
	/* neither 0 nor UNTOUCHED, so that any remaining byte is detected */
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(1 + i % 100);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_flipped_bit_is_refused),
		cmocka_unit_test(test_router_byte_may_change),
		cmocka_unit_test(test_level_header_leaves_payload_unprotected),
		cmocka_unit_test(test_truncated_or_extended_is_refused),
		cmocka_unit_test(test_other_opcode_is_refused),
		cmocka_unit_test(test_reflected_is_refused),
		cmocka_unit_test(test_spliced_is_refused),
		cmocka_unit_test(test_wrong_tag_is_refused),
		cmocka_unit_test(test_refused_long_payload_is_wiped),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
