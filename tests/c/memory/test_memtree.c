#include "memory/memtree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/memory.h"

#define POW(n) (UINT64_C(1) << (n))

static struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX];

/* review A13 */
static void test_limits(void **state)
{
	static const struct {
		uint64_t start, end;
		uint8_t log2_block, depth_limit;
		int want;
	} rows[] = {
		{ 0, 1, 6, 1, 0 },
		{ 0, POW(63), 6, 48, 0 },
		{ POW(63) - 1, UINT64_MAX, 30, 48, 0 },
		{ UINT64_MAX - 1, UINT64_MAX, 6, 48, 0 },
		{ 0, 0, 12, 48, -EINVAL },
		{ 5, 5, 12, 48, -EINVAL },
		{ 5, 4, 12, 48, -EINVAL },
		{ UINT64_MAX, 0, 12, 48, -EINVAL },
		{ 0, POW(63) + 1, 12, 48, -EINVAL },
		{ 0, UINT64_MAX, 12, 48, -EINVAL },
		{ 0, 4096, 5, 48, -EINVAL },
		{ 0, 4096, 31, 48, -EINVAL },
		{ 0, 4096, 255, 48, -EINVAL },
		{ 0, 4096, 12, 0, -EINVAL },
		{ 0, 4096, 12, 49, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct srdma_memtree t = { rows[i].start, rows[i].end,
						 rows[i].log2_block,
						 rows[i].depth_limit };

		assert_int_equal(srdma_memtree_check(&t), rows[i].want);
	}
}

/* sizes at which a calculation could overflow */
static void test_depth_and_granule(void **state)
{
	static const struct {
		uint64_t len;
		unsigned log2_block, limit, depth;
		uint64_t granule;
	} rows[] = {
		{ 1, 6, 48, 0, 64 },
		{ 64, 6, 48, 0, 64 },
		{ 65, 6, 48, 1, 64 },
		{ 128, 6, 48, 1, 64 },
		{ 129, 6, 48, 2, 64 },
		{ POW(32) - 1, 12, 48, 20, 4096 },
		{ POW(32), 12, 48, 20, 4096 },
		{ POW(32) + 1, 12, 48, 21, 4096 },
		{ POW(48), 12, 48, 36, 4096 },
		{ POW(48) + 1, 12, 48, 37, 4096 },
		{ POW(48), 6, 48, 42, 64 },
		{ POW(48), 12, 3, 3, POW(45) },
		{ POW(48) + 1, 12, 3, 3, POW(46) },
		{ POW(48), 12, 1, 1, POW(47) },
		{ POW(63) - 1, 6, 48, 48, POW(15) },
		{ POW(63), 6, 48, 48, POW(15) },
		{ POW(63), 30, 48, 33, POW(30) },
		{ POW(62) + 1, 30, 48, 33, POW(30) },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct srdma_memtree t = { 0, rows[i].len,
						 (uint8_t)rows[i].log2_block,
						 (uint8_t)rows[i].limit };

		assert_int_equal(srdma_memtree_check(&t), 0);
		assert_int_equal(srdma_memtree_depth(&t), rows[i].depth);
		assert_true(srdma_memtree_granule(&t) == rows[i].granule);
		assert_int_equal(srdma_memtree_find(&t, rows[i].depth,
						    rows[i].len - 1, node),
				 0);
		assert_true(node->hi == rows[i].len);
		assert_true(node->index == (rows[i].len - 1) / rows[i].granule);
		assert_int_equal(
			srdma_memtree_find(&t, rows[i].depth + 1, 0, node),
			-EINVAL);
		assert_int_equal(srdma_memtree_find(&t, 0, rows[i].len, node),
				 -EINVAL);
		assert_int_equal(srdma_memtree_find(&t, 0, UINT64_MAX, node),
				 -EINVAL);
		assert_int_equal(srdma_memtree_cover(&t, 0, rows[i].len, node),
				 1);
		assert_int_equal(node->depth, 0);
	}
}

/* The nodes of each depth tile the region, and lie in their parents. */
static void test_nodes_tile_region(void **state)
{
	(void)state;
	for (uint64_t len = 1; len <= 40 * 64; len += 21) {
		const struct srdma_memtree t = region(len, 6, 48);

		for (unsigned d = 0; d <= srdma_memtree_depth(&t); d++) {
			struct srdma_memnode n, up;
			uint64_t index = 0;

			for (uint64_t at = 0; at < len; at = n.hi, index++) {
				assert_int_equal(
					srdma_memtree_find(&t, d, at, &n), 0);
				assert_true(n.lo == at && n.hi > at);
				assert_true(n.index == index && n.depth == d);
				if (!d)
					continue;
				srdma_memtree_find(&t, d - 1, at, &up);
				assert_true(up.index == index / 2);
				assert_true(up.lo <= n.lo && n.hi <= up.hi);
			}
		}
	}
}

/* The smallest number of nodes that tile a range, by dynamic programming. */
static unsigned fewest(const struct srdma_memtree *t, uint64_t lo, uint64_t hi)
{
	unsigned best[65] = { 0 }; /* from lo to each block boundary */
	const uint64_t g = srdma_memtree_granule(t);
	struct srdma_memnode n;
	uint64_t last = (hi - lo + g - 1) / g;

	for (uint64_t at = 1; at <= last; at++) {
		best[at] = UINT32_MAX;
		for (unsigned d = 0; d <= srdma_memtree_depth(t); d++) {
			uint64_t from;

			srdma_memtree_find(t, d, lo + (at - 1) * g, &n);
			from = (n.lo - lo) / g;
			if (n.lo < lo || n.hi > hi ||
			    (n.hi != hi && n.hi != lo + at * g) ||
			    (n.hi == hi && at != last))
				continue;
			if (best[from] + 1 < best[at])
				best[at] = best[from] + 1;
		}
	}
	return best[last];
}

static void check_cover(const struct srdma_memtree *t, uint64_t lo, uint64_t hi)
{
	int n = srdma_memtree_cover(t, lo, hi, node);
	const unsigned depth = srdma_memtree_depth(t);

	assert_int_equal(n, fewest(t, lo, hi));
	assert_in_range(n, 1, depth < 2 ? 1 : 2 * (depth - 1));
	for (int i = 0; i < n; i++) {
		assert_true(node[i].lo == (i ? node[i - 1].hi : lo));
		assert_true(node[i].depth <= depth);
	}
	assert_true(node[n - 1].hi == hi);
}

/* Every range of whole granules of every region of up to 64 blocks. */
/* RFC 5042 A6.3.4 */
static void test_every_cover_is_smallest(void **state)
{
	(void)state;
	for (uint64_t len = 17; len <= 64 * 64; len += 47) {
		const unsigned limit = 1 + (unsigned)(len % 7);
		const struct srdma_memtree t = region(len, 6, limit);
		const uint64_t g = srdma_memtree_granule(&t);

		for (uint64_t lo = 0; lo < len; lo += g) {
			for (uint64_t hi = lo + g; hi < len; hi += g)
				check_cover(&t, lo, hi);
			check_cover(&t, lo, len);
		}
	}
}

static void test_cover_refusals(void **state)
{
	static const struct {
		uint64_t lo, hi;
		int want;
	} rows[] = {
		{ 0, 10000, 1 },
		{ 8192, 10000, 1 },
		{ 4096, 10000, 2 },
		{ 4096, 8192, 1 },
		{ 0, 0, -ERANGE },
		{ 4096, 4096, -ERANGE },
		{ 8192, 4096, -ERANGE },
		{ 0, 10001, -ERANGE },
		{ 0, 12288, -ERANGE },
		{ 12288, 16384, -ERANGE },
		{ 0, UINT64_MAX, -ERANGE },
		{ UINT64_MAX - 4095, 4096, -ERANGE },
		{ 1, 4096, -EINVAL },
		{ 64, 4096, -EINVAL },
		{ 4095, 10000, -EINVAL },
		{ 0, 9999, -EINVAL },
		{ 0, 4097, -EINVAL },
	};
	const struct srdma_memtree t = region(10000, 12, 48);

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(
			srdma_memtree_cover(&t, rows[i].lo, rows[i].hi, node),
			rows[i].want);
}

/* The longest cover possible: two nodes on each of 47 levels. */
static void test_longest_cover(void **state)
{
	const struct srdma_memtree t = { 0, POW(63), 6, 48 };
	const uint64_t g = srdma_memtree_granule(&t);

	(void)state;
	assert_int_equal(srdma_memtree_cover(&t, g, POW(63) - g, node),
			 SRDMA_MEMTREE_COVER_MAX);
	assert_true(node[0].lo == g);
	assert_true(node[SRDMA_MEMTREE_COVER_MAX - 1].hi == POW(63) - g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_depth_and_granule),
		cmocka_unit_test(test_nodes_tile_region),
		cmocka_unit_test(test_every_cover_is_smallest),
		cmocka_unit_test(test_cover_refusals),
		cmocka_unit_test(test_longest_cover),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
