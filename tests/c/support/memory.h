/*
 * Fixture for memory key tests: regions, random numbers, and trees of keys
 * derived step by step.
 */
#ifndef SRDMA_TEST_MEMORY_H
#define SRDMA_TEST_MEMORY_H

#include <stdint.h>
#include <string.h>

#include "crypto/cmac.h"
#include "memory/memkey.h"
#include "memory/memtree.h"

static const uint8_t pd_key[SRDMA_MEMKEY_LEN] = "K_PDmem of tests";
static struct srdma_cmac cmac;

/* cmocka's group setup and teardown */
static inline int open_cmac(void **state)
{
	(void)state;
	return srdma_cmac_create(&cmac, SRDMA_MEMKEY_LEN, NULL);
}

static inline int close_cmac(void **state)
{
	(void)state;
	srdma_cmac_destroy(&cmac);
	return 0;
}

/* splitmix64 */
static inline uint64_t random64(uint64_t *seed)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* below n */
static inline uint64_t random_below(uint64_t *seed, uint64_t n)
{
	return random64(seed) % n;
}

static inline struct srdma_memtree region(uint64_t len, unsigned log2_block,
					  unsigned depth_limit)
{
	const uint64_t start = 0x7f0011223000;

	return (struct srdma_memtree){
		.start = start,
		.end = start + len,
		.log2_block = (uint8_t)log2_block,
		.depth_limit = (uint8_t)depth_limit,
	};
}

static inline void make_mr_key(uint8_t key[SRDMA_MEMKEY_LEN],
			       const struct srdma_memtree *t)
{
	const struct srdma_memkey_id id = { .rkey = 0x8badf00d,
					    .generation = 1,
					    .salt = "salt of the tree" };

	assert_int_equal(srdma_memkey_mr(&cmac, key, pd_key, t, &id), 0);
}

/* Derives the key of a node from K_MR level by level. */
static inline void node_key(uint8_t key[SRDMA_MEMKEY_LEN],
			    const struct srdma_memtree *t, uint8_t right,
			    const struct srdma_memnode *node)
{
	uint8_t mr_key[SRDMA_MEMKEY_LEN];

	make_mr_key(mr_key, t);
	assert_int_equal(srdma_memkey_root(&cmac, key, mr_key, right), 0);
	for (unsigned d = 1; d <= node->depth; d++) {
		struct srdma_memnode at;

		assert_int_equal(srdma_memtree_find(t, d, node->lo, &at), 0);
		assert_int_equal(srdma_memkey_child(&cmac, key, key, &at), 0);
	}
}

static inline int is_zero(const void *data, size_t len)
{
	const uint8_t *bytes = data;

	while (len && !*bytes) {
		bytes++;
		len--;
	}
	return !len;
}

#endif
