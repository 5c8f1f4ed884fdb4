#include "memory/memkey.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/memory.h"

static struct srdma_memkey_cache cache;

static void init_cache(const struct srdma_memtree *t)
{
	uint8_t key[SRDMA_MEMKEY_LEN];

	make_mr_key(key, t);
	srdma_memkey_cache_init(&cache, t, key);
}

/* --- different inputs give different keys --------------------------------- */

static uint8_t seen[30000][SRDMA_MEMKEY_LEN];
static size_t seen_count;

static void see(const uint8_t key[SRDMA_MEMKEY_LEN])
{
	assert_true(seen_count < sizeof(seen) / sizeof(seen[0]));
	memcpy(seen[seen_count++], key, SRDMA_MEMKEY_LEN);
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, SRDMA_MEMKEY_LEN);
}

/* Notes the key of a node, and its K_access for nine bearers. */
static void see_bearers(const uint8_t *key, const struct srdma_memnode *node)
{
	static const char holders[3][16] = { "", "\1", "somebody by name" };
	static const uint32_t expiries[] = { 0, 1, UINT32_MAX };

	see(key);
	for (int i = 0; i < 9; i++) {
		struct srdma_memkey_bearer b = { .expiry = expiries[i % 3] };
		uint8_t access[SRDMA_MEMKEY_LEN];

		memcpy(b.holder, holders[i / 3], sizeof(b.holder));
		assert_int_equal(
			srdma_memkey_access(&cmac, access, key, node, &b), 0);
		see(access);
	}
}

/* All nodes of a tree of four blocks, the last possibly partial. */
static void see_tree(const struct srdma_memtree *t, const uint8_t *mr_key)
{
	for (uint8_t right = 1; right <= SRDMA_MEMKEY_ATOMIC; right <<= 1) {
		for (unsigned i = 1; i < 8; i++) {
			const unsigned d = i < 2 ? 0 : i < 4 ? 1 : 2;
			const uint64_t at = (uint64_t)(i - (1U << d))
					    << (8 - d);
			uint8_t key[SRDMA_MEMKEY_LEN];
			struct srdma_memnode node;

			assert_int_equal(srdma_memtree_find(t, d, at, &node),
					 0);
			assert_int_equal(
				srdma_memkey_root(&cmac, key, mr_key, right),
				0);
			assert_int_equal(
				srdma_memkey_walk(&cmac, key, t, 0, &node), 0);
			see_bearers(key, &node);
		}
	}
}

/* review A8 */
static void test_different_inputs_give_different_keys(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 64; bits++) {
		struct srdma_memtree t = { 4096, 4096 + 256, 6, 48 };
		struct srdma_memkey_id id = { 7, 1, { 0 } };
		uint8_t key[SRDMA_MEMKEY_LEN];

		t.start += bits & 1 ? 1 : 0;
		t.end -= bits & 2 ? 1 : 0;
		id.rkey += bits >> 2 & 1;
		id.generation += bits >> 3 & 1;
		id.generation += (uint64_t)(bits >> 4 & 1) << 32;
		id.salt[15] = bits >> 5 & 1;
		assert_int_equal(srdma_memkey_mr(&cmac, key, pd_key, &t, &id),
				 0);
		see(key);
		see_tree(&t, key);
	}
	qsort(seen, seen_count, SRDMA_MEMKEY_LEN, compare);
	assert_int_equal(seen_count, 64 * (1 + 3 * 7 * 10));
	for (size_t i = 1; i < seen_count; i++)
		assert_memory_not_equal(seen[i - 1], seen[i], SRDMA_MEMKEY_LEN);
}

/* --- key cache ------------------------------------------------------------ */

static void test_cached_keys_equal_derived_keys(void **state)
{
	const struct srdma_memtree t = region((1 << 22) - 100, 6, 14);
	uint64_t seed = 1;

	(void)state;
	init_cache(&t);
	for (int i = 0; i < 4000; i++) {
		const uint8_t right = (uint8_t)(1U << random_below(&seed, 3));
		const uint64_t range =
			random_below(&seed, 2) ? 1 << 10 : (1 << 22) - 100;
		struct srdma_memnode node;
		uint8_t got[SRDMA_MEMKEY_LEN], want[SRDMA_MEMKEY_LEN];

		srdma_memtree_find(&t, (unsigned)random_below(&seed, 15),
				   random_below(&seed, range), &node);
		assert_int_equal(srdma_memkey_cache_node(&cache, &cmac, got,
							 right, &node),
				 0);
		node_key(want, &t, right, &node);
		assert_memory_equal(got, want, sizeof(got));
	}
	srdma_memkey_cache_wipe(&cache);
	assert_true(is_zero(&cache, sizeof(cache)));
}

/*
 * A cached key is found without its ancestors' keys, which this test
 * overwrites.
 */
static void test_cached_node_needs_no_ancestors(void **state)
{
	const struct srdma_memtree t = region(UINT64_C(1) << 40, 12, 48);
	struct srdma_memnode leaf, beside;
	uint8_t want[SRDMA_MEMKEY_LEN], got[SRDMA_MEMKEY_LEN];

	(void)state;
	init_cache(&t);
	srdma_memtree_find(&t, 28, UINT64_C(0x1234567000), &leaf);
	srdma_memtree_find(&t, 28, leaf.hi, &beside);
	node_key(want, &t, SRDMA_MEMKEY_READ, &leaf);
	srdma_memkey_cache_node(&cache, &cmac, got, SRDMA_MEMKEY_READ, &leaf);
	assert_memory_equal(got, want, sizeof(got));
	memset(cache.mr_key, 0, sizeof(cache.mr_key));
	for (int i = 0; i < SRDMA_MEMKEY_SLOTS; i++)
		if (memcmp(cache.slot[i].key, want, sizeof(want)) != 0)
			memset(cache.slot[i].key, 0, sizeof(want));
	srdma_memkey_cache_node(&cache, &cmac, got, SRDMA_MEMKEY_READ, &leaf);
	assert_memory_equal(got, want, sizeof(got));
	/*
	 * A node beside it cannot be derived any more: the keys of their
	 * ancestors are gone.
	 */
	node_key(want, &t, SRDMA_MEMKEY_READ, &beside);
	srdma_memkey_cache_node(&cache, &cmac, got, SRDMA_MEMKEY_READ, &beside);
	assert_memory_not_equal(got, want, sizeof(got));
	srdma_memkey_cache_wipe(&cache);
}

/*
 * The cache holds most nodes of the longest cover: at most a third of them lose
 * their slot to another node.
 */
static void test_cache_holds_longest_cover(void **state)
{
	const struct srdma_memtree t = region(UINT64_C(1) << 48, 12, 48);
	static struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX];
	const int n =
		srdma_memtree_cover(&t, 4096, (UINT64_C(1) << 48) - 4096, node);
	uint8_t key[SRDMA_MEMKEY_LEN], cold = 0;

	(void)state;
	assert_int_equal(n, 70);
	init_cache(&t);
	for (int i = 0; i < n; i++)
		srdma_memkey_cache_node(&cache, &cmac, key, SRDMA_MEMKEY_READ,
					&node[i]);
	memset(cache.mr_key, 0, sizeof(cache.mr_key));
	for (int i = 0; i < n; i++) {
		uint8_t want[SRDMA_MEMKEY_LEN];

		node_key(want, &t, SRDMA_MEMKEY_READ, &node[i]);
		for (int s = 0; s < SRDMA_MEMKEY_SLOTS; s++)
			if (!memcmp(cache.slot[s].key, want, sizeof(want)))
				goto next;
		cold++;
	next:;
	}
	assert_in_range(cold, 0, n / 3);
	srdma_memkey_cache_wipe(&cache);
}

/*
 * The upper levels, which all paths share, stay in the cache whatever other
 * nodes are used.
 */
static void test_cache_keeps_upper_levels(void **state)
{
	const struct srdma_memtree t = region(UINT64_C(1) << 40, 12, 48);
	uint8_t got[SRDMA_MEMKEY_LEN], want[SRDMA_MEMKEY_LEN];
	struct srdma_memnode node;
	uint64_t seed = 5;

	(void)state;
	init_cache(&t);
	for (int i = 0; i < 2000; i++) {
		srdma_memtree_find(
			&t, 28, random_below(&seed, UINT64_C(1) << 40), &node);
		srdma_memkey_cache_node(&cache, &cmac, got, SRDMA_MEMKEY_READ,
					&node);
	}
	for (unsigned d = 0; d < SRDMA_MEMKEY_UPPER; d++)
		for (unsigned i = 0; i < 1U << d; i++) {
			srdma_memtree_find(&t, d, (uint64_t)i << (40 - d),
					   &node);
			node_key(want, &t, SRDMA_MEMKEY_READ, &node);
			assert_memory_equal(cache.slot[1U << d | i].key, want,
					    sizeof(want));
		}
	srdma_memkey_cache_wipe(&cache);
}

/* --- checks at the responder ---------------------------------------------- */

enum { NOW = 1000, AD_LEN = 112 };
static const char alice[16] = "sha256 of Alice", bob[16] = "sha256 of Bob";

/* A valid packet of holder Alice in a region of 10 blocks of 64 bytes. */
struct packet {
	struct srdma_memtree tree;
	struct srdma_memkey_claim claim;
	uint8_t ad[AD_LEN];
	uint8_t proof[SRDMA_MEMKEY_PROOF_LEN];
};

static void make_packet(struct packet *p)
{
	uint8_t key[SRDMA_MEMKEY_LEN];
	struct srdma_memnode node;

	p->tree = region(10 * 64 - 5, 6, 3);
	p->claim = (struct srdma_memkey_claim){
		.right = SRDMA_MEMKEY_WRITE,
		/*
		 * node 1 of the four nodes 0..3 at depth 2: four blocks, bytes
		 * 256..511
		 */
		.depth = 2,
		.addr = p->tree.start + 256,
		.len = 256,
		.bearer.expiry = NOW + 1,
		.ad = p->ad,
		.ad_len = AD_LEN,
		.proof = p->proof,
	};
	memcpy(p->claim.bearer.holder, alice, sizeof(alice));
	for (int i = 0; i < AD_LEN; i++)
		p->ad[i] = (uint8_t)(i * 5);
	init_cache(&p->tree);
	assert_int_equal(srdma_memtree_find(&p->tree, 2, 256, &node), 0);
	node_key(key, &p->tree, SRDMA_MEMKEY_WRITE, &node);
	assert_int_equal(
		srdma_memkey_access(&cmac, key, key, &node, &p->claim.bearer),
		0);
	assert_int_equal(
		srdma_memkey_proof(&cmac, p->proof, key, p->ad, AD_LEN), 0);
}

static int check(const struct packet *p, uint32_t now)
{
	return srdma_memkey_check(&cache, &cmac, &p->claim, now);
}

/*
 * After a valid claim its K_access is cached. It is used for equal claims only:
 * any other claim fails here, because the test overwrote the keys from which
 * K_access is derived.
 */
static void test_access_key_is_cached(void **state)
{
	struct packet p;

	(void)state;
	make_packet(&p);
	assert_int_equal(check(&p, NOW), 0);
	memset(cache.mr_key, 0, sizeof(cache.mr_key));
	memset(cache.slot, 0, sizeof(cache.slot));
	assert_int_equal(check(&p, NOW), 0);
	p.proof[0] ^= 1;
	assert_int_equal(check(&p, NOW), -EBADMSG);
	p.proof[0] ^= 1;
	assert_int_equal(check(&p, NOW), 0);
	p.claim.right = SRDMA_MEMKEY_READ;
	assert_int_equal(check(&p, NOW), -EBADMSG);
	p.claim.right = SRDMA_MEMKEY_WRITE;
	assert_int_equal(check(&p, NOW), 0);
	p.claim.bearer.expiry++;
	assert_int_equal(check(&p, NOW), -EBADMSG);
	p.claim.bearer.expiry--;
	assert_int_equal(check(&p, NOW), -EBADMSG); /* replaced in the cache */
	srdma_memkey_cache_wipe(&cache);
}

/* one change each */
static void test_altered_claims_are_refused(void **state)
{
	const uint64_t start = region(1, 6, 1).start;
	struct packet good, p;

	(void)state;
	make_packet(&good);
#define EXPECT(change, want)                                                   \
	do {                                                                   \
		p = good;                                                      \
		p.claim.ad = p.ad;                                             \
		p.claim.proof = p.proof;                                       \
		change;                                                        \
		assert_int_equal(check(&p, NOW), want);                        \
	} while (0)
	EXPECT((void)0, 0);
	EXPECT(p.claim.len = 0, 0);
	EXPECT(p.claim.addr = start + 511; p.claim.len = 1, 0);
	EXPECT(p.claim.len = 257, -ERANGE);
	EXPECT(p.claim.len = UINT64_MAX, -ERANGE);
	EXPECT(p.claim.addr = start + 255, -ERANGE);
	EXPECT(p.claim.addr = start + 257, -ERANGE);
	EXPECT(p.claim.addr = start - 1, -ERANGE);
	EXPECT(p.claim.addr = 0, -ERANGE);
	EXPECT(p.claim.addr = UINT64_MAX, -ERANGE);
	EXPECT(p.claim.addr = start + 635; p.claim.len = 1, -ERANGE);
	EXPECT(p.claim.depth = 3, -ERANGE);
	EXPECT(p.claim.depth = 3; p.claim.len = 64, -EBADMSG);
	EXPECT(p.claim.depth = 1, -EBADMSG);
	EXPECT(p.claim.depth = 0, -EBADMSG);
	EXPECT(p.claim.depth = 4; p.claim.len = 1, -ERANGE);
	EXPECT(p.claim.depth = 255; p.claim.len = 1, -ERANGE);
	EXPECT(p.claim.addr = start; p.claim.len = 1, -EBADMSG);
	EXPECT(p.claim.addr = start + 512; p.claim.len = 1, -EBADMSG);
	EXPECT(p.claim.right = SRDMA_MEMKEY_READ, -EBADMSG);
	EXPECT(p.claim.right = SRDMA_MEMKEY_ATOMIC, -EBADMSG);
	EXPECT(p.claim.bearer.expiry = 0, -EBADMSG);
	EXPECT(p.claim.bearer.expiry = NOW + 2, -EBADMSG);
	EXPECT(p.claim.bearer.expiry = NOW, -EKEYEXPIRED);
	EXPECT(p.claim.bearer.expiry = 1, -EKEYEXPIRED);
	EXPECT(memcpy(p.claim.bearer.holder, bob, sizeof(bob)), -EBADMSG);
	EXPECT(memset(p.claim.bearer.holder, 0, 16), -EBADMSG);
	EXPECT(p.claim.ad_len--, -EBADMSG);
	EXPECT(p.claim.ad_len = 256, -EINVAL);
	for (int bit = 0; bit < 8 * SRDMA_MEMKEY_PROOF_LEN; bit++)
		EXPECT(p.proof[bit / 8] ^= (uint8_t)(1U << bit % 8), -EBADMSG);
	for (int bit = 0; bit < 8 * AD_LEN; bit++)
		EXPECT(p.ad[bit / 8] ^= (uint8_t)(1U << bit % 8), -EBADMSG);
#undef EXPECT
	assert_int_equal(check(&good, NOW + 1), -EKEYEXPIRED);
	assert_int_equal(check(&good, UINT32_MAX), -EKEYEXPIRED);
	assert_int_equal(check(&good, 0), 0);
	srdma_memkey_cache_wipe(&cache);
	/* the region after a revocation */
	init_cache(&good.tree);
	cache.mr_key[0] ^= 1;
	assert_int_equal(check(&good, NOW), -EBADMSG);
	srdma_memkey_cache_wipe(&cache);
}

/* Without the cache the results are the same, and no key is kept. */
static void test_checks_without_cache(void **state)
{
	const size_t kept = offsetof(struct srdma_memkey_cache, slot);
	struct packet good;

	(void)state;
	make_packet(&good);
	srdma_memkey_cache_wipe(&cache);
	init_cache(&good.tree);
	cache.off = 1;
	for (int again = 0; again < 2; again++)
		assert_int_equal(check(&good, NOW), 0);
	assert_true(
		is_zero((const uint8_t *)&cache + kept, sizeof(cache) - kept));
	cache.mr_key[0] ^= 1;
	assert_int_equal(check(&good, NOW), -EBADMSG);
	cache.mr_key[0] ^= 1;
	good.proof[0] ^= 1;
	assert_int_equal(check(&good, NOW), -EBADMSG);
	srdma_memkey_cache_wipe(&cache);
}

static void test_proof_argument_limits(void **state)
{
	uint8_t key[SRDMA_MEMKEY_LEN] = { 1 }, ad[256] = { 0 };
	uint8_t out[SRDMA_MEMKEY_PROOF_LEN];

	(void)state;
	assert_int_equal(srdma_memkey_proof(&cmac, out, key, ad, 255), 0);
	assert_false(is_zero(out, sizeof(out)));
	assert_int_equal(srdma_memkey_proof(&cmac, out, key, ad, 256), -EINVAL);
	assert_true(is_zero(out, sizeof(out)));
}

/* SHA-256 of "abc" is the example of FIPS 180. */
static void test_holder_is_hash_of_name(void **state)
{
	static const uint8_t abc[SRDMA_MEMKEY_HOLDER_LEN] =
		"\xba\x78\x16\xbf\x8f\x01\xcf\xea"
		"\x41\x41\x40\xde\x5d\xae\x22\x23";
	uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN];

	(void)state;
	assert_int_equal(srdma_memkey_holder(holder, "abc"), 0);
	assert_memory_equal(holder, abc, sizeof(abc));
	assert_int_equal(srdma_memkey_holder(holder, ""), 0);
	assert_true(is_zero(holder, sizeof(holder)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_holder_is_hash_of_name),
		cmocka_unit_test(test_different_inputs_give_different_keys),
		cmocka_unit_test(test_cached_keys_equal_derived_keys),
		cmocka_unit_test(test_cached_node_needs_no_ancestors),
		cmocka_unit_test(test_cache_holds_longest_cover),
		cmocka_unit_test(test_cache_keeps_upper_levels),
		cmocka_unit_test(test_access_key_is_cached),
		cmocka_unit_test(test_altered_claims_are_refused),
		cmocka_unit_test(test_checks_without_cache),
		cmocka_unit_test(test_proof_argument_limits),
	};

	return cmocka_run_group_tests(tests, open_cmac, close_cmac);
}
