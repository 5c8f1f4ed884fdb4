#include "memory/capability.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/bytes.h"
#include "memory/token.h"

enum { KEYS = SRDMA_CAPABILITY_HEAD };

static const char magic[SRDMA_TOKEN_FLAGS] = SRDMA_TOKEN_MAGIC;
static const struct srdma_memkey_bearer nobody;

void srdma_capability_wipe(struct srdma_capability *cap)
{
	srdma_wipe(cap, sizeof(*cap));
}

static int is_somebody(const struct srdma_memkey_bearer *b)
{
	return b->expiry ||
	       memcmp(b->holder, nobody.holder, sizeof(nobody.holder)) != 0;
}

/* Number of keys. They are ordered by right, then by node. */
static unsigned keys(const struct srdma_capability *cap)
{
	return (unsigned)__builtin_popcount(cap->scope.rights) * cap->nodes;
}

static unsigned number(const struct srdma_capability *cap, uint8_t right,
		       unsigned node)
{
	const unsigned lower = cap->scope.rights & (right - 1U);

	return (unsigned)__builtin_popcount(lower) * cap->nodes + node;
}

static uint8_t right_of(const struct srdma_capability *cap, unsigned key)
{
	unsigned rights = cap->scope.rights;

	for (; key >= cap->nodes; key -= cap->nodes)
		rights &= rights - 1; /* clears the lowest bit */
	return (uint8_t)(rights & -rights);
}

static const struct srdma_memnode *node_of(const struct srdma_capability *cap,
					   unsigned key)
{
	return &cap->node[key % cap->nodes];
}

/* Sets the scope and computes its nodes. */
static int set_scope(struct srdma_capability *cap,
		     const struct srdma_capability_scope *scope)
{
	int n;

	if (!scope->rights || scope->rights & ~SRDMA_MEMKEY_ALL)
		return -EACCES;
	n = srdma_memtree_cover(&cap->tree, scope->lo, scope->hi, cap->node);
	if (n < 0)
		return n;
	cap->scope = *scope;
	cap->nodes = (uint16_t)n;
	return 0;
}

/* RFC 5042 R6.3.4-1 */
int srdma_capability_grant(struct srdma_capability *cap, struct srdma_cmac *c,
			   struct srdma_memkey_cache *cache, uint32_t rkey,
			   const struct srdma_capability_scope *scope)
{
	int r;

	*cap = (struct srdma_capability){ .tree = cache->tree, .rkey = rkey };
	r = set_scope(cap, scope);
	for (unsigned i = 0; !r && i < keys(cap); i++)
		r = srdma_memkey_cache_node(cache, c, cap->key[i],
					    right_of(cap, i), node_of(cap, i));
	if (r)
		srdma_capability_wipe(cap);
	return r;
}

/* Index of the node that contains offset; offset is in the scope. */
static unsigned entry_at(const struct srdma_capability *cap, uint64_t offset)
{
	unsigned lo = 0, hi = cap->nodes;

	while (hi - lo > 1) {
		const unsigned middle = lo + (hi - lo) / 2;

		if (cap->node[middle].lo <= offset)
			lo = middle;
		else
			hi = middle;
	}
	return lo;
}

int srdma_capability_find(const struct srdma_capability *cap, uint8_t right,
			  uint64_t offset, struct srdma_capability_entry *e)
{
	unsigned node;

	if (!(cap->scope.rights & right))
		return -EACCES;
	if (offset < cap->scope.lo || offset >= cap->scope.hi)
		return -ERANGE;
	node = entry_at(cap, offset);
	e->node = &cap->node[node];
	e->key = cap->key[number(cap, right, node)];
	return 0;
}

/* Derives one key of a narrowed capability. The larger range is made of the
 * largest possible nodes, so each node of the smaller range lies in one of
 * them. */
static int narrow_key(struct srdma_capability *cap, struct srdma_cmac *c,
		      const struct srdma_capability *from, unsigned key)
{
	const struct srdma_memnode *node = node_of(cap, key);
	struct srdma_capability_entry e;
	int r = srdma_capability_find(from, right_of(cap, key), node->lo, &e);

	assert(!r && node->hi <= e.node->hi);
	if (from->final && node->depth != e.node->depth)
		return -EPERM;
	memcpy(cap->key[key], e.key, SRDMA_MEMKEY_LEN);
	return srdma_memkey_walk(c, cap->key[key], &cap->tree, e.node->depth,
				 node);
}

int srdma_capability_narrow(struct srdma_capability *cap, struct srdma_cmac *c,
			    const struct srdma_capability *from,
			    const struct srdma_capability_scope *scope)
{
	int r;

	*cap = (struct srdma_capability){
		.tree = from->tree,
		.rkey = from->rkey,
		.bearer = from->bearer,
		.final = from->final,
	};
	r = scope->rights & ~from->scope.rights ? -EACCES : 0;
	if (!r && (scope->lo < from->scope.lo || scope->hi > from->scope.hi))
		r = -ERANGE;
	if (!r)
		r = set_scope(cap, scope);
	for (unsigned i = 0; !r && i < keys(cap); i++)
		r = narrow_key(cap, c, from, i);
	if (r)
		srdma_capability_wipe(cap);
	return r;
}

static int make_final(struct srdma_capability *cap, struct srdma_cmac *c)
{
	int r = 0;

	for (unsigned i = 0; !r && i < keys(cap); i++)
		r = srdma_memkey_access(c, cap->key[i], cap->key[i],
					node_of(cap, i), &cap->bearer);
	cap->final = 1;
	if (r)
		srdma_capability_wipe(cap);
	return r;
}

int srdma_capability_seal(struct srdma_capability *cap, struct srdma_cmac *c,
			  const struct srdma_memkey_bearer *bearer)
{
	if (cap->final)
		return -EPERM;
	if (!is_somebody(bearer))
		return -EINVAL;
	cap->bearer = *bearer;
	return make_final(cap, c);
}

int srdma_capability_ready(struct srdma_capability *cap, struct srdma_cmac *c)
{
	return cap->final ? 0 : make_final(cap, c);
}

/* --- tokens -------------------------------------------------------------- */

/* 0 or -EIO. */
static int check_sum(uint8_t out[SRDMA_CAPABILITY_CHECK], const uint8_t *data,
		     size_t len)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];

	if (!SHA256(data, len, digest))
		return -EIO;
	memcpy(out, digest, SRDMA_CAPABILITY_CHECK);
	return 0;
}

int srdma_capability_encode(uint8_t out[SRDMA_CAPABILITY_MAX],
			    const struct srdma_capability *cap)
{
	const size_t len = KEYS + (size_t)keys(cap) * SRDMA_MEMKEY_LEN;

	if (cap->final != is_somebody(&cap->bearer))
		return -EPERM;
	memcpy(out, magic, sizeof(magic));
	out[SRDMA_TOKEN_FLAGS] = cap->final ? SRDMA_TOKEN_SEALED : 0;
	srdma_store32(out + SRDMA_TOKEN_RKEY, cap->rkey);
	srdma_store64(out + SRDMA_TOKEN_START, cap->tree.start);
	srdma_store64(out + SRDMA_TOKEN_END, cap->tree.end);
	srdma_store64(out + SRDMA_TOKEN_LO, cap->scope.lo);
	srdma_store64(out + SRDMA_TOKEN_HI, cap->scope.hi);
	memcpy(out + SRDMA_TOKEN_HOLDER, cap->bearer.holder,
	       SRDMA_MEMKEY_HOLDER_LEN);
	srdma_store32(out + SRDMA_TOKEN_EXPIRY, cap->bearer.expiry);
	out[SRDMA_TOKEN_LOG2_BLOCK] = cap->tree.log2_block;
	out[SRDMA_TOKEN_DEPTH_LIMIT] = cap->tree.depth_limit;
	out[SRDMA_TOKEN_RIGHTS] = cap->scope.rights;
	out[SRDMA_TOKEN_ZERO] = 0;
	memcpy(out + KEYS, cap->key, len - KEYS);
	if (check_sum(out + len, out, len)) {
		srdma_wipe(out, len);
		return -EIO;
	}
	return (int)(len + SRDMA_CAPABILITY_CHECK);
}

/* Decodes and checks all fields before the keys. */
static int decode_head(struct srdma_capability *cap, const uint8_t *data)
{
	const struct srdma_capability_scope scope = {
		.lo = srdma_load64(data + SRDMA_TOKEN_LO),
		.hi = srdma_load64(data + SRDMA_TOKEN_HI),
		.rights = data[SRDMA_TOKEN_RIGHTS],
	};

	*cap = (struct srdma_capability){
		.tree = {
			.start = srdma_load64(data + SRDMA_TOKEN_START),
			.end = srdma_load64(data + SRDMA_TOKEN_END),
			.log2_block = data[SRDMA_TOKEN_LOG2_BLOCK],
			.depth_limit = data[SRDMA_TOKEN_DEPTH_LIMIT],
		},
		.rkey = srdma_load32(data + SRDMA_TOKEN_RKEY),
		.bearer.expiry = srdma_load32(data + SRDMA_TOKEN_EXPIRY),
		.final = data[SRDMA_TOKEN_FLAGS] == SRDMA_TOKEN_SEALED,
	};
	memcpy(cap->bearer.holder, data + SRDMA_TOKEN_HOLDER,
	       SRDMA_MEMKEY_HOLDER_LEN);
	if (data[SRDMA_TOKEN_FLAGS] & ~SRDMA_TOKEN_SEALED ||
	    data[SRDMA_TOKEN_ZERO] || !cap->rkey ||
	    cap->final != is_somebody(&cap->bearer) ||
	    srdma_memtree_check(&cap->tree) || set_scope(cap, &scope))
		return -EPROTO;
	return 0;
}

int srdma_capability_decode(struct srdma_capability *cap, const uint8_t *data,
			    size_t len)
{
	const size_t body = len - SRDMA_CAPABILITY_CHECK;
	uint8_t sum[SRDMA_CAPABILITY_CHECK];
	int r = -EMSGSIZE;

	memset(cap, 0, sizeof(*cap));
	if (len < KEYS + SRDMA_CAPABILITY_CHECK || len > SRDMA_CAPABILITY_MAX)
		return r;
	if (memcmp(data, magic, sizeof(magic)) != 0)
		return -EPROTO;
	r = check_sum(sum, data, body);
	if (r)
		return r;
	if (memcmp(sum, data + body, sizeof(sum)) != 0)
		return -EBADMSG;
	r = decode_head(cap, data);
	if (!r && body - KEYS != (size_t)keys(cap) * SRDMA_MEMKEY_LEN)
		r = -EMSGSIZE;
	if (r)
		srdma_capability_wipe(cap);
	else
		memcpy(cap->key, data + KEYS, body - KEYS);
	return r;
}
