/* Frames: a session seals and opens whole packets, in each key mode. */
#include <stdlib.h>
#include <string.h>

#include "support/pair.h"
#include "rung.h"
#include "wire/stats.h"

/*
 * A pair of sessions. Key mode pd with and without cache, mem with a proof in
 * each packet.
 */
struct frame {
	struct pair pair;
	struct srdma_keycache *cache; /* the cache of this pair */
	uint32_t payload;
	uint8_t flags;
	uint8_t in[SRDMA_MAX_PAYLOAD], back[SRDMA_MAX_PAYLOAD];
	uint8_t out[RUNG_BATCH][SRDMA_MAX_PACKET];
	int len[RUNG_BATCH];
};

/*
 * Set up the state that all pairs share; it is never freed, except for the
 * caches. Returns 0 or -errno.
 */
static int open_means(struct frame *f, const struct shape *s, unsigned cache)
{
	int r;

	pair_means.provider = s->provider;
	r = pair_means.cache ? srdma_keycache_create(&pair_means.cache, cache,
						     s->provider)
			     : pair_open(cache);
	f->cache = pair_means.cache;
	return r;
}

static struct frame *open_frame(const struct shape *s,
				const struct protection *p, unsigned cache)
{
	struct frame *f = calloc(1, sizeof(*f));

	if (!f || open_means(f, s, cache))
		wrong("frame", "out of memory");
	if (pair_create(&f->pair, p) || pair_settle(&f->pair))
		wrong("frame", "cannot create a pair of sessions");
	f->payload = s->payload;
	f->flags = p->mode & SRDMA_MODE_MEM ? SRDMA_STH_PROOF : 0;
	return f;
}

static struct frame *open_aead(const struct shape *s, uint8_t mode,
			       unsigned cache)
{
	const struct protection p = { .suite = s->suite,
				      .level = SRDMA_LEVEL_AEAD,
				      .tag_len = s->suite->tag_len,
				      .mode = mode };

	return open_frame(s, &p, cache);
}

/* A MAC only, over headers and payload. */
static void *open_mac(const struct shape *s)
{
	const struct protection p = {
		.suite = srdma_suite_by_name("aes-128-gmac"),
		.level = SRDMA_LEVEL_PACKET,
		.tag_len = 16,
	};

	return open_frame(s, &p, 0);
}

static void *open_basic(const struct shape *s)
{
	return open_aead(s, SRDMA_MODE_BASIC, 0);
}

static void *open_pd_cached(const struct shape *s)
{
	return open_aead(s, SRDMA_MODE_PD, 16);
}

static void *open_pd(const struct shape *s)
{
	return open_aead(s, SRDMA_MODE_PD, 0);
}

static void *open_mem(const struct shape *s)
{
	return open_aead(s, SRDMA_MODE_MEM, 0);
}

static void close_frame(void *state)
{
	struct frame *f = state;

	pair_destroy(&f->pair);
	srdma_keycache_destroy(f->cache);
	free(f);
}

static uint64_t run_seal(void *state, unsigned n)
{
	static const uint8_t access_key[SRDMA_PROOF_LEN] = { 9 };
	struct frame *f = state;
	const uint64_t start = ticks();

	for (unsigned i = 0; i < n; i++) {
		struct srdma_packet p = {
			.opcode = SRDMA_OP_WRITE_ONLY,
			.flags = f->flags,
			.request_id = PAIR_NEXT_ID,
			.va = 0x10000,
			.rkey = 7,
			.dma_len = f->payload,
			.access_key = f->flags ? access_key : NULL,
			.payload_len = (uint16_t)f->payload,
		};

		f->len[i] = srdma_session_seal(f->pair.end[0], &p, f->in,
					       f->out[i], SRDMA_MAX_PACKET);
		if (f->len[i] < 0)
			wrong("seal", "sealing failed");
	}
	return ticks() - start;
}

/* expected: result of each open, 0 or -SRDMA_REFUSED_*. */
static uint64_t open_each(struct frame *f, unsigned n, int expected)
{
	const uint64_t start = ticks();

	for (unsigned i = 0; i < n; i++) {
		struct srdma_packet p;

		if (srdma_session_open(f->pair.end[1], &p, f->out[i],
				       (size_t)f->len[i], f->back) != expected)
			wrong("open", "a packet had an unexpected result");
	}
	return ticks() - start;
}

static uint64_t run_open(void *state, unsigned n)
{
	run_seal(state, n);
	return open_each(state, n, 0);
}

/* The cost of a forged packet (P8): its last payload byte is wrong. */
static uint64_t run_forged(void *state, unsigned n)
{
	struct frame *f = state;

	run_seal(f, n);
	for (unsigned i = 0; i < n; i++)
		f->out[i][f->len[i] - 1] ^= 1;
	return open_each(f, n, -SRDMA_REFUSED_TAG);
}

const struct rung rungs_frame[] = {
	{ "seal", "suite", "headers, number, associated data, tag", open_basic,
	  run_seal, close_frame },
	{ "open", "suite", "parsing, replay window, tag", open_basic, run_open,
	  close_frame },
	{ "forged", "open", "a packet with a wrong tag is refused", open_basic,
	  run_forged, close_frame },
	{ "forged mac", "tag",
	  "the same, of aes-128-gmac over headers and payload", open_mac,
	  run_forged, close_frame },
	{ "seal pd cached", "seal", "key mode pd, cached context",
	  open_pd_cached, run_seal, close_frame },
	{ "seal pd", "seal", "key mode pd, the key derived per packet", open_pd,
	  run_seal, close_frame },
	{ "open pd", "open", "the same, opened", open_pd, run_open,
	  close_frame },
	{ "seal mem", "seal", "with a memory proof", open_mem, run_seal,
	  close_frame },
	{ 0 },
};
