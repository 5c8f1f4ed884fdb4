#include "memory/memguard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* Keys of the region's tree or of the tree of a revoked range. */
struct keys {
	uint64_t serial; /* of the event that made the tree */
	struct srdma_memkey_cache cache;
};

struct srdma_memguard {
	struct srdma_cmac *cmac;
	const uint8_t *pd_key;
	uint32_t *revoked_in_all;
	uint32_t rkey;
	int uncached;
	uint64_t generation;
	struct keys *own;
	struct keys *revoked[SRDMA_MAX_REVOKED]; /* oldest first */
	unsigned count;
};

/* Derives new keys for a tree with the guard's generation. 0, -EIO, -ENOMEM. */
static int renew(const struct srdma_memguard *g, struct keys *keys,
		 const struct srdma_memtree *tree,
		 const struct srdma_memguard_fresh *fresh)
{
	struct srdma_memkey_id id = { .rkey = g->rkey,
				      .generation = g->generation };
	uint8_t mr_key[SRDMA_MEMKEY_LEN];
	int r;

	memcpy(id.salt, fresh->salt, sizeof(id.salt));
	r = srdma_memkey_mr(g->cmac, mr_key, g->pd_key, tree, &id);
	if (!r) {
		srdma_memkey_cache_init(&keys->cache, tree, mr_key);
		keys->cache.off = g->uncached;
		keys->serial = fresh->serial;
	}
	srdma_wipe(mr_key, sizeof(mr_key));
	srdma_cmac_forget(g->cmac);
	return r;
}

/* Allocates and derives keys for a tree. 0, -ENOMEM, -EIO. */
static int make(const struct srdma_memguard *g, struct keys **out,
		const struct srdma_memtree *tree,
		const struct srdma_memguard_fresh *fresh)
{
	struct keys *keys = malloc(sizeof(*keys));
	int r;

	if (!keys)
		return -ENOMEM;
	r = renew(g, keys, tree, fresh);
	if (r)
		free(keys);
	else
		*out = keys;
	return r;
}

static void drop(struct keys *keys)
{
	srdma_memkey_cache_wipe(&keys->cache);
	free(keys);
}

int srdma_memguard_create(struct srdma_memguard **out,
			  const struct srdma_memguard_params *params,
			  const struct srdma_memguard_fresh *fresh)
{
	struct srdma_memguard *g;
	int r;

	if (srdma_memtree_check(&params->tree))
		return -EINVAL;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->cmac = params->cmac;
	g->pd_key = params->pd_key;
	g->revoked_in_all = params->revoked;
	g->rkey = params->rkey;
	g->uncached = params->uncached;
	g->generation = 1;
	r = make(g, &g->own, &params->tree, fresh);
	if (r)
		free(g);
	else
		*out = g;
	return r;
}

static void drop_range(struct srdma_memguard *g, struct keys *keys)
{
	drop(keys);
	--*g->revoked_in_all;
}

static void drop_revoked(struct srdma_memguard *g)
{
	while (g->count)
		drop_range(g, g->revoked[--g->count]);
}

void srdma_memguard_destroy(struct srdma_memguard *g)
{
	if (!g)
		return;
	drop_revoked(g);
	drop(g->own);
	srdma_cmac_forget(g->cmac);
	free(g);
}

/* --- selection of keys --------------------------------------------------- */

static uint64_t start_of(const struct srdma_memguard *g)
{
	return g->own->cache.tree.start;
}

static int in_region(const struct srdma_memguard *g, uint64_t lo, uint64_t hi)
{
	return lo < hi && hi <= srdma_memtree_len(&g->own->cache.tree);
}

/* Start and end of a tree, relative to the region's start. */
static uint64_t lo_of(const struct srdma_memguard *g, const struct keys *keys)
{
	return keys->cache.tree.start - start_of(g);
}

static uint64_t hi_of(const struct srdma_memguard *g, const struct keys *keys)
{
	return keys->cache.tree.end - start_of(g);
}

static int covers(const struct srdma_memguard *g, const struct keys *keys,
		  uint64_t lo, uint64_t hi)
{
	return lo_of(g, keys) <= lo && hi <= hi_of(g, keys);
}

/* Keys of the newest revoked range that overlaps [lo, hi), or the region's. */
static struct keys *newest(const struct srdma_memguard *g, uint64_t lo,
			   uint64_t hi)
{
	for (unsigned i = g->count; i-- > 0;)
		if (lo < hi_of(g, g->revoked[i]) &&
		    lo_of(g, g->revoked[i]) < hi)
			return g->revoked[i];
	return g->own;
}

/* Selects the keys for an access to [lo, hi). 0, or -ERANGE if their tree does
 * not contain all bytes; *keys is set in both cases. */
static int judge(const struct srdma_memguard *g, struct keys **keys,
		 uint64_t lo, uint64_t hi)
{
	*keys = g->own;
	if (!in_region(g, lo, hi))
		return -ERANGE;
	*keys = newest(g, lo, hi);
	return covers(g, *keys, lo, hi) ? 0 : -ERANGE;
}

int srdma_memguard_find(const struct srdma_memguard *g, uint64_t lo,
			uint64_t hi, const struct srdma_memtree **tree)
{
	struct keys *keys;
	int r = judge(g, &keys, lo, hi);

	*tree = &keys->cache.tree;
	return r;
}

int srdma_memguard_check(struct srdma_memguard *g,
			 const struct srdma_memkey_claim *claim, uint32_t now)
{
	/* An address below the start wraps to an offset that no region
	 * contains. */
	const uint64_t lo = claim->addr - start_of(g);
	struct keys *keys;

	if (judge(g, &keys, lo, lo + claim->len))
		return -ERANGE;
	return srdma_memkey_check(&keys->cache, g->cmac, claim, now);
}

int srdma_memguard_current(const struct srdma_memguard *g, uint64_t serial,
			   uint64_t lo, uint64_t hi)
{
	/* A range that replaced dropped entries has a higher serial than they
	 * had. */
	return newest(g, lo, hi)->serial <= serial;
}

int srdma_memguard_grant(struct srdma_memguard *g, struct srdma_capability *cap,
			 const struct srdma_capability_scope *scope)
{
	struct srdma_capability_scope in = *scope;
	struct keys *keys;

	if (judge(g, &keys, scope->lo, scope->hi)) {
		srdma_capability_wipe(cap);
		return -ERANGE;
	}
	in.lo -= lo_of(g, keys);
	in.hi -= lo_of(g, keys);
	return srdma_capability_grant(cap, g->cmac, &keys->cache, g->rkey, &in);
}

/* --- revocation ---------------------------------------------------------- */

int srdma_memguard_revoke_all(struct srdma_memguard *g,
			      const struct srdma_memguard_fresh *fresh)
{
	const struct srdma_memtree tree = g->own->cache.tree;
	int r;

	g->generation++; /* a failed attempt only skips a generation */
	r = renew(g, g->own, &tree, fresh);
	if (!r)
		drop_revoked(g);
	return r;
}

static int check_range(const struct srdma_memguard *g, uint64_t lo, uint64_t hi)
{
	const struct srdma_memtree *t = &g->own->cache.tree;
	const uint64_t block = UINT64_C(1) << t->log2_block;

	if (!in_region(g, lo, hi))
		return -ERANGE;
	if (lo % block || (hi % block && hi != srdma_memtree_len(t)))
		return -EINVAL;
	return 0;
}

/* Entries inside the newest range are no longer used. */
static void drop_covered(struct srdma_memguard *g, uint64_t lo, uint64_t hi)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < g->count; i++) {
		struct keys *keys = g->revoked[i];

		if (lo <= lo_of(g, keys) && hi_of(g, keys) <= hi)
			drop_range(g, keys);
		else
			g->revoked[kept++] = keys;
	}
	g->count = kept;
}

/* 0 if there is room for the range after the entries inside it are dropped,
 * else -ENOSPC or -EDQUOT. */
static int check_room(const struct srdma_memguard *g, uint64_t lo, uint64_t hi)
{
	unsigned stay = 0;

	for (unsigned i = 0; i < g->count; i++)
		stay += lo_of(g, g->revoked[i]) < lo ||
			hi < hi_of(g, g->revoked[i]);
	if (stay == SRDMA_MAX_REVOKED)
		return -ENOSPC;
	return *g->revoked_in_all - (g->count - stay) < SRDMA_MAX_REVOKED_OF_LEG
		       ? 0
		       : -EDQUOT;
}

/* RFC 5042 X8 */
int srdma_memguard_revoke(struct srdma_memguard *g, uint64_t lo, uint64_t hi,
			  const struct srdma_memguard_fresh *fresh)
{
	struct srdma_memtree tree = g->own->cache.tree;
	int r = check_range(g, lo, hi);
	struct keys *keys;

	if (!r)
		r = check_room(g, lo, hi);
	if (r)
		return r;
	tree.start = start_of(g) + lo;
	tree.end = start_of(g) + hi;
	r = make(g, &keys, &tree, fresh);
	if (r)
		return r;
	drop_covered(g, lo, hi);
	g->revoked[g->count++] = keys;
	++*g->revoked_in_all;
	return 0;
}
