/*
 * Two sessions driven by the fuzzer: seal, deliver, repeat, change, truncate,
 * extend and cross packets. An end accepts only packets that the other end
 * sealed for it, once each, and delivers their plaintext.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memkey.h"
#include "support/pair.h"
#include "wire/stats.h"

#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

enum { SLOTS = 8, TEXT = 40, ROUTER_BYTE = 4, ROOM = SRDMA_MAX_PACKET + 64 };

/* A sealed packet and whether it was delivered. */
struct slot {
	int from, len, delivered;
	struct srdma_packet p;
	uint8_t data[SRDMA_MAX_PACKET];
	uint8_t text[TEXT];
};

/* The fuzzer's bytes, followed by zeros. */
struct input {
	const uint8_t *at;
	size_t left;
};

static struct slot slots[SLOTS];
static const uint8_t access_key[SRDMA_MEMKEY_LEN] = "K_access";
static uint8_t datagram[ROOM], plain[SRDMA_MAX_PAYLOAD];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t next(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static void do_seal(struct pair *pair, const struct protection *how,
		    struct input *in)
{
	struct slot *s = &slots[next(in) % SLOTS];
	const unsigned pick = (unsigned)next(in) << 8 | next(in);

	memset(s, 0, sizeof(*s));
	if (!sample_at(pick % SAMPLES, &s->p))
		return;
	s->from = pick >> 15 & 1;
	s->p.offset += next(in);
	s->p.ack.offset = s->p.offset;
	if (s->p.payload_len)
		s->p.payload_len = 1 + next(in) % TEXT;
	for (uint32_t i = 0; i < s->p.payload_len; i++)
		s->text[i] = next(in);
	if ((how->mode & SRDMA_MODE_MEM) && (s->p.flags & SRDMA_STH_PROOF))
		s->p.access_key = access_key;
	s->len = srdma_session_seal(pair->end[s->from], &s->p, s->text, s->data,
				    sizeof(s->data));
	CHECK(s->len > 0);
}

/*
 * Returns 1 if `datagram` equals the sealed packet, except for bytes that no
 * tag covers.
 */
static int is_sealed(const struct slot *s, int len, uint8_t level)
{
	uint8_t copy[SRDMA_MAX_PACKET];

	if (len != s->len)
		return 0;
	memcpy(copy, datagram, (size_t)len);
	copy[ROUTER_BYTE] = 0;
	if (level == SRDMA_LEVEL_HEADER)
		memcpy(copy + s->p.payload_at, s->data + s->p.payload_at,
		       s->p.payload_len);
	return memcmp(copy, s->data, (size_t)len) == 0;
}

/* Checks the proof of an accepted packet, if seal made one. */
static void check_proof(const struct srdma_session *to, const struct slot *s,
			const struct srdma_packet *q)
{
	uint8_t proof[SRDMA_PROOF_LEN];
	const uint8_t *ad;
	size_t len;

	if (!s->p.access_key)
		return;
	CHECK(q->flags & SRDMA_STH_PROOF);
	len = srdma_session_claim(to, q, &ad);
	CHECK(srdma_memkey_proof(&pair_means.cmac, proof, access_key, ad,
				 len) == 0);
	CHECK(memcmp(proof, q->proof, sizeof(proof)) == 0);
}

/* An accepted datagram was sealed by the other end and is not a repetition. */
static void check_accepted(struct pair *pair, const struct protection *how,
			   int to, int len, const struct srdma_packet *q)
{
	const uint8_t *text = datagram + q->payload_at;

	for (int i = 0; i < SLOTS; i++) {
		struct slot *s = &slots[i];

		if (s->len == 0 || s->from == to || s->delivered ||
		    !is_sealed(s, len, how->level))
			continue;
		CHECK(q->pn == s->p.pn);
		CHECK(q->request_id == s->p.request_id);
		CHECK(q->payload_len == s->p.payload_len);
		if (how->level != SRDMA_LEVEL_HEADER)
			text = s->text;
		CHECK(memcmp(plain, text, q->payload_len) == 0);
		check_proof(pair->end[to], s, q);
		s->delivered = 1;
		return;
	}
	abort();
}

/* Applies one change to `datagram`. Returns its new length. */
static int mutate(struct input *in, int len)
{
	const uint8_t how = next(in);
	const int at = (next(in) << 8 | next(in)) % len;

	switch (how % 6) {
	case 0: /* one byte */
		datagram[at] ^= next(in);
		break;
	case 1: /* truncated */
		return at;
	case 2: /* extended */
		for (int n = next(in) % 64; n > 0; n--)
			datagram[len++] = next(in);
		break;
	case 3: /* spliced with another packet */
		memcpy(datagram + at, slots[how / 6 % SLOTS].data + at,
		       (size_t)(len - at));
		break;
	case 4: /* a few bytes of the header */
		for (int n = 0; n < 4; n++)
			datagram[next(in) % len] = next(in);
		break;
	default: /* unchanged */
		break;
	}
	return len;
}

/* Delivers len bytes of `datagram` to an end. Returns the result of open. */
static int deliver(struct pair *pair, const struct protection *how, int to,
		   int len)
{
	const uint64_t highest = srdma_session_highest(pair->end[to]);
	struct srdma_packet q;
	int r;

	memset(plain, 0, sizeof(plain));
	r = srdma_session_open(pair->end[to], &q, datagram, (size_t)len, plain);
	if (r == 0 && how->suite)
		check_accepted(pair, how, to, len, &q);
	if (r == 0)
		return 0;
	CHECK(r < 0 && r >= -SRDMA_REFUSED_TAG);
	CHECK(srdma_session_highest(pair->end[to]) == highest);
	for (int i = 0; i < TEXT; i++)
		CHECK(plain[i] == 0);
	return r;
}

static void do_open(struct pair *pair, const struct protection *how,
		    struct input *in)
{
	const uint8_t pick = next(in);
	const struct slot *s = &slots[pick % SLOTS];
	const int to = pick & 0x80 ? s->from : !s->from;
	const int fresh = to != s->from && !s->delivered;
	const uint64_t highest = srdma_session_highest(pair->end[to]);

	if (s->len == 0)
		return;
	memcpy(datagram, s->data, (size_t)s->len);
	if (pick & 0x40)
		deliver(pair, how, to, mutate(in, s->len));
	else if (deliver(pair, how, to, s->len) && how->suite)
		/*
		 * An unchanged packet is refused only if it is reflected to its
		 * sender, repeated or too old for the window.
		 */
		CHECK(!fresh || s->p.pn + 64 <= highest);
}

/* Delivers random bytes. */
static void do_raw(struct pair *pair, const struct protection *how,
		   struct input *in)
{
	const int to = next(in) & 1, len = next(in);

	for (int i = 0; i < len; i++)
		datagram[i] = next(in);
	deliver(pair, how, to, len);
}

/*
 * Chooses a protection and a mode. Returns the number of contexts of the key
 * cache.
 */
static unsigned choose(struct protection *how, struct input *in)
{
	static const unsigned contexts[] = { 0, 1, 3, 8 };
	const uint8_t pick = next(in), mode = next(in);

	/* One input in 32 has no protection: it is checked only for crashes. */
	if (pick >= 8 && !protection_at((pick - 8u) / 2, how))
		protection_at(0, how);
	if (how->suite) {
		how->mode = mode % SRDMA_MODES;
		how->shared = mode >> 2 & 1;
	}
	return contexts[mode >> 3 & 3];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct protection how = { .level = SRDMA_LEVEL_NONE };
	struct pair pair;

	CHECK(pair_open(choose(&how, &in)) == 0);
	memset(slots, 0, sizeof(slots));
	CHECK(pair_create(&pair, &how) == 0 && pair_settle(&pair) == 0);
	while (in.left) {
		const uint8_t action = next(&in);

		if (action % 8 < 3)
			do_seal(&pair, &how, &in);
		else if (action % 8 < 7)
			do_open(&pair, &how, &in);
		else
			do_raw(&pair, &how, &in);
	}
	pair_destroy(&pair);
	pair_close();
	return 0;
}
