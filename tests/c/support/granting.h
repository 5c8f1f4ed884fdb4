/* Fixture for capability tests: a region, and capabilities for it. */
#ifndef SRDMA_TEST_GRANTING_H
#define SRDMA_TEST_GRANTING_H

#include "memory/capability.h"
#include "support/memory.h"

enum { RKEY = 0x8badf00d };

/* The region of the test. */
static struct srdma_memtree tree;
static struct srdma_memkey_cache cache;

static inline void set_region(const struct srdma_memtree *t)
{
	uint8_t key[SRDMA_MEMKEY_LEN];

	tree = *t;
	make_mr_key(key, t);
	srdma_memkey_cache_init(&cache, t, key);
}

static inline int grant(struct srdma_capability *cap, uint64_t lo, uint64_t hi,
			uint8_t rights)
{
	const struct srdma_capability_scope scope = { lo, hi, rights };

	return srdma_capability_grant(cap, &cmac, &cache, RKEY, &scope);
}

static inline int narrow(struct srdma_capability *cap,
			 const struct srdma_capability *from, uint64_t lo,
			 uint64_t hi, uint8_t rights)
{
	const struct srdma_capability_scope scope = { lo, hi, rights };

	return srdma_capability_narrow(cap, &cmac, from, &scope);
}

static const struct srdma_memkey_bearer alice = { "sha256 of Alice", 77 };

static inline void seal(struct srdma_capability *cap)
{
	assert_int_equal(srdma_capability_seal(cap, &cmac, &alice), 0);
}

/* Encodes and decodes a capability, as for transport. */
static inline struct srdma_capability travel(const struct srdma_capability *cap)
{
	uint8_t token[SRDMA_CAPABILITY_MAX];
	struct srdma_capability got;
	int n = srdma_capability_encode(token, cap);

	assert_true(n > 0);
	assert_int_equal(srdma_capability_decode(&got, token, (size_t)n), 0);
	return got;
}

static inline int same(const struct srdma_capability *a,
		       const struct srdma_capability *b)
{
	uint8_t x[SRDMA_CAPABILITY_MAX], y[SRDMA_CAPABILITY_MAX];
	int n = srdma_capability_encode(x, a);

	assert_true(n > 0);
	return srdma_capability_encode(y, b) == n && !memcmp(x, y, (size_t)n);
}

#endif
