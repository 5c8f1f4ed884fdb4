/*
 * Fixture for session tests: the key modes, and counters of the worker's key
 * cache.
 */
#ifndef SRDMA_TEST_MODES_H
#define SRDMA_TEST_MODES_H

#include "support/traffic.h"

/* Key modes; PD also with a shared K_PD. */
static const struct {
	uint8_t mode, shared;
} modes[] = {
	{ SRDMA_MODE_BASIC, 0 },
	{ SRDMA_MODE_PD, 0 },
	{ SRDMA_MODE_PD, 1 },
	{ SRDMA_MODE_MEM, 0 },
	{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 0 },
	{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 1 },
};

enum { MODES = sizeof(modes) / sizeof(modes[0]) };

static inline struct protection in_mode(struct protection p, unsigned m)
{
	p.mode = modes[m].mode;
	p.shared = modes[m].shared;
	return p;
}

/* Runs a check for every protection in every mode, with a cache. */
static inline void for_all(unsigned contexts,
			   void (*check)(const struct protection *))
{
	struct protection p, q;

	assert_int_equal(pair_open(contexts), 0);
	for (unsigned i = 0; protection_at(i, &p); i++)
		for (unsigned m = 0; m < MODES; m++) {
			q = in_mode(p, m);
			check(&q);
		}
	pair_close();
}

static inline struct srdma_keycache_counts counts(void)
{
	struct srdma_keycache_counts c;

	srdma_keycache_count(pair_means.cache, &c);
	return c;
}

#endif
