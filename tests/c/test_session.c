#include "session.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pair.h"
#include "stats.h"
#include "window.h"

static uint8_t out[SRDMA_MAX_PACKET], plain[SRDMA_MAX_PAYLOAD];
static uint8_t text[SRDMA_MAX_PAYLOAD];

static const struct protection none = { NULL, SRDMA_LEVEL_NONE, 0 };

static struct protection by_name(const char *name, uint8_t level)
{
	const struct srdma_suite *s = srdma_suite_by_name(name);

	return (struct protection){ s, level, s->tag_len };
}

static struct protection gcm(void)
{
	return by_name("aes-128-gcm", SRDMA_LEVEL_AEAD);
}

/* Seal a SEND_ONLY of len bytes as request id. */
static int send(struct srdma_session *s, uint64_t id, uint32_t len)
{
	struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
				  .request_id = id,
				  .payload_len = len };

	return srdma_session_seal(s, &p, text, out, sizeof(out));
}

static int receive(struct srdma_session *s, int len)
{
	struct srdma_packet p;

	return srdma_session_open(s, &p, out, (size_t)len, plain);
}

static int fill_text(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + 1);
	return 0;
}

static void create_refuses(void **state)
{
	const struct protection p = gcm();
	const struct srdma_session_params good = pair_params(&p, 0);
	const struct {
		size_t offset;
		uint64_t value;
		size_t size;
		int want;
	} rows[] = {
#define ROW(field, value, want)                                                \
	{ offsetof(struct srdma_session_params, field), value,                 \
	  sizeof(good.field), want }
		ROW(role, 1, 0),
		ROW(role, 2, -EINVAL),
		ROW(suite, 0, -EINVAL),
		ROW(suite, 0x02, -ENOTSUP),
		ROW(suite, 0x20, -ENOTSUP), /* has no level aead */
		ROW(suite, 0x03, -EINVAL),  /* wants a secret of 32 */
		ROW(suite, 0xff, -ENOTSUP),
		ROW(level, SRDMA_LEVEL_NONE, -EINVAL),
		ROW(level, SRDMA_LEVEL_HEADER, -ENOTSUP),
		ROW(level, SRDMA_LEVEL_PACKET, -ENOTSUP),
		ROW(level, 4, -ENOTSUP),
		ROW(level, 255, -ENOTSUP),
		ROW(mode, 1, -ENOTSUP),
		ROW(mode, 255, -ENOTSUP),
		ROW(tag_len, 0, -EINVAL),
		ROW(tag_len, 12, -EINVAL),
		ROW(tag_len, 15, -EINVAL),
		ROW(tag_len, 32, -EINVAL),
		ROW(secret_len, 0, -EINVAL),
		ROW(secret_len, 32, -EINVAL),
		ROW(secret_len, 255, -EINVAL),
		ROW(window, 1024, 0),
		ROW(window, 0, -EINVAL),
		ROW(window, 65, -EINVAL),
		ROW(window, UINT32_MAX, -EINVAL),
		ROW(mtu, 256, 0),
		ROW(mtu, 255, -EINVAL),
		ROW(mtu, 4097, -EINVAL),
		ROW(local_qpn, 0, -EINVAL),
		ROW(local_qpn, 1 << 24, -EINVAL),
		ROW(peer_qpn, 0, -EINVAL),
		ROW(peer_qpn, 1 << 24, -EINVAL),
		ROW(tx_pn, 0, 0),
		ROW(tx_pn, SRDMA_NUMBER_END - 1, 0),
		ROW(tx_pn, SRDMA_NUMBER_END, -EINVAL),
		ROW(rx_pn, SRDMA_NUMBER_END - 1, 0),
		ROW(rx_pn, UINT64_MAX, -EINVAL),
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct srdma_session_params bad = good;
		struct srdma_session *s = (struct srdma_session *)text;
		int r;

		/* little-endian hosts; the project has no others */
		memcpy((uint8_t *)&bad + rows[i].offset, &rows[i].value,
		       rows[i].size);
		r = srdma_session_create(&s, &bad);
		if (r != rows[i].want)
			print_error("row %zu\n", i);
		assert_int_equal(r, rows[i].want);
		assert_int_equal(s != NULL, r == 0);
		srdma_session_destroy(s);
	}
	srdma_session_destroy(NULL);
}

/* Level none has no suite, tag or secret; a suite never comes without. */
static void none_is_bare(void **state)
{
	struct srdma_session_params p = pair_params(&none, 0);
	struct srdma_session *s;

	(void)state;
	assert_int_equal(srdma_session_create(&s, &p), 0);
	srdma_session_destroy(s);
	p.suite = 1;
	assert_int_equal(srdma_session_create(&s, &p), -EINVAL);
	p.suite = 0;
	p.tag_len = 16;
	assert_int_equal(srdma_session_create(&s, &p), -EINVAL);
	p.tag_len = 0;
	p.secret_len = 16;
	assert_int_equal(srdma_session_create(&s, &p), -EINVAL);
}

/* Payloads of many sizes, in every protection and in none. */
static void payloads(void **state)
{
	static const uint32_t sizes[] = { 0,	1,    2,    3,	  4,	15,
					  16,	17,   63,   64,	  255,	1023,
					  1024, 1025, 4093, 4094, 4095, 4096 };
	struct protection p = none;
	unsigned i = 0;

	(void)state;
	do {
		struct pair pair;

		assert_int_equal(pair_create(&pair, &p), 0);
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			int len = send(pair.end[k & 1], k, sizes[k]);
			uint32_t most = srdma_session_overhead(pair.end[0]);

			assert_in_range(len, 20 + sizes[k], most + sizes[k]);
			memset(plain, 0, sizeof(plain));
			assert_int_equal(receive(pair.end[!(k & 1)], len), 0);
			assert_memory_equal(plain, text, sizes[k]);
		}
		pair_destroy(&pair);
	} while (protection_at(i++, &p));
	assert_int_equal(i - 1, 3 + 2 * 5 + 2 * 2 + 2);
}

/* On aead nothing of the text travels as it is. */
static void text_is_hidden(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair pair;
		int len;

		assert_int_equal(pair_create(&pair, &p), 0);
		len = send(pair.end[0], 0, 1024);
		assert_int_equal(memmem(out, (size_t)len, text, 8) == NULL,
				 p.level == SRDMA_LEVEL_AEAD);
		pair_destroy(&pair);
	}
}

static void seal_refuses(void **state)
{
	struct pair pair;
	struct protection p = gcm();
	struct srdma_packet q;
	uint64_t first;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	first = srdma_session_next_pn(pair.end[0]);
	q = (struct srdma_packet){ .opcode = SRDMA_OP_SEND_ONLY };
	assert_int_equal(srdma_session_seal(pair.end[0], &q, text, out,
					    SRDMA_MAX_PACKET - 1),
			 -EINVAL);
	q.request_id = SRDMA_NUMBER_END;
	assert_int_equal(
		srdma_session_seal(pair.end[0], &q, text, out, sizeof(out)),
		-EINVAL);
	q = (struct srdma_packet){ .opcode = 0x15 };
	assert_int_equal(
		srdma_session_seal(pair.end[0], &q, text, out, sizeof(out)),
		-EINVAL);
	/* the body's 32 bits are not those of the id */
	assert_true(sample_at(SRDMA_OP_ACKNOWLEDGE * SAMPLE_VARIANTS, &q));
	q.request_id += 1 << 24;
	assert_int_equal(
		srdma_session_seal(pair.end[0], &q, text, out, sizeof(out)),
		-EINVAL);
	/* what was never sent spent no number */
	assert_int_equal(srdma_session_next_pn(pair.end[0]), first);
	assert_true(send(pair.end[0], 0, 4) > 0);
	assert_int_equal(srdma_session_next_pn(pair.end[0]), first + 1);
	pair_destroy(&pair);
}

/* Exactly the limit's packets, then none, for ever. */
static void packet_limit(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair pair;
		int len;

		assert_int_equal(pair_create(&pair, &p), 0);
		assert_int_equal(srdma_session_limit(pair.end[0],
						     p.suite->packets + 1, 1),
				 -EINVAL);
		assert_int_equal(srdma_session_limit(pair.end[0], 5, 1), 0);
		assert_int_equal(srdma_session_limit(pair.end[0], 6, 1),
				 -EINVAL);
		for (uint64_t n = 0; n < 5; n++) {
			len = send(pair.end[0], n, 64);
			assert_int_equal(receive(pair.end[1], len), 0);
		}
		memset(out, 0xee, sizeof(out));
		for (int n = 0; n < 3; n++) {
			assert_int_equal(send(pair.end[0], 5, 64),
					 -EKEYEXPIRED);
			assert_int_equal(out[0], 0xee);
		}
		/* the other direction has a key of its own */
		assert_int_equal(receive(pair.end[0], send(pair.end[1], 0, 64)),
				 0);
		pair_destroy(&pair);
	}
}

static void forgery_limit(void **state)
{
	struct protection p = gcm();
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	assert_int_equal(
		srdma_session_limit(pair.end[1], 100, p.suite->forgeries + 1),
		-EINVAL);
	assert_int_equal(srdma_session_limit(pair.end[1], 100, 3), 0);
	len = send(pair.end[0], 0, 8);
	out[20] ^= 1;
	for (uint64_t n = 0; n < 3; n++) {
		assert_int_equal(srdma_session_forgeries(pair.end[1]), n);
		assert_int_equal(srdma_session_spent(pair.end[1]), 0);
		assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_TAG);
	}
	assert_int_equal(srdma_session_spent(pair.end[1]), 1);
	/* now not even the right one */
	out[20] ^= 1;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_QP_STATE);
	assert_int_equal(srdma_session_forgeries(pair.end[1]), 3);
	pair_destroy(&pair);
}

/* Sessions that begin shortly before something wraps. */
static void numbers_wrap(void **state)
{
	const uint64_t firsts[] = { 0, (1 << 23) - 5, (1 << 24) - 5,
				    (1ull << 32) - 5, SRDMA_NUMBER_END - 40 };
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		for (size_t k = 0; k < sizeof(firsts) / sizeof(*firsts); k++) {
			struct srdma_session_params a = pair_params(&p, 0);
			struct srdma_session_params b = pair_params(&p, 1);
			struct pair pair;

			a.tx_pn = b.rx_pn = firsts[k];
			assert_int_equal(srdma_session_create(&pair.end[0], &a),
					 0);
			assert_int_equal(srdma_session_create(&pair.end[1], &b),
					 0);
			assert_int_equal(srdma_session_highest(pair.end[1]),
					 firsts[k] - 1);
			for (uint64_t n = 0; n < 40; n++) {
				int len = send(pair.end[0], n, 5);

				assert_int_equal(receive(pair.end[1], len), 0);
				assert_int_equal(
					srdma_session_highest(pair.end[1]),
					firsts[k] + n);
			}
			pair_destroy(&pair);
		}
	}
}

/* 2^62 - 1 is the last number. */
static void numbers_end(void **state)
{
	struct protection rows[] = { none, gcm() };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct srdma_session_params a = pair_params(&rows[i], 0);
		struct srdma_session_params b = pair_params(&rows[i], 1);
		struct pair pair;

		a.tx_pn = b.rx_pn = SRDMA_NUMBER_END - 5;
		assert_int_equal(srdma_session_create(&pair.end[0], &a), 0);
		assert_int_equal(srdma_session_create(&pair.end[1], &b), 0);
		for (uint64_t n = 0; n < 5; n++)
			assert_int_equal(
				receive(pair.end[1], send(pair.end[0], n, 5)),
				0);
		assert_int_equal(send(pair.end[0], 5, 5), -EKEYEXPIRED);
		assert_int_equal(srdma_session_highest(pair.end[1]),
				 SRDMA_NUMBER_END - 1);
		/* PSN 0 again would be number 2^62 */
		srdma_session_destroy(pair.end[0]);
		a.tx_pn = 0;
		assert_int_equal(srdma_session_create(&pair.end[0], &a), 0);
		assert_int_equal(receive(pair.end[1], send(pair.end[0], 5, 5)),
				 -SRDMA_REFUSED_PN_RANGE);
		pair_destroy(&pair);
	}
}

/* Out of order within the window, each once; behind it, never. */
static void window_sizes(void **state)
{
	static uint8_t kept[1100][64];
	static int lens[1100];
	const uint32_t sizes[] = { 64, 1024 };
	struct protection p = gcm();

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct srdma_session_params a = pair_params(&p, 0);
		struct srdma_session_params b = pair_params(&p, 1);
		struct srdma_packet q;
		struct pair pair;

		b.window = sizes[i];
		assert_int_equal(srdma_session_create(&pair.end[0], &a), 0);
		assert_int_equal(srdma_session_create(&pair.end[1], &b), 0);
		for (uint32_t n = 0; n <= sizes[i]; n++) {
			lens[n] = send(pair.end[0], n, 5);
			memcpy(kept[n], out, 64);
		}
		for (int n = (int)sizes[i]; n >= 0; n--) {
			int want = n ? 0 : -SRDMA_REFUSED_REPLAY;

			for (int again = 0; again < 2; again++) {
				int r = srdma_session_open(
					pair.end[1], &q, kept[n],
					(size_t)lens[n], plain);

				assert_int_equal(r, want);
				want = -SRDMA_REFUSED_REPLAY;
			}
		}
		pair_destroy(&pair);
	}
}

/* 24 bits on the wire are 64 in the session, both ways. */
static void request_ids(void **state)
{
	const uint64_t half = 1 << 23, cycle = 1 << 24;
	const struct {
		uint64_t id;
		int want;
	} rows[] = {
		{ 0, 0 },
		{ half, 0 },
		{ cycle, 0 },
		{ cycle - 1, 0 }, /* back */
		{ cycle + 5, 0 },
		{ cycle + half, 0 },
		{ 2 * cycle + half, 0 }, /* too far: read as an old one */
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
			/* 2^24 above the reference: another id, no tag */
			assert_int_equal(r, -SRDMA_REFUSED_TAG);
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(q.request_id, rows[i].id);
	}
	pair_destroy(&pair);
}

/* An answer names a request that was sent, or at most the next one. */
static void answers(void **state)
{
	const uint64_t cycle = 1 << 24;
	const struct {
		uint64_t sent, answered;
		int want;
	} rows[] = {
		{ 0, 0, 0 },
		{ 0, 1, 0 }, /* the position behind the last */
		{ 0, 2, -SRDMA_REFUSED_REQUEST_ID },
		{ 0, cycle / 2, -SRDMA_REFUSED_REQUEST_ID },
		{ 0, cycle / 2 + 2, -SRDMA_REFUSED_REQUEST_ID },
		{ 0, cycle - 1, -SRDMA_REFUSED_REQUEST_ID }, /* below 0 */
		{ cycle + 7, cycle + 7, 0 },
		{ cycle + 7, cycle + 8, 0 },
		{ cycle + 7, cycle + 9, -SRDMA_REFUSED_REQUEST_ID },
		{ cycle + 7, 10, -SRDMA_REFUSED_REQUEST_ID },
		{ cycle + 7, 7, -SRDMA_REFUSED_TAG }, /* as cycle + 7 */
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
		/* the body's 32 bits tell it apart already */
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

/* Only what was verified moves the reference of the widening. */
static void forged_id_moves_nothing(void **state)
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

/* Anything in which two sessions may differ keeps their packets apart. */
static void other_sessions(void **state)
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
		ROW(role, -SRDMA_REFUSED_TAG), /* 1 to 0 */
		ROW(local_qpn, -SRDMA_REFUSED_UNKNOWN_QP),
		ROW(tx_secret, 0), /* is the other direction's */
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

/* A packet of one suite, level or tag length is none of any other's. */
static void other_protections(void **state)
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

/* A secure QP drops code 0, a QP without protection every other code. */
static void none_and_secure(void **state)
{
	struct protection p;
	struct pair bare;

	(void)state;
	assert_int_equal(pair_create(&bare, &none), 0);
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

/* Level none keeps QPN, window and ids. */
static void none_keeps_order(void **state)
{
	struct srdma_packet q;
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &none), 0);
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

/* The order of 4.6: the earlier check speaks. */
static void order(void **state)
{
	struct protection p = gcm();
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	assert_int_equal(pair_settle(&pair), 0);
	len = send(pair.end[0], PAIR_NEXT_ID, 16);
	assert_int_equal(receive(pair.end[1], len), 0);
	out[20] ^= 1; /* the tag of a number that was seen */
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_REPLAY);
	assert_int_equal(srdma_session_forgeries(pair.end[1]), 0);
	out[7] ^= 1;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_UNKNOWN_QP);
	out[1] ^= 1;
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_HEADER);

	len = send(pair.end[0], PAIR_NEXT_ID + 1, 16);
	out[8] |= 0x08; /* epoch, before the tag */
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_EPOCH);
	assert_int_equal(srdma_session_forgeries(pair.end[1]), 0);
	pair_destroy(&pair);
}

/* The router's byte may change; all else is sealed (test_flips). */
static void fecn_becn(void **state)
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

/* No number is used twice, whatever is sealed and whatever fails. */
static void numbers_are_spent_once(void **state)
{
	struct protection p = gcm();
	struct pair pair;
	uint64_t last = 0;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	assert_int_equal(pair_settle(&pair), 0);
	for (unsigned i = 0; i < SAMPLES * 3; i++) {
		struct srdma_packet q;

		if (!sample_at(i % SAMPLES, &q))
			continue;
		if (i % 5 == 0)
			q.payload_len = 5000;
		if (srdma_session_seal(pair.end[0], &q, text, out,
				       sizeof(out)) < 0)
			continue;
		assert_true(q.pn > last);
		last = q.pn;
	}
	pair_destroy(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_refuses),
		cmocka_unit_test(none_is_bare),
		cmocka_unit_test(payloads),
		cmocka_unit_test(text_is_hidden),
		cmocka_unit_test(seal_refuses),
		cmocka_unit_test(packet_limit),
		cmocka_unit_test(forgery_limit),
		cmocka_unit_test(numbers_wrap),
		cmocka_unit_test(numbers_end),
		cmocka_unit_test(window_sizes),
		cmocka_unit_test(request_ids),
		cmocka_unit_test(answers),
		cmocka_unit_test(forged_id_moves_nothing),
		cmocka_unit_test(other_sessions),
		cmocka_unit_test(other_protections),
		cmocka_unit_test(none_and_secure),
		cmocka_unit_test(none_keeps_order),
		cmocka_unit_test(order),
		cmocka_unit_test(fecn_becn),
		cmocka_unit_test(numbers_are_spent_once),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
