/*
 * The keys that follow from a capability token are exactly the granted ones.
 * The tests derive every possible key and compare. They also check the token
 * itself.
 */
#include "memory/capability.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/granting.h"

enum { NODES = 256 /* nodes of a tree with up to 64 blocks, in heap order */ };

/* A region, and all keys of its trees, derived step by step. */
static struct {
	int exists;
	struct srdma_memnode node;
	uint8_t key[3][SRDMA_MEMKEY_LEN];
} truth[NODES];

static void set_truth(const struct srdma_memtree *t)
{
	set_region(t);
	memset(truth, 0, sizeof(truth));
	for (unsigned d = 0; d <= srdma_memtree_depth(t); d++) {
		struct srdma_memnode n = { .hi = 0 };

		while (!srdma_memtree_find(t, d, n.hi, &n)) {
			const uint64_t i = (UINT64_C(1) << d) + n.index;

			assert_true(i < NODES);
			truth[i].exists = 1;
			truth[i].node = n;
			for (unsigned r = 0; r < 3; r++)
				node_key(truth[i].key[r], t, (uint8_t)(1U << r),
					 &n);
		}
	}
}

/* --- exact grants --------------------------------------------------------- */

/*
 * Marks node i and all its descendants, whose keys can be derived from `key`.
 * Compares each derived key with the one in truth[].
 */
static void derive(int marks[NODES], unsigned right, size_t i,
		   const uint8_t *key)
{
	assert_true(truth[i].exists && !marks[i]);
	assert_memory_equal(key, truth[i].key[right], SRDMA_MEMKEY_LEN);
	marks[i] = 1;
	for (size_t j = 2 * i; j < 2 * i + 2 && j < NODES; j++) {
		uint8_t child[SRDMA_MEMKEY_LEN];

		if (!truth[j].exists)
			continue;
		srdma_memkey_child(&cmac, child, key, &truth[j].node);
		derive(marks, right, j, child);
	}
}

static void derivable_is_granted(const struct srdma_capability *given)
{
	const struct srdma_capability cap = travel(given);
	size_t used = 0;

	for (unsigned r = 0; r < 3; r++) {
		int marks[NODES] = { 0 };

		if (!(cap.scope.rights >> r & 1))
			continue;
		for (unsigned n = 0; n < cap.nodes; n++)
			derive(marks, r,
			       (size_t)((UINT64_C(1) << cap.node[n].depth) +
					cap.node[n].index),
			       cap.key[used++]);
		for (size_t i = 1; i < NODES; i++)
			assert_int_equal(
				marks[i],
				truth[i].exists &&
					truth[i].node.lo >= cap.scope.lo &&
					truth[i].node.hi <= cap.scope.hi);
	}
	assert_true(is_zero(cap.key[used],
			    (SRDMA_CAPABILITY_KEYS - used) * SRDMA_MEMKEY_LEN));
}

/*
 * Tests all ranges of blocks of a region. A range that splits a granule is
 * refused.
 */
static void all_ranges(uint64_t len, unsigned limit)
{
	const struct srdma_memtree t = region(len, 6, limit);
	const uint64_t g = srdma_memtree_granule(&t);
	struct srdma_capability cap;
	uint8_t rights = 0;

	set_truth(&t);
	for (uint64_t lo = 0; lo < len; lo += 64) {
		for (uint64_t hi = lo + 64; hi < len + 64; hi += 64) {
			const uint64_t end = hi < len ? hi : len;

			rights = (uint8_t)(rights % 7 + 1);
			if (lo % g || (end % g && end != len)) {
				assert_int_equal(grant(&cap, lo, end, rights),
						 -EINVAL);
				continue;
			}
			assert_int_equal(grant(&cap, lo, end, rights), 0);
			derivable_is_granted(&cap);
		}
	}
	srdma_memkey_cache_wipe(&cache);
}

/* RFC 5042 R6.3.4-1; review A13 */
static void test_every_range_grants_exactly(void **state)
{
	(void)state;
	for (uint64_t blocks = 1; blocks <= 64; blocks++)
		all_ranges(64 * blocks, 48);
}

/* with a partial last block */
static void test_every_range_with_partial_last_block(void **state)
{
	(void)state;
	for (uint64_t blocks = 1; blocks <= 64; blocks++)
		all_ranges(64 * blocks - 1 - blocks * 7 % 63, 48);
}

static void test_every_range_with_limited_depth(void **state)
{
	(void)state;
	for (unsigned limit = 1; limit <= 5; limit++)
		for (uint64_t blocks = 1; blocks <= 64; blocks += 3)
			all_ranges(64 * blocks - blocks % 2, limit);
}

static int same_range(size_t i, size_t j)
{
	return truth[i].node.lo == truth[j].node.lo &&
	       truth[i].node.hi == truth[j].node.hi;
}

/*
 * Derives a child key from node i for the range of node j. The result equals
 * the key of a node only if that node is a child of i with this range.
 */
static void misuse(size_t i, size_t j)
{
	uint8_t key[SRDMA_MEMKEY_LEN];

	srdma_memkey_child(&cmac, key, truth[i].key[0], &truth[j].node);
	for (size_t k = 1; k < NODES; k++) {
		const int own =
			truth[k].exists && k / 2 == i && same_range(j, k);

		assert_int_equal(!memcmp(key, truth[k].key[0], sizeof(key)),
				 own);
	}
}

static void test_child_key_needs_own_range(void **state)
{
	(void)state;
	for (uint64_t blocks = 1; blocks <= 9; blocks++) {
		const struct srdma_memtree t = region(64 * blocks - 3, 6, 48);

		set_truth(&t);
		for (size_t i = 1; i < NODES; i++)
			for (size_t j = 1; truth[i].exists && j < NODES; j++)
				if (truth[j].exists)
					misuse(i, j);
	}
}

/*
 * A sealed token holds K_access of its nodes, and no key from which other keys
 * can be derived.
 */
static void test_sealed_token_holds_access_keys(void **state)
{
	const struct srdma_memtree t = region(64 * 11, 6, 48);

	(void)state;
	set_truth(&t);
	for (uint64_t lo = 0; lo < t.end - t.start; lo += 64) {
		for (uint64_t hi = lo + 64; hi <= 64 * 11; hi += 64) {
			struct srdma_capability cap;

			assert_int_equal(grant(&cap, lo, hi, 2), 0);
			seal(&cap);
			cap = travel(&cap);
			for (size_t k = 0; k < cap.nodes; k++) {
				const uint64_t i = (1U << cap.node[k].depth) +
						   cap.node[k].index;
				uint8_t want[SRDMA_MEMKEY_LEN];

				srdma_memkey_access(&cmac, want,
						    truth[i].key[1],
						    &truth[i].node, &alice);
				assert_memory_equal(cap.key[k], want,
						    sizeof(want));
			}
		}
	}
}

/* --- narrowing ------------------------------------------------------------ */

/* Narrows open and sealed capabilities to a range inside or outside theirs. */
static void narrow_to(const struct srdma_capability *open,
		      const struct srdma_capability *sealed, uint64_t lo,
		      uint64_t hi, uint8_t rights)
{
	const uint64_t len = srdma_memtree_len(&tree);
	const int inside = lo >= open->scope.lo && hi <= open->scope.hi;
	struct srdma_capability direct, got;
	int whole = 1;

	if (lo >= len || hi > len || lo >= hi || !inside) {
		assert_int_equal(narrow(&got, open, lo, hi, rights), -ERANGE);
		assert_int_equal(narrow(&got, sealed, lo, hi, rights), -ERANGE);
		assert_true(is_zero(&got, sizeof(got)));
		return;
	}
	assert_int_equal(grant(&direct, lo, hi, rights), 0);
	assert_int_equal(narrow(&got, open, lo, hi, rights), 0);
	assert_true(same(&got, &direct));
	for (unsigned i = 0; i < direct.nodes; i++) {
		struct srdma_capability_entry e;

		srdma_capability_find(open, rights & -rights, direct.node[i].lo,
				      &e);
		whole &= e.node->depth == direct.node[i].depth;
	}
	if (!whole) {
		assert_int_equal(narrow(&got, sealed, lo, hi, rights), -EPERM);
		assert_true(is_zero(&got, sizeof(got)));
		return;
	}
	seal(&direct);
	assert_int_equal(narrow(&got, sealed, lo, hi, rights), 0);
	assert_true(same(&got, &direct));
}

static void narrow_all(uint64_t lo, uint64_t hi, uint8_t rights)
{
	struct srdma_capability open, sealed;

	assert_int_equal(grant(&open, lo, hi, 7), 0);
	sealed = open;
	seal(&sealed);
	for (uint64_t from = 0; from <= 64 * 10; from += 64)
		for (uint64_t to = 0; to <= 64 * 10; to += 64)
			narrow_to(&open, &sealed, from, to, rights);
}

static void test_narrowing_equals_direct_grant(void **state)
{
	const struct srdma_memtree t = region(64 * 9, 6, 48);
	uint8_t rights = 0;

	(void)state;
	set_region(&t);
	for (uint64_t lo = 0; lo < 64 * 9; lo += 64) {
		for (uint64_t hi = lo + 64; hi <= 64 * 9; hi += 64) {
			rights = (uint8_t)(rights % 7 + 1);
			narrow_all(lo, hi, rights);
		}
	}
}

/* Narrowing can only remove rights. */
static void test_narrowing_only_removes_rights(void **state)
{
	const struct srdma_memtree t = region(64 * 7, 6, 48);

	(void)state;
	set_region(&t);
	for (uint8_t has = 0; has < 16; has++) {
		struct srdma_capability cap, sealed, got, direct;

		if (!has || has > 7) {
			assert_int_equal(grant(&cap, 64, 320, has), -EACCES);
			assert_true(is_zero(&cap, sizeof(cap)));
			continue;
		}
		assert_int_equal(grant(&cap, 64, 320, has), 0);
		sealed = cap;
		seal(&sealed);
		for (unsigned want = 0; want < 256; want++) {
			const int ok = want && !(want & ~(unsigned)has);
			const int r = ok ? 0 : -EACCES;

			assert_int_equal(
				narrow(&got, &cap, 64, 320, (uint8_t)want), r);
			if (!ok)
				continue;
			grant(&direct, 64, 320, (uint8_t)want);
			assert_true(same(&got, &direct));
			assert_int_equal(
				narrow(&got, &sealed, 64, 320, (uint8_t)want),
				0);
			seal(&direct);
			assert_true(same(&got, &direct));
		}
	}
}

static void test_narrowing_refuses_partial_blocks(void **state)
{
	const struct srdma_memtree t = region(64 * 7 + 9, 6, 48);
	struct srdma_capability cap, got;

	(void)state;
	set_region(&t);
	assert_int_equal(grant(&cap, 0, 64 * 7 + 9, 7), 0);
	assert_int_equal(narrow(&got, &cap, 1, 64, 7), -EINVAL);
	assert_int_equal(narrow(&got, &cap, 0, 63, 7), -EINVAL);
	assert_int_equal(narrow(&got, &cap, 0, 64 * 7 + 8, 7), -EINVAL);
	assert_int_equal(narrow(&got, &cap, 0, UINT64_MAX, 7), -ERANGE);
	assert_int_equal(narrow(&got, &cap, 64 * 7, 64 * 7 + 9, 7), 0);
}

static void test_sealing_once(void **state)
{
	const struct srdma_memkey_bearer nobody = { { 0 }, 0 };
	const struct srdma_memkey_bearer somebody = { "\1", 0 };
	const struct srdma_memkey_bearer soon = { { 0 }, 1 };
	const struct srdma_memtree t = region(64 * 7, 6, 48);
	struct srdma_capability cap, before, got;
	uint8_t token[SRDMA_CAPABILITY_MAX];

	(void)state;
	set_region(&t);
	assert_int_equal(grant(&cap, 64, 256, 3), 0);
	before = cap;
	assert_int_equal(srdma_capability_seal(&cap, &cmac, &nobody), -EINVAL);
	assert_true(same(&cap, &before));
	assert_int_equal(srdma_capability_seal(&cap, &cmac, &somebody), 0);
	assert_false(same(&cap, &before));
	got = travel(&cap);
	assert_int_equal(srdma_capability_seal(&got, &cmac, &soon), -EPERM);
	assert_true(same(&cap, &got));
	assert_int_equal(srdma_capability_ready(&got, &cmac), 0);
	assert_true(same(&cap, &got));
	/* an open capability prepared for use cannot be encoded */
	got = before;
	assert_int_equal(srdma_capability_ready(&got, &cmac), 0);
	assert_int_equal(srdma_capability_encode(token, &got), -EPERM);
	assert_int_equal(srdma_capability_seal(&got, &cmac, &soon), -EPERM);
	for (unsigned i = 0; i < 2U * got.nodes; i++) {
		uint8_t want[SRDMA_MEMKEY_LEN];

		srdma_memkey_access(&cmac, want, before.key[i],
				    &got.node[i % got.nodes], &nobody);
		assert_memory_equal(got.key[i], want, sizeof(want));
	}
}

/* --- find ----------------------------------------------------------------- */

static void test_find_key_of_byte(void **state)
{
	const struct srdma_memtree t = region(64 * 13 - 5, 6, 48);
	struct srdma_capability cap;
	struct srdma_capability_entry e;

	(void)state;
	set_truth(&t);
	assert_int_equal(grant(&cap, 64 * 3, 64 * 13 - 5, 5), 0);
	for (uint64_t at = 0; at < 64 * 14; at++) {
		for (unsigned r = 0; r < 3; r++) {
			const int in = at >= 64 * 3 && at < 64 * 13 - 5;
			const int want = r == 1 ? -EACCES : in ? 0 : -ERANGE;

			assert_int_equal(
				srdma_capability_find(&cap, (uint8_t)(1U << r),
						      at, &e),
				want);
			if (want)
				continue;
			assert_true(e.node->lo <= at && at < e.node->hi);
			assert_memory_equal(
				e.key,
				truth[(1U << e.node->depth) + e.node->index]
					.key[r],
				SRDMA_MEMKEY_LEN);
		}
	}
	assert_int_equal(srdma_capability_find(&cap, 0, 200, &e), -EACCES);
	assert_int_equal(srdma_capability_find(&cap, 8, 200, &e), -EACCES);
	assert_int_equal(srdma_capability_find(&cap, 1, UINT64_MAX, &e),
			 -ERANGE);
}

/* --- at the responder ----------------------------------------------------- */

/*
 * Returns 1 if the responder accepts a 1-byte access at `at` with the right
 * `claimed` and the bearer `bearer`, whose proof is made with the capability's
 * key for `right`.
 */
static int taken(const struct srdma_capability *cap, uint8_t right,
		 uint8_t claimed, uint64_t at,
		 const struct srdma_memkey_bearer *bearer)
{
	const uint8_t ad[100] = { claimed };
	uint8_t proof[SRDMA_MEMKEY_PROOF_LEN];
	struct srdma_capability_entry e;
	struct srdma_memkey_claim claim;
	const uint64_t mine = at < cap->scope.lo    ? cap->scope.lo
			      : at >= cap->scope.hi ? cap->scope.hi - 1
						    : at;

	if (srdma_capability_find(cap, right, mine, &e))
		return 0;
	srdma_memkey_proof(&cmac, proof, e.key, ad, sizeof(ad));
	claim = (struct srdma_memkey_claim){
		.right = claimed,
		.depth = e.node->depth,
		.addr = tree.start + at,
		.len = 1,
		.bearer = *bearer,
		.ad = ad,
		.ad_len = sizeof(ad),
		.proof = proof,
	};
	return !srdma_memkey_check(&cache, &cmac, &claim, alice.expiry - 1);
}

/*
 * Tries every combination of the right whose key makes the proof, the claimed
 * right, the holder and the byte.
 */
static void try_all(const struct srdma_capability *cap)
{
	static const struct srdma_memkey_bearer who[] = {
		{ { 0 }, 0 },
		{ { 0 }, 77 },
		{ "sha256 of Alice", 0 },
		{ "sha256 of Alice", 77 },
		{ "sha256 of Bob", 77 },
	};

	for (unsigned i = 0; i < 3 * 3 * 5; i++) {
		const uint8_t has = (uint8_t)(1U << i % 3);
		const uint8_t claimed = (uint8_t)(1U << i / 3 % 3);
		const struct srdma_memkey_bearer *b = &who[i / 9];
		const int right = has == claimed && cap->scope.rights & has &&
				  !memcmp(b, &cap->bearer, sizeof(*b));

		for (uint64_t at = 32; at < 64 * 13 - 5; at += 64)
			assert_int_equal(taken(cap, has, claimed, at, b),
					 right && at >= cap->scope.lo &&
						 at < cap->scope.hi);
	}
}

/* review A17 */
static void test_rights_of_token_and_operation(void **state)
{
	const struct srdma_memtree t = region(64 * 13 - 5, 6, 48);

	(void)state;
	set_region(&t);
	for (uint8_t rights = 1; rights <= 7; rights++) {
		struct srdma_capability open, sealed;

		assert_int_equal(grant(&open, 64 * 3, 64 * 10, rights), 0);
		sealed = open;
		seal(&sealed);
		assert_int_equal(srdma_capability_ready(&open, &cmac), 0);
		try_all(&open);
		try_all(&sealed);
	}
}

/* --- regions of up to 2^48 bytes ------------------------------------------ */

static void random_region(uint64_t *seed)
{
	const unsigned bits = 6 + (unsigned)random_below(seed, 43);
	const unsigned block = 6 + (unsigned)random_below(seed, 25);
	struct srdma_memtree t = {
		.log2_block = (uint8_t)block,
		.depth_limit = (uint8_t)(1 + random_below(seed, 48)),
	};

	t.start = random64(seed) >> 1;
	t.end = t.start + 1 + random_below(seed, UINT64_C(1) << bits);
	if (random_below(seed, 4) == 0)
		t.end = t.start + (UINT64_C(1) << bits);
	set_region(&t);
}

static void random_range(uint64_t *seed, const struct srdma_memtree *t,
			 uint64_t limits[2])
{
	const uint64_t len = srdma_memtree_len(t);
	const uint64_t g = srdma_memtree_granule(t);
	const uint64_t count = (len - 1) / g + 1;
	const uint64_t a = random_below(seed, count);
	const uint64_t b = a + 1 + random_below(seed, count - a);

	limits[0] = a * g;
	limits[1] = b == count ? len : b * g;
}

/*
 * Returns 1 if the key of this node follows from the capability, by trying all
 * its keys.
 */
static int derivable(const struct srdma_capability *cap, uint8_t right,
		     const struct srdma_memnode *node)
{
	struct srdma_capability_entry e;
	uint8_t key[SRDMA_MEMKEY_LEN], want[SRDMA_MEMKEY_LEN];

	node_key(want, &tree, right, node);
	if (srdma_capability_find(cap, right, node->lo, &e) ||
	    e.node->depth > node->depth)
		return 0;
	memcpy(key, e.key, sizeof(key));
	srdma_memkey_walk(&cmac, key, &tree, e.node->depth, node);
	assert_memory_equal(key, want, sizeof(key));
	return 1;
}

/* Nodes around the ends of the range and random ones: derivable only inside. */
static void probe(uint64_t *seed, const struct srdma_capability *cap)
{
	const uint64_t lo = cap->scope.lo, hi = cap->scope.hi;
	const uint64_t len = srdma_memtree_len(&tree);
	const uint64_t at[] = {
		lo, hi - 1, lo ? lo - 1 : 0, hi, random_below(seed, len), 0
	};
	const uint8_t right = cap->scope.rights & -cap->scope.rights;

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		const unsigned depths = srdma_memtree_depth(&tree) + 1;
		struct srdma_memnode node;

		if (srdma_memtree_find(&tree,
				       (unsigned)random_below(seed, depths),
				       at[i], &node))
			continue;
		assert_int_equal(derivable(cap, right, &node),
				 node.lo >= lo && node.hi <= hi);
	}
}

/*
 * The nodes are the fewest possible: the parent of each node exceeds the range.
 */
static void check_nodes(const struct srdma_capability *cap)
{
	const unsigned depth = srdma_memtree_depth(&tree);
	uint64_t at = cap->scope.lo;

	assert_in_range(cap->nodes, 1, depth < 2 ? 1 : 2 * (depth - 1));
	for (unsigned i = 0; i < cap->nodes; at = cap->node[i++].hi) {
		const struct srdma_memnode *n = &cap->node[i];
		struct srdma_memnode up;

		assert_true(n->lo == at && n->depth <= depth);
		if (!n->depth)
			continue;
		srdma_memtree_find(&tree, n->depth - 1U, n->lo, &up);
		assert_true(up.lo < cap->scope.lo || up.hi > cap->scope.hi);
	}
	assert_true(at == cap->scope.hi);
}

static void random_case(uint64_t *seed)
{
	const uint8_t rights = (uint8_t)(1 + random_below(seed, 7));
	struct srdma_capability cap, part, direct;
	uint64_t range[2], at[2];

	random_region(seed);
	random_range(seed, &tree, range);
	assert_int_equal(grant(&cap, range[0], range[1], rights), 0);
	cap = travel(&cap);
	check_nodes(&cap);
	probe(seed, &cap);
	/* a chain of narrowings equals one direct grant */
	for (int i = 0; i < 3; i++) {
		random_range(seed, &tree, at);
		if (at[0] < cap.scope.lo || at[1] > cap.scope.hi)
			continue;
		assert_int_equal(narrow(&part, &cap, at[0], at[1], rights), 0);
		cap = part;
	}
	assert_int_equal(grant(&direct, cap.scope.lo, cap.scope.hi, rights), 0);
	assert_true(same(&cap, &direct));
	probe(seed, &cap);
}

static void test_random_regions(void **state)
{
	const int n = getenv("SRDMA_SOAK") ? 100000 : 2000;
	uint64_t seed = 48;

	(void)state;
	for (int i = 0; i < n; i++)
		random_case(&seed);
	printf("%d regions\n", n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_range_grants_exactly),
		cmocka_unit_test(test_every_range_with_partial_last_block),
		cmocka_unit_test(test_every_range_with_limited_depth),
		cmocka_unit_test(test_child_key_needs_own_range),
		cmocka_unit_test(test_sealed_token_holds_access_keys),
		cmocka_unit_test(test_narrowing_equals_direct_grant),
		cmocka_unit_test(test_narrowing_only_removes_rights),
		cmocka_unit_test(test_narrowing_refuses_partial_blocks),
		cmocka_unit_test(test_sealing_once),
		cmocka_unit_test(test_find_key_of_byte),
		cmocka_unit_test(test_rights_of_token_and_operation),
		cmocka_unit_test(test_random_regions),
	};

	return cmocka_run_group_tests(tests, open_cmac, close_cmac);
}
