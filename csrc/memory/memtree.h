/*
 * The binary tree over a region: which node covers which bytes. Arithmetic
 * without keys (docs/protocol.md 6.1). All ranges are half-open, and in bytes
 * relative to the region's start.
 */
#ifndef SRDMA_MEMTREE_H
#define SRDMA_MEMTREE_H

#include <stdint.h>

enum {
	SRDMA_MEMTREE_BLOCK_MIN = 6, /* log2 */
	SRDMA_MEMTREE_BLOCK_MAX = 30,
	SRDMA_MEMTREE_DEPTH_MAX = 48,
	/* of a range that spares the first and the last node: two a level */
	SRDMA_MEMTREE_COVER_MAX = 2 * (SRDMA_MEMTREE_DEPTH_MAX - 1),
};

struct srdma_memtree {
	uint64_t start, end; /* virtual addresses */
	uint8_t log2_block;
	uint8_t depth_limit;
};

struct srdma_memnode {
	uint64_t index; /* in its depth */
	uint64_t lo, hi;
	uint8_t depth;
};

/* Is this a legal tree? 0 or -EINVAL. All other calls take legal ones only. */
int srdma_memtree_check(const struct srdma_memtree *t);

static inline uint64_t srdma_memtree_len(const struct srdma_memtree *t)
{
	return t->end - t->start;
}

/* The greatest depth that may be granted or proven. */
unsigned srdma_memtree_depth(const struct srdma_memtree *t);

/* Bytes of a node of that depth, the last one perhaps less: what every
 * grantable range is made of. */
uint64_t srdma_memtree_granule(const struct srdma_memtree *t);

/* The node of a depth with this byte. 0; -EINVAL: too deep, or no such byte. */
int srdma_memtree_find(const struct srdma_memtree *t, unsigned depth,
		       uint64_t offset, struct srdma_memnode *node);

/*
 * The fewest nodes that make up [lo, hi), ascending. Returns their number;
 * -ERANGE: empty or outside the region; -EINVAL: not made of granules.
 */
int srdma_memtree_cover(const struct srdma_memtree *t, uint64_t lo, uint64_t hi,
			struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX]);

#endif
