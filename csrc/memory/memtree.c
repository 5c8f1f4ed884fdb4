#include "memory/memtree.h"

#include <assert.h>
#include <errno.h>

/* Limits the length padded to a power of two to 2^63. */
#define LEN_MAX (UINT64_C(1) << 63)

int srdma_memtree_check(const struct srdma_memtree *t)
{
	if (t->start >= t->end || srdma_memtree_len(t) > LEN_MAX ||
	    t->log2_block < SRDMA_MEMTREE_BLOCK_MIN ||
	    t->log2_block > SRDMA_MEMTREE_BLOCK_MAX || t->depth_limit < 1 ||
	    t->depth_limit > SRDMA_MEMTREE_DEPTH_MAX)
		return -EINVAL;
	return 0;
}

/* Depth of the leaves (blocks), with the block count padded to 2^height. */
static unsigned height(const struct srdma_memtree *t)
{
	const uint64_t last = (srdma_memtree_len(t) - 1) >> t->log2_block;

	return last ? 64 - (unsigned)__builtin_clzll(last) : 0;
}

/* log2 of the size of a node in bytes. */
static unsigned log2_span(const struct srdma_memtree *t, unsigned depth)
{
	return t->log2_block + height(t) - depth;
}

unsigned srdma_memtree_depth(const struct srdma_memtree *t)
{
	const unsigned h = height(t);

	return h < t->depth_limit ? h : t->depth_limit;
}

uint64_t srdma_memtree_granule(const struct srdma_memtree *t)
{
	return UINT64_C(1) << log2_span(t, srdma_memtree_depth(t));
}

/* The node of a depth that contains the byte at offset. */
static struct srdma_memnode node_at(const struct srdma_memtree *t,
				    unsigned depth, uint64_t offset)
{
	const unsigned shift = log2_span(t, depth);
	const uint64_t span = UINT64_C(1) << shift;
	const uint64_t len = srdma_memtree_len(t);
	const uint64_t lo = offset & ~(span - 1);

	return (struct srdma_memnode){
		.index = offset >> shift,
		.lo = lo,
		.hi = len - lo > span ? lo + span : len,
		.depth = (uint8_t)depth,
	};
}

int srdma_memtree_find(const struct srdma_memtree *t, unsigned depth,
		       uint64_t offset, struct srdma_memnode *node)
{
	if (depth > srdma_memtree_depth(t) || offset >= srdma_memtree_len(t))
		return -EINVAL;
	*node = node_at(t, depth, offset);
	return 0;
}

/* The largest node that begins at lo and ends at or before hi. */
static struct srdma_memnode greatest(const struct srdma_memtree *t, uint64_t lo,
				     uint64_t hi)
{
	struct srdma_memnode node = node_at(t, 0, lo);

	while (node.lo < lo || node.hi > hi)
		node = node_at(t, node.depth + 1U, lo);
	return node;
}

/* RFC 5042 A6.3.4 */
int srdma_memtree_cover(const struct srdma_memtree *t, uint64_t lo, uint64_t hi,
			struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX])
{
	const uint64_t granule = srdma_memtree_granule(t);
	const uint64_t len = srdma_memtree_len(t);
	int n = 0;

	if (lo >= hi || hi > len)
		return -ERANGE;
	if (lo % granule || (hi % granule && hi != len))
		return -EINVAL;
	while (lo < hi) {
		assert(n < SRDMA_MEMTREE_COVER_MAX);
		node[n] = greatest(t, lo, hi);
		lo = node[n++].hi;
	}
	return n;
}
