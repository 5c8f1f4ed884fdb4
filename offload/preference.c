#include "preference.h"

#include <string.h>
#include <time.h>

#include "base/time.h"
#include "crypto/suite.h"
#include "wire/wire.h"

/* With several rounds, at least one is likely not interrupted. */
enum { PAYLOAD = 2048, AD = 100, ROUNDS = 6, SEALS = 32 };
#define NOT_MEASURED UINT64_MAX /* sorts after all measured ones */

struct measured {
	uint8_t id;
	uint64_t ns; /* time of SEALS packets */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SRDMA_SECOND + (uint64_t)t.tv_nsec;
}

/* Time of one round, or NOT_MEASURED if sealing failed. */
static uint64_t round_ns(const struct srdma_suite_verbs *verbs,
			 struct srdma_suite_ctx *ctx)
{
	static const uint8_t text[PAYLOAD], ad[AD];
	uint8_t nonce[16] = { 0 }, out[PAYLOAD], tag[SRDMA_MAX_TAG];
	const struct srdma_suite_io io = {
		.nonce = nonce,
		.ad = ad,
		.ad_len = sizeof(ad),
		.in = text,
		.in_len = sizeof(text),
		.out = out,
	};
	const uint64_t start = now_ns();

	for (uint8_t i = 0; i < SEALS; i++) {
		nonce[0] = i;
		if (verbs->seal(ctx, &io, tag) < 0)
			return NOT_MEASURED;
	}
	return now_ns() - start;
}

/*
 * The time of the shortest round. The key is public: its packets are discarded.
 */
static uint64_t measure(const struct srdma_suite *s,
			struct srdma_provider *provider)
{
	static const uint8_t key[SRDMA_SUITE_MAX_KEY];
	const struct srdma_suite_verbs *verbs =
		srdma_provider_verbs(provider, s);
	const struct srdma_suite_key k = { s, SRDMA_SUITE_SEAL, s->tag_len,
					   key };
	struct srdma_suite_ctx *ctx;
	uint64_t best = NOT_MEASURED;

	if (verbs->create(&ctx, provider, &k) < 0)
		return best;
	for (int i = 0; i < ROUNDS; i++) {
		const uint64_t ns = round_ns(verbs, ctx);

		if (ns < best)
			best = ns;
	}
	verbs->destroy(ctx);
	return best;
}

/* Stable: suites with equal times keep the order of the table. */
static void insert(struct measured *list, unsigned n, struct measured m)
{
	for (; n && list[n - 1].ns > m.ns; n--)
		list[n] = list[n - 1];
	list[n] = m;
}

void preference_measure(uint8_t suites[SRDMA_CTL_SUITES_LEN],
			struct srdma_provider *provider)
{
	struct measured list[SRDMA_CTL_SUITES_LEN - 1];
	const struct srdma_suite *s;
	unsigned n;

	for (n = 0; n < SRDMA_CTL_SUITES_LEN - 1; n++) {
		s = srdma_suite_at(n);
		if (!s)
			break;
		insert(list, n,
		       (struct measured){ s->id, s->recommended
							 ? measure(s, provider)
							 : NOT_MEASURED });
	}
	memset(suites, 0, SRDMA_CTL_SUITES_LEN);
	for (unsigned i = 0; i < n; i++)
		suites[i] = list[i].id;
}
