#include "memory/memkey.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/bytes.h"
#include "crypto/kdf.h"

enum {
	AD_MAX = 255,
	UPPER_SLOTS = 1 << SRDMA_MEMKEY_UPPER,
	LOG2_LOWER = 8,
	LOG2_BEARERS = 4,
};

_Static_assert(UPPER_SLOTS + (1 << LOG2_LOWER) == SRDMA_MEMKEY_SLOTS &&
		       1 << LOG2_BEARERS == SRDMA_MEMKEY_BEARERS,
	       "slots");

static const uint8_t proof_label[8] = "srdma mp";

/* All keys of 6.1 have 16 bytes. */
static int derive(struct srdma_cmac *c, uint8_t *out, const uint8_t *parent,
		  const struct srdma_kdf_info *info)
{
	return srdma_kdf_with(c, out, SRDMA_MEMKEY_LEN, parent, info);
}

int srdma_memkey_holder(uint8_t out[SRDMA_MEMKEY_HOLDER_LEN],
			const char *identity)
{
	uint8_t digest[SHA256_DIGEST_LENGTH] = { 0 };
	size_t len = strlen(identity);

	if (len > 0 && !SHA256((const uint8_t *)identity, len, digest))
		return -EIO;
	memcpy(out, digest, SRDMA_MEMKEY_HOLDER_LEN);
	return 0;
}

int srdma_memkey_mr(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		    const uint8_t pd_key[SRDMA_MEMKEY_LEN],
		    const struct srdma_memtree *t,
		    const struct srdma_memkey_id *id)
{
	uint8_t context[8 + 8 + 4 + 8 + SRDMA_MEMKEY_SALT_LEN];
	const struct srdma_kdf_info info = { "mr", context, sizeof(context) };

	srdma_store64(context, t->start);
	srdma_store64(context + 8, t->end);
	srdma_store32(context + 16, id->rkey);
	srdma_store64(context + 20, id->generation);
	memcpy(context + 28, id->salt, SRDMA_MEMKEY_SALT_LEN);
	return derive(c, out, pd_key, &info);
}

int srdma_memkey_root(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		      const uint8_t mr_key[SRDMA_MEMKEY_LEN], uint8_t right)
{
	const struct srdma_kdf_info info = { "root", &right, 1 };

	return derive(c, out, mr_key, &info);
}

int srdma_memkey_child(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		       const uint8_t parent[SRDMA_MEMKEY_LEN],
		       const struct srdma_memnode *child)
{
	uint8_t context[16];
	const struct srdma_kdf_info info = { "node", context, sizeof(context) };

	srdma_store64(context, child->lo);
	srdma_store64(context + 8, child->hi);
	return derive(c, out, parent, &info);
}

int srdma_memkey_walk(struct srdma_cmac *c, uint8_t key[SRDMA_MEMKEY_LEN],
		      const struct srdma_memtree *t, unsigned from_depth,
		      const struct srdma_memnode *to)
{
	struct srdma_memnode node;
	int r = 0;

	for (unsigned d = from_depth + 1; !r && d <= to->depth; d++) {
		r = srdma_memtree_find(t, d, to->lo, &node);
		assert(!r);
		r = srdma_memkey_child(c, key, key, &node);
	}
	return r;
}

/* RFC 5042 R6.3.3-1 */
int srdma_memkey_access(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
			const uint8_t node_key[SRDMA_MEMKEY_LEN],
			const struct srdma_memnode *node,
			const struct srdma_memkey_bearer *bearer)
{
	uint8_t context[8 + 8 + SRDMA_MEMKEY_HOLDER_LEN + 4];
	const struct srdma_kdf_info info = { "acc", context, sizeof(context) };

	srdma_store64(context, node->lo);
	srdma_store64(context + 8, node->hi);
	memcpy(context + 16, bearer->holder, SRDMA_MEMKEY_HOLDER_LEN);
	srdma_store32(context + 32, bearer->expiry);
	return derive(c, out, node_key, &info);
}

int srdma_memkey_proof(struct srdma_cmac *c,
		       uint8_t out[SRDMA_MEMKEY_PROOF_LEN],
		       const uint8_t access_key[SRDMA_MEMKEY_LEN],
		       const uint8_t *ad, size_t ad_len)
{
	uint8_t in[sizeof(proof_label) + AD_MAX];
	int r = -EINVAL;

	if (ad_len <= AD_MAX)
		r = srdma_cmac_key(c, access_key);
	if (r) {
		srdma_wipe(out, SRDMA_MEMKEY_PROOF_LEN);
		return r;
	}
	memcpy(in, proof_label, sizeof(proof_label));
	memcpy(in + sizeof(proof_label), ad, ad_len);
	return srdma_cmac_sum(c, out, in, sizeof(proof_label) + ad_len);
}

/*
 * --- cache ---
 *
 * Direct-mapped: two nodes with the same slot evict each other, and the next
 * lookup derives from the nearest cached ancestor.
 */

void srdma_memkey_cache_init(struct srdma_memkey_cache *cache,
			     const struct srdma_memtree *t,
			     const uint8_t mr_key[SRDMA_MEMKEY_LEN])
{
	assert(!srdma_memtree_check(t));
	memset(cache, 0, sizeof(*cache));
	cache->tree = *t;
	memcpy(cache->mr_key, mr_key, SRDMA_MEMKEY_LEN);
}

void srdma_memkey_cache_wipe(struct srdma_memkey_cache *cache)
{
	srdma_wipe(cache, sizeof(*cache));
}

/* Heap numbering: the root is 1, the children of n are 2n and 2n + 1. */
static uint64_t name_of(uint8_t right, unsigned depth, uint64_t index)
{
	return (uint64_t)right << 56 | UINT64_C(1) << depth | index;
}

/* Fibonacci hashing: returns the upper `bits` bits of the product. */
static unsigned hash(uint64_t name, unsigned bits)
{
	return (unsigned)(name * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

/* Nodes of the upper levels have one slot each; deeper nodes are hashed. */
static struct srdma_memkey_slot *slot_of(struct srdma_memkey_cache *cache,
					 uint64_t name)
{
	const uint64_t place = name & (UINT64_MAX >> 8);

	if (place >> SRDMA_MEMKEY_UPPER == 0)
		return &cache->slot[place];
	return &cache->slot[UPPER_SLOTS + hash(name, LOG2_LOWER)];
}

static void keep(struct srdma_memkey_cache *cache, uint64_t name,
		 const uint8_t *key)
{
	struct srdma_memkey_slot *slot = slot_of(cache, name);

	if (cache->off)
		return;
	slot->name = name;
	memcpy(slot->key, key, SRDMA_MEMKEY_LEN);
}

/* Copies the key of the node or of its lowest cached ancestor to out, or
 * derives the root key. Returns the depth of that node or a negative error. */
static int lowest(struct srdma_memkey_cache *cache, struct srdma_cmac *c,
		  uint8_t *out, uint8_t right, const struct srdma_memnode *node)
{
	int r;

	for (unsigned up = 0; up <= node->depth; up++) {
		const unsigned depth = node->depth - up;
		const uint64_t name = name_of(right, depth, node->index >> up);
		const struct srdma_memkey_slot *slot = slot_of(cache, name);

		if (slot->name == name) {
			memcpy(out, slot->key, SRDMA_MEMKEY_LEN);
			return (int)depth;
		}
	}
	r = srdma_memkey_root(c, out, cache->mr_key, right);
	if (!r)
		keep(cache, name_of(right, 0, 0), out);
	return r;
}

int srdma_memkey_cache_node(struct srdma_memkey_cache *cache,
			    struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
			    uint8_t right, const struct srdma_memnode *node)
{
	const int depth = lowest(cache, c, out, right, node);
	struct srdma_memnode next;
	int r = 0;

	if (depth < 0)
		return depth;
	for (unsigned d = (unsigned)depth + 1; !r && d <= node->depth; d++) {
		r = srdma_memtree_find(&cache->tree, d, node->lo, &next);
		assert(!r);
		r = srdma_memkey_child(c, out, out, &next);
		if (!r)
			keep(cache, name_of(right, d, next.index), out);
	}
	return r;
}

static int same_bearer(const struct srdma_memkey_bearer *a,
		       const struct srdma_memkey_bearer *b)
{
	return a->expiry == b->expiry &&
	       memcmp(a->holder, b->holder, sizeof(a->holder)) == 0;
}

/* K_access of a claim. It is cached, because most claims repeat an earlier
 * node, holder and expiry. */
static int access_of(struct srdma_memkey_cache *cache, struct srdma_cmac *c,
		     uint8_t out[SRDMA_MEMKEY_LEN],
		     const struct srdma_memkey_claim *claim,
		     const struct srdma_memnode *node)
{
	const uint64_t name = name_of(claim->right, node->depth, node->index);
	struct srdma_memkey_bearer_slot *slot = &cache->access[hash(
		name + claim->bearer.holder[0], LOG2_BEARERS)];
	int r;

	if (slot->name == name && same_bearer(&slot->bearer, &claim->bearer)) {
		memcpy(out, slot->key, SRDMA_MEMKEY_LEN);
		return 0;
	}
	r = srdma_memkey_cache_node(cache, c, out, claim->right, node);
	if (!r)
		r = srdma_memkey_access(c, out, out, node, &claim->bearer);
	if (!r && !cache->off) {
		slot->name = name;
		slot->bearer = claim->bearer;
		memcpy(slot->key, out, SRDMA_MEMKEY_LEN);
	}
	return r;
}

static int check_proof(struct srdma_memkey_cache *cache, struct srdma_cmac *c,
		       const struct srdma_memkey_claim *claim,
		       const struct srdma_memnode *node)
{
	uint8_t key[SRDMA_MEMKEY_LEN], proof[SRDMA_MEMKEY_PROOF_LEN];
	int r = access_of(cache, c, key, claim, node);

	if (!r)
		r = srdma_memkey_proof(c, proof, key, claim->ad, claim->ad_len);
	if (!r && !srdma_equal(proof, claim->proof, sizeof(proof)))
		r = -EBADMSG;
	srdma_wipe(key, sizeof(key));
	/* The proof computed for a forged packet would be accepted with it. */
	srdma_wipe(proof, sizeof(proof));
	return r;
}

int srdma_memkey_check(struct srdma_memkey_cache *cache, struct srdma_cmac *c,
		       const struct srdma_memkey_claim *claim, uint32_t now)
{
	/* An address below the start wraps to an offset that no region
	 * contains. */
	const uint64_t offset = claim->addr - cache->tree.start;
	const uint32_t expiry = claim->bearer.expiry;
	struct srdma_memnode node;

	if (srdma_memtree_find(&cache->tree, claim->depth, offset, &node) ||
	    claim->len > node.hi - offset)
		return -ERANGE;
	if (expiry && now >= expiry)
		return -EKEYEXPIRED;
	return check_proof(cache, c, claim, &node);
}
