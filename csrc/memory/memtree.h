/*
 * Binary tree over a region: which node covers which bytes (docs/protocol.md
 * 6.1). Arithmetic only, no keys. Ranges are half-open and in bytes relative to
 * the region's start.
 */
#ifndef SRDMA_MEMTREE_H
#define SRDMA_MEMTREE_H

#include <stdint.h>

enum {
	SRDMA_MEMTREE_BLOCK_MIN = 6, /* log2 of bytes */
	SRDMA_MEMTREE_BLOCK_MAX = 30,
	SRDMA_MEMTREE_DEPTH_MAX = 48,
	/* most nodes of a range: two on each level from 2 on, for a range
	 * without the first and the last leaf */
	SRDMA_MEMTREE_COVER_MAX = 2 * (SRDMA_MEMTREE_DEPTH_MAX - 1),
};

struct srdma_memtree {
	uint64_t start, end; /* virtual addresses */
	uint8_t log2_block;
	uint8_t depth_limit;
};

struct srdma_memnode {
	uint64_t index; /* within its depth, from 0 */
	uint64_t lo, hi;
	uint8_t depth;
};

/* Returns 0 if the tree is legal, else -EINVAL. All other functions require a
 * legal tree. */
int srdma_memtree_check(const struct srdma_memtree *t);

static inline uint64_t srdma_memtree_len(const struct srdma_memtree *t)
{
	return t->end - t->start;
}

/* Greatest depth of a node that can be granted or proven. */
unsigned srdma_memtree_depth(const struct srdma_memtree *t);

/* Size in bytes of a node at that depth (the last node may be shorter). Ranges
 * that can be granted are made of these granules. */
uint64_t srdma_memtree_granule(const struct srdma_memtree *t);

/* Finds the node of a depth that contains the byte at offset. 0, or -EINVAL:
 * the depth is too great, or offset is outside the region. */
int srdma_memtree_find(const struct srdma_memtree *t, unsigned depth,
		       uint64_t offset, struct srdma_memnode *node);

/*
 * Finds the smallest set of nodes whose union is [lo, hi), in ascending order.
 * Returns their number; -ERANGE: the range is empty or outside the region;
 * -EINVAL: it does not begin at a multiple of the granule, or does not end at
 * one or at the end of the region.
 */
int srdma_memtree_cover(const struct srdma_memtree *t, uint64_t lo, uint64_t hi,
			struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX]);

#endif
