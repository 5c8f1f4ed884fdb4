/*
 * Memory keys of a region under revocation, compared with a model that stores
 * every revocation and searches all of them.
 */
#include "memory/memguard.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/failing.h"

#include "base/bytes.h"
#include "support/memory.h"

enum { RKEY = 0x5eed, NOW = 1000, BLOCK = 64, GRANTS = 400, EVENTS = 4096 };

static const uint8_t ad[] = "associated data";

/* The revocations of the region; event 0 is its registration. */
static struct {
	int whole;
	uint64_t lo, hi;
} event[EVENTS];
static unsigned events;

static struct srdma_memguard *guard;
static uint32_t revoked; /* revoked ranges of all guards */
static struct srdma_memtree tree;
static uint64_t seed;

static struct srdma_memguard_fresh fresh(uint64_t serial)
{
	struct srdma_memguard_fresh f = { .serial = serial };

	srdma_store64(f.salt, random64(&seed));
	srdma_store64(f.salt + 8, random64(&seed));
	return f;
}

static void open_guard(const struct srdma_memtree *t)
{
	const struct srdma_memguard_params params = {
		.tree = *t,
		.rkey = RKEY,
		.cmac = &cmac,
		.pd_key = pd_key,
		.revoked = &revoked,
	};
	const struct srdma_memguard_fresh f = fresh(0);

	tree = *t;
	event[0].whole = 1;
	events = 1;
	assert_int_equal(srdma_memguard_create(&guard, &params, &f), 0);
}

static int revoke(uint64_t lo, uint64_t hi)
{
	const struct srdma_memguard_fresh f = fresh(events);
	int r = srdma_memguard_revoke(guard, lo, hi, &f);

	if (!r) {
		event[events].whole = 0;
		event[events].lo = lo;
		event[events++].hi = hi;
	}
	return r;
}

static void revoke_all(void)
{
	const struct srdma_memguard_fresh f = fresh(events);

	assert_int_equal(srdma_memguard_revoke_all(guard, &f), 0);
	event[events++].whole = 1;
}

static int grant(struct srdma_capability *cap, uint64_t lo, uint64_t hi,
		 uint8_t rights)
{
	const struct srdma_capability_scope scope = { lo, hi, rights };

	return srdma_memguard_grant(guard, cap, &scope);
}

/*
 * Model: the event whose keys apply to these bytes, that is, the latest one
 * that touches them; -1: they lie only partly in its range.
 */
static int judge(uint64_t lo, uint64_t hi)
{
	for (unsigned i = events - 1;; i--) {
		if (event[i].whole)
			return (int)i;
		if (lo < event[i].hi && event[i].lo < hi)
			return lo < event[i].lo || hi > event[i].hi ? -1
								    : (int)i;
	}
}

static struct srdma_memtree tree_of(int judging)
{
	struct srdma_memtree t = tree;

	if (!event[judging].whole) {
		t.start = tree.start + event[judging].lo;
		t.end = tree.start + event[judging].hi;
	}
	return t;
}

/*
 * Model: number of revoked ranges that a guard stores after it revoked [lo,
 * hi): those that neither a later range nor [lo, hi) covers.
 */
static unsigned kept(uint64_t lo, uint64_t hi)
{
	unsigned n = 0;

	for (unsigned i = events - 1; !event[i].whole; i--) {
		int covered = lo <= event[i].lo && event[i].hi <= hi;

		for (unsigned j = i + 1; j < events; j++)
			covered |= event[j].lo <= event[i].lo &&
				   event[i].hi <= event[j].hi;
		n += !covered;
	}
	return n;
}

/* An issued capability. */
struct given {
	struct srdma_capability cap; /* prepared for use */
	int made_by;		     /* event whose keys it has */
	uint64_t lo;		     /* start address of the tree */
};

static struct given given[GRANTS];
static unsigned givens;

/* A random range: usually granules of the tree at a random byte. */
static void random_scope(uint64_t *lo, uint64_t *hi)
{
	const struct srdma_memtree *t;
	uint64_t granule, len, at = random_below(&seed, tree.end - tree.start);
	uint64_t base;

	srdma_memguard_find(guard, at, at + 1, &t);
	granule = random_below(&seed, 8) ? srdma_memtree_granule(t) : BLOCK / 2;
	len = srdma_memtree_len(t);
	base = t->start - tree.start;
	*lo = random_below(&seed, len / granule + 1) * granule;
	*hi = *lo + (1 + random_below(&seed, 8)) * granule;
	if (*hi > len || !random_below(&seed, 8))
		*hi = len;
	*lo += base;
	*hi += base;
}

/* Grants a random range and compares the result with the model. */
static void try_grant(void)
{
	static const struct srdma_memkey_bearer bearers[] = {
		{ .expiry = 0 },
		{ .expiry = NOW },
		{ .expiry = NOW + 1 },
		{ .holder = "whom it is for" },
		{ .holder = "whom it is for", .expiry = NOW + 1 },
	};
	struct given *g = &given[givens % GRANTS];
	struct srdma_memnode nodes[SRDMA_MEMTREE_COVER_MAX];
	const uint8_t rights = (uint8_t)(1 + random_below(&seed, 7));
	struct srdma_memtree t;
	uint64_t lo, hi;
	int made_by, r;

	random_scope(&lo, &hi);
	made_by = lo < hi ? judge(lo, hi) : -1;
	r = grant(&g->cap, lo, hi, rights);
	if (made_by < 0) {
		assert_int_equal(r, -ERANGE);
		assert_true(is_zero(&g->cap, sizeof(g->cap)));
		return;
	}
	t = tree_of(made_by);
	g->lo = t.start - tree.start;
	if (srdma_memtree_cover(&t, lo - g->lo, hi - g->lo, nodes) < 0) {
		assert_int_equal(r, -EINVAL);
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(g->cap.rkey, RKEY);
	assert_int_equal(g->cap.tree.start, t.start);
	assert_int_equal(g->cap.tree.end, t.end);
	g->made_by = made_by;
	r = srdma_capability_seal(&g->cap, &cmac,
				  &bearers[random_below(&seed, 5)]);
	assert_true(!r || r == -EINVAL);
	assert_int_equal(srdma_capability_ready(&g->cap, &cmac), 0);
	givens++;
}

/* An access with an issued capability, possibly with altered claims. */
struct attempt {
	uint8_t right, depth;
	struct srdma_memkey_bearer bearer;
	uint64_t lo, hi;
};

static struct attempt random_attempt(const struct given *g,
				     const struct srdma_capability_entry *e,
				     uint8_t right)
{
	struct attempt a = { .right = right,
			     .depth = e->node->depth,
			     .bearer = g->cap.bearer };
	uint64_t span = e->node->hi - e->node->lo;

	a.lo = g->lo + e->node->lo + random_below(&seed, span);
	a.hi = a.lo + 1 + random_below(&seed, g->lo + e->node->hi - a.lo);
	if (!random_below(&seed, 6))
		a.right = (uint8_t)(1U << random_below(&seed, 3));
	if (!random_below(&seed, 6))
		a.depth = (uint8_t)random_below(&seed, 7);
	if (!random_below(&seed, 6))
		a.hi += random_below(&seed, 2 * BLOCK);
	if (!random_below(&seed, 12))
		a.bearer.expiry++;
	if (!random_below(&seed, 12))
		a.bearer.holder[0] ^= 1;
	return a;
}

static int expected(const struct attempt *a, const struct given *g,
		    const struct srdma_capability_entry *e, uint8_t right)
{
	const uint64_t len = tree.end - tree.start;
	struct srdma_memnode node;
	struct srdma_memtree t;
	int judging = a->hi <= len ? judge(a->lo, a->hi) : -1;
	uint64_t base;

	if (judging < 0)
		return -ERANGE;
	t = tree_of(judging);
	base = t.start - tree.start;
	if (srdma_memtree_find(&t, a->depth, a->lo - base, &node) ||
	    a->hi - base > node.hi)
		return -ERANGE;
	if (a->bearer.expiry && a->bearer.expiry <= NOW)
		return -EKEYEXPIRED;
	if (judging != g->made_by || a->right != right ||
	    a->depth != e->node->depth || node.lo != e->node->lo ||
	    memcmp(&a->bearer, &g->cap.bearer, sizeof(a->bearer)) != 0)
		return -EBADMSG;
	return 0;
}

static int check(const struct attempt *a, const uint8_t *access_key)
{
	uint8_t proof[SRDMA_MEMKEY_PROOF_LEN];
	const struct srdma_memkey_claim claim = {
		.right = a->right,
		.depth = a->depth,
		.addr = tree.start + a->lo,
		.len = a->hi - a->lo,
		.bearer = a->bearer,
		.ad = ad,
		.ad_len = sizeof(ad),
		.proof = proof,
	};

	assert_int_equal(
		srdma_memkey_proof(&cmac, proof, access_key, ad, sizeof(ad)),
		0);
	return srdma_memguard_check(guard, &claim, NOW);
}

/*
 * Uses a random capability and compares the result with the model. Returns the
 * result of the guard.
 */
static int try_access(void)
{
	const unsigned have = givens < GRANTS ? givens : GRANTS;
	const struct given *g = &given[random_below(&seed, have)];
	const struct srdma_memnode *node =
		&g->cap.node[random_below(&seed, g->cap.nodes)];
	struct srdma_capability_entry e;
	struct attempt a;
	uint8_t right;
	int r;

	do {
		right = (uint8_t)(1U << random_below(&seed, 3));
	} while (!(g->cap.scope.rights & right));
	assert_int_equal(srdma_capability_find(&g->cap, right, node->lo, &e),
			 0);
	a = random_attempt(g, &e, right);
	r = check(&a, e.key);
	assert_int_equal(r, expected(&a, g, &e, right));
	return r;
}

static void try_revoke(void)
{
	const uint64_t len = tree.end - tree.start;
	const uint64_t lo = random_below(&seed, len / BLOCK + 2) * BLOCK;
	uint64_t hi = lo + (1 + random_below(&seed, 6)) * BLOCK;

	if (!random_below(&seed, 12)) {
		revoke_all();
		return;
	}
	if (hi > len || !random_below(&seed, 8))
		hi = len;
	if (!random_below(&seed, 8)) {
		assert_int_equal(revoke(lo, hi + 1),
				 lo <= hi && hi < len ? -EINVAL : -ERANGE);
		return;
	}
	if (lo >= hi) {
		assert_int_equal(revoke(lo, hi), -ERANGE);
		return;
	}
	assert_in_range(kept(lo, hi), 0, SRDMA_MAX_REVOKED - 1);
	assert_int_equal(revoke(lo, hi), 0);
}

/*
 * srdma_memguard_current(): keys of an event are still valid for a range unless
 * a later event touches the range.
 */
static void try_current(void)
{
	const uint64_t len = tree.end - tree.start;
	const uint64_t lo = random_below(&seed, len);
	const uint64_t hi = lo + 1 + random_below(&seed, len - lo);
	const unsigned at = (unsigned)random_below(&seed, events);
	int current = 1;

	for (unsigned i = at + 1; i < events; i++)
		if (event[i].whole || (lo < event[i].hi && event[i].lo < hi))
			current = 0;
	assert_int_equal(srdma_memguard_current(guard, at, lo, hi), current);
}

/* RFC 5042 X8 */
static void test_random_revocations_match_model(void **state)
{
	static const struct {
		uint64_t len;
		unsigned depth_limit;
	} rows[] = {
		{ 16 * BLOCK, 48 },
		{ 16 * BLOCK, 2 },
		{ 13 * BLOCK + 7, 48 },
		{ 13 * BLOCK + 7, 3 },
		{ 41 * BLOCK + 63, 48 },
		{ 41 * BLOCK + 63, 4 },
		{ BLOCK, 1 },
		{ 1, 48 },
	};
	unsigned said[4] = { 0 };

	(void)state;
	for (size_t i = 0; i < 5 * sizeof(rows) / sizeof(*rows); i++) {
		const size_t row = i % (sizeof(rows) / sizeof(*rows));
		const struct srdma_memtree t =
			region(rows[row].len, 6, rows[row].depth_limit);

		seed = i;
		open_guard(&t);
		givens = 0;
		while (!givens)
			try_grant();
		for (int step = 0; step < 1500; step++) {
			int r;

			if (!random_below(&seed, 10))
				try_revoke();
			if (!random_below(&seed, 3))
				try_grant();
			try_current();
			r = try_access();
			said[0] += r == 0;
			said[1] += r == -ERANGE;
			said[2] += r == -EKEYEXPIRED;
			said[3] += r == -EBADMSG;
		}
		srdma_memguard_destroy(guard);
	}
	for (int i = 0; i < 4; i++) /* each result is frequent */
		assert_in_range(said[i], 1000, 60000);
}

/* Grants these bytes, which are one node, and returns its K_access. */
static void learn(uint8_t key[SRDMA_MEMKEY_LEN], struct attempt *a, uint64_t lo,
		  uint64_t hi)
{
	static struct srdma_capability cap;
	struct srdma_capability_entry e;

	assert_int_equal(grant(&cap, lo, hi, SRDMA_MEMKEY_WRITE), 0);
	assert_int_equal(srdma_capability_ready(&cap, &cmac), 0);
	assert_int_equal(cap.nodes, 1);
	assert_int_equal(srdma_capability_find(&cap, SRDMA_MEMKEY_WRITE,
					       cap.node[0].lo, &e),
			 0);
	*a = (struct attempt){ .right = SRDMA_MEMKEY_WRITE,
			       .depth = e.node->depth,
			       .lo = lo,
			       .hi = hi };
	memcpy(key, e.key, SRDMA_MEMKEY_LEN);
}

static void test_revoked_ranges_are_limited(void **state)
{
	const struct srdma_memtree t = region(256 * BLOCK, 6, 48);
	uint8_t key[SRDMA_MEMKEY_LEN];
	struct attempt a;

	(void)state;
	open_guard(&t);
	for (uint64_t i = 0; i < SRDMA_MAX_REVOKED; i++)
		assert_int_equal(revoke(2 * i * BLOCK, (2 * i + 1) * BLOCK), 0);
	assert_int_equal(kept(200 * BLOCK, 201 * BLOCK), SRDMA_MAX_REVOKED);
	learn(key, &a, 200 * BLOCK, 201 * BLOCK);
	assert_int_equal(revoke(200 * BLOCK, 201 * BLOCK), -ENOSPC);
	assert_int_equal(check(&a, key), 0); /* unchanged */
	/*
	 * The list is full, but the same range again, or a range that covers
	 * stored ones, replaces entries and needs no further one.
	 */
	assert_int_equal(revoke(0, BLOCK), 0);
	assert_int_equal(revoke(0, 3 * BLOCK), 0);
	assert_int_equal(revoke(200 * BLOCK, 201 * BLOCK), 0);
	assert_int_equal(check(&a, key), -ERANGE); /* its tree is one node */
	assert_int_equal(revoke(202 * BLOCK, 203 * BLOCK), -ENOSPC);
	revoke_all();
	assert_int_equal(kept(0, BLOCK), 0);
	for (uint64_t i = 0; i < SRDMA_MAX_REVOKED; i++)
		assert_int_equal(revoke(i * BLOCK, (i + 1) * BLOCK), 0);
	assert_int_equal(revoke(0, 256 * BLOCK), 0); /* covers all of them */
	assert_int_equal(revoke(BLOCK, 2 * BLOCK), 0);
	assert_int_equal(revoked, 2);
	/* The entries of other guards of the leg leave room for one. */
	revoked = SRDMA_MAX_REVOKED_OF_LEG - 1;
	assert_int_equal(revoke(4 * BLOCK, 5 * BLOCK), 0);
	assert_int_equal(revoke(6 * BLOCK, 7 * BLOCK), -EDQUOT);
	assert_int_equal(revoke(4 * BLOCK, 5 * BLOCK), 0);
	srdma_memguard_destroy(guard);
	assert_int_equal(revoked, SRDMA_MAX_REVOKED_OF_LEG - 3);
	revoked = 0;
}

/*
 * An equal registration has the same keys. It has other keys if only the salt,
 * only the rkey or only the parent key differs.
 */
/* review A16 */
static void test_keys_of_registrations_differ(void **state)
{
	static const uint8_t other_pd[SRDMA_MEMKEY_LEN] = "another K_PDmem";
	const struct srdma_memtree t = region(4 * BLOCK, 6, 48);
	struct srdma_memguard_params params = {
		.tree = t,
		.rkey = RKEY,
		.cmac = &cmac,
		.pd_key = pd_key,
		.revoked = &revoked,
	};
	const struct srdma_memguard_fresh same = { .salt = "a salt" };
	struct srdma_memguard_fresh other = same;
	uint8_t key[SRDMA_MEMKEY_LEN];
	struct attempt a;

	(void)state;
	tree = t;
	assert_int_equal(srdma_memguard_create(&guard, &params, &same), 0);
	learn(key, &a, 0, BLOCK);
	srdma_memguard_destroy(guard);
#define LIFE(expect)                                                           \
	do {                                                                   \
		assert_int_equal(                                              \
			srdma_memguard_create(&guard, &params, &other), 0);    \
		assert_int_equal(check(&a, key), expect);                      \
		srdma_memguard_destroy(guard);                                 \
	} while (0)
	LIFE(0);
	other.salt[15] ^= 1;
	LIFE(-EBADMSG);
	other = same;
	params.rkey++;
	LIFE(-EBADMSG);
	params.rkey--;
	params.pd_key = other_pd;
	LIFE(-EBADMSG);
	params.pd_key = pd_key;
	/*
	 * A revocation changes the keys even if it gets the former salt,
	 * because the generation increases.
	 */
	assert_int_equal(srdma_memguard_create(&guard, &params, &same), 0);
	assert_int_equal(srdma_memguard_revoke_all(guard, &same), 0);
	assert_int_equal(check(&a, key), -EBADMSG);
	srdma_memguard_destroy(guard);
}

static void test_find_tree_of_bytes(void **state)
{
	const struct srdma_memtree t = region(8 * BLOCK, 6, 48);
	const struct srdma_memtree *found;
	struct srdma_capability cap;

	(void)state;
	open_guard(&t);
	assert_int_equal(revoke(2 * BLOCK, 6 * BLOCK), 0);
	assert_int_equal(revoke(4 * BLOCK, 5 * BLOCK), 0);
#define FIND(lo, hi, err, from, to)                                            \
	do {                                                                   \
		assert_int_equal(srdma_memguard_find(guard, lo, hi, &found),   \
				 err);                                         \
		assert_int_equal(found->start, t.start + (from)*BLOCK);        \
		assert_int_equal(found->end, t.start + (to)*BLOCK);            \
	} while (0)
	FIND(0, 1, 0, 0, 8);
	FIND(0, 2 * BLOCK, 0, 0, 8);
	FIND(0, 2 * BLOCK + 1, -ERANGE, 2, 6);
	FIND(2 * BLOCK, 4 * BLOCK, 0, 2, 6);
	FIND(2 * BLOCK, 4 * BLOCK + 1, -ERANGE, 4, 5);
	FIND(4 * BLOCK, 5 * BLOCK, 0, 4, 5);
	FIND(5 * BLOCK, 6 * BLOCK, 0, 2, 6);
	FIND(6 * BLOCK, 8 * BLOCK, 0, 0, 8);
	FIND(0, 8 * BLOCK, -ERANGE, 4, 5);
	FIND(6 * BLOCK, 8 * BLOCK + 1, -ERANGE, 0, 8);
	FIND(8 * BLOCK, 9 * BLOCK, -ERANGE, 0, 8);
	FIND(3, 3, -ERANGE, 0, 8);
	FIND(UINT64_MAX, 1, -ERANGE, 0, 8);
	/* A capability inside a revoked range has that range as its tree. */
	assert_int_equal(grant(&cap, 2 * BLOCK, 4 * BLOCK, 1), 0);
	assert_int_equal(cap.tree.start, t.start + 2 * BLOCK);
	assert_int_equal(cap.scope.lo, 0);
	assert_int_equal(cap.scope.hi, 2 * BLOCK);
	assert_int_equal(grant(&cap, 3 * BLOCK, 5 * BLOCK, 1), -ERANGE);
	assert_int_equal(grant(&cap, 0, 8 * BLOCK, 1), -ERANGE);
	assert_int_equal(grant(&cap, 0, BLOCK + 1, 1), -EINVAL);
	assert_int_equal(grant(&cap, 0, BLOCK, 0), -EACCES);
	srdma_memguard_destroy(guard);
}

/* Claims about bytes outside the region, at the ends of the address space. */
static void test_claims_outside_region_are_refused(void **state)
{
	const struct srdma_memtree t = region(4 * BLOCK, 6, 48);
	static const struct {
		uint64_t addr, len; /* addr relative to the start */
	} rows[] = {
		{ UINT64_MAX, 1 },
		/* its second byte is the first of the region */
		{ UINT64_MAX, 2 },
		{ 0, 0 },
		{ 0, UINT64_MAX },
		{ 1, UINT64_MAX },
		{ 4 * BLOCK, 1 },
		{ 4 * BLOCK - 1, 2 },
		{ UINT64_C(1) << 63, UINT64_C(1) << 63 },
	};
	uint8_t proof[SRDMA_MEMKEY_PROOF_LEN] = { 0 };

	(void)state;
	open_guard(&t);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct srdma_memkey_claim claim = {
			.right = SRDMA_MEMKEY_READ,
			.addr = t.start + rows[i].addr,
			.len = rows[i].len,
			.ad = ad,
			.ad_len = sizeof(ad),
			.proof = proof,
		};

		assert_int_equal(srdma_memguard_check(guard, &claim, NOW),
				 -ERANGE);
	}
	srdma_memguard_destroy(guard);
}

/* If the provider fails, nothing changes and no access is accepted. */
static void test_provider_failure_changes_nothing(void **state)
{
	const struct srdma_memtree t = region(4 * BLOCK, 6, 48);
	const struct srdma_memguard_params params = {
		.tree = t,
		.rkey = RKEY,
		.cmac = &cmac,
		.pd_key = pd_key,
		.revoked = &revoked,
	};
	const struct srdma_cmac good = cmac;
	struct srdma_memguard_fresh f = fresh(9);
	struct srdma_memguard *none;
	uint8_t key[SRDMA_MEMKEY_LEN];
	struct attempt a;

	(void)state;
	open_guard(&t);
	assert_int_equal(revoke(2 * BLOCK, 3 * BLOCK), 0);
	learn(key, &a, 2 * BLOCK, 3 * BLOCK);
	cmac = failing_cmac();
	assert_int_equal(srdma_memguard_create(&none, &params, &f), -EIO);
	assert_int_equal(srdma_memguard_revoke_all(guard, &f), -EIO);
	assert_int_equal(srdma_memguard_revoke(guard, 0, 4 * BLOCK, &f), -EIO);
	cmac = good;
	assert_int_equal(check(&a, key), 0);
	assert_true(srdma_memguard_current(guard, 1, 0, 4 * BLOCK));
	/* The guard works again: revoking the whole region takes effect. */
	f.serial = events;
	assert_int_equal(srdma_memguard_revoke_all(guard, &f), 0);
	assert_int_equal(check(&a, key), -EBADMSG);
	srdma_memguard_destroy(guard);
}

static void test_illegal_trees_are_refused(void **state)
{
	struct srdma_memguard_params params = { .rkey = RKEY,
						.cmac = &cmac,
						.pd_key = pd_key,
						.revoked = &revoked };
	const struct srdma_memguard_fresh f = fresh(0);

	(void)state;
	params.tree = region(4096, 5, 48);
	assert_int_equal(srdma_memguard_create(&guard, &params, &f), -EINVAL);
	params.tree = region(4096, 6, 49);
	assert_int_equal(srdma_memguard_create(&guard, &params, &f), -EINVAL);
	params.tree = region(0, 6, 48);
	assert_int_equal(srdma_memguard_create(&guard, &params, &f), -EINVAL);
	srdma_memguard_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_revocations_match_model),
		cmocka_unit_test(test_revoked_ranges_are_limited),
		cmocka_unit_test(test_keys_of_registrations_differ),
		cmocka_unit_test(test_find_tree_of_bytes),
		cmocka_unit_test(test_claims_outside_region_are_refused),
		cmocka_unit_test(test_provider_failure_changes_nothing),
		cmocka_unit_test(test_illegal_trees_are_refused),
	};

	return cmocka_run_group_tests(tests, open_cmac, close_cmac);
}
