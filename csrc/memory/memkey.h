/*
 * Memory keys: K_MR, one key tree per right, K_access and the memory proof
 * (docs/protocol.md 6.1). The functions have no state but a bounded cache of
 * node keys; they use no clock and do not allocate.
 *
 * c: scratch context for 16-byte keys. Functions that derive a key return 0,
 * -EIO or -ENOMEM (the provider failed) and wipe the output on failure. out may
 * be the key that it is derived from.
 */
#ifndef SRDMA_MEMKEY_H
#define SRDMA_MEMKEY_H

#include <stddef.h>
#include <stdint.h>

#include "crypto/cmac.h"
#include "memory/memtree.h"

enum {
	SRDMA_MEMKEY_LEN = 16,
	SRDMA_MEMKEY_SALT_LEN = 16,
	SRDMA_MEMKEY_HOLDER_LEN = 16,
	SRDMA_MEMKEY_PROOF_LEN = SRDMA_CMAC_LEN,
};

enum srdma_memkey_right {
	SRDMA_MEMKEY_READ = 1,
	SRDMA_MEMKEY_WRITE = 2,
	SRDMA_MEMKEY_ATOMIC = 4,
	SRDMA_MEMKEY_ALL = 7,
};

/* Identifies a registration, together with the address range of its tree. */
struct srdma_memkey_id {
	uint32_t rkey;
	uint64_t generation;
	uint8_t salt[SRDMA_MEMKEY_SALT_LEN];
};

/* Holder and lifetime of a K_access. All zero: any holder, no expiry. */
struct srdma_memkey_bearer {
	uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN];
	uint32_t expiry; /* Unix time (s) from which it is void; 0: none */
};

/* Key-derivation name of an identity URI: first bytes of its SHA-256; "" gives
 * all zero. Returns 0 or -EIO. */
int srdma_memkey_holder(uint8_t out[SRDMA_MEMKEY_HOLDER_LEN],
			const char *identity);

/* K_MR of a registration. */
int srdma_memkey_mr(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		    const uint8_t pd_key[SRDMA_MEMKEY_LEN],
		    const struct srdma_memtree *t,
		    const struct srdma_memkey_id *id);

/* Root key of one right (one bit of enum srdma_memkey_right). */
int srdma_memkey_root(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		      const uint8_t mr_key[SRDMA_MEMKEY_LEN], uint8_t right);

/* Key of a child node from the key of its parent. */
int srdma_memkey_child(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		       const uint8_t parent[SRDMA_MEMKEY_LEN],
		       const struct srdma_memnode *child);

/* Replaces the key of the ancestor of *to at from_depth by the key of *to. */
int srdma_memkey_walk(struct srdma_cmac *c, uint8_t key[SRDMA_MEMKEY_LEN],
		      const struct srdma_memtree *t, unsigned from_depth,
		      const struct srdma_memnode *to);

/* K_access of a node for a holder and expiry. */
int srdma_memkey_access(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
			const uint8_t node_key[SRDMA_MEMKEY_LEN],
			const struct srdma_memnode *node,
			const struct srdma_memkey_bearer *bearer);

/*
 * Proof of a packet. ad: generation of the QP, then the associated data up to
 * and including the STH expiry. Also -EINVAL: ad is longer than 255 bytes.
 */
int srdma_memkey_proof(struct srdma_cmac *c,
		       uint8_t out[SRDMA_MEMKEY_PROOF_LEN],
		       const uint8_t access_key[SRDMA_MEMKEY_LEN],
		       const uint8_t *ad, size_t ad_len);

/*
 * Cache of recently used node keys of one tree and of the K_access of recent
 * claims. It holds secrets. The upper levels, which most paths share, have
 * reserved slots that deeper nodes cannot evict.
 */
enum {
	SRDMA_MEMKEY_UPPER = 7, /* reserved levels: 127 nodes */
	SRDMA_MEMKEY_SLOTS = (1 << SRDMA_MEMKEY_UPPER) + 256,
	SRDMA_MEMKEY_BEARERS = 16,
};

struct srdma_memkey_cache {
	struct srdma_memtree tree;
	uint8_t mr_key[SRDMA_MEMKEY_LEN];
	int off; /* 1: cache nothing; each lookup derives from mr_key */
	struct srdma_memkey_slot {
		uint64_t name; /* right, depth and index; 0: empty slot */
		uint8_t key[SRDMA_MEMKEY_LEN];
	} slot[SRDMA_MEMKEY_SLOTS];
	struct srdma_memkey_bearer_slot {
		uint64_t name; /* of the node; 0: empty slot */
		struct srdma_memkey_bearer bearer;
		uint8_t key[SRDMA_MEMKEY_LEN];
	} access[SRDMA_MEMKEY_BEARERS];
};

/* Initializes the cache with a legal tree and K_MR. Each init must be followed
 * by a wipe. */
void srdma_memkey_cache_init(struct srdma_memkey_cache *cache,
			     const struct srdma_memtree *t,
			     const uint8_t mr_key[SRDMA_MEMKEY_LEN]);
void srdma_memkey_cache_wipe(struct srdma_memkey_cache *cache);

/* Key of a node for one right (one bit). Derived from the lowest cached
 * ancestor if it is not cached itself. */
int srdma_memkey_cache_node(struct srdma_memkey_cache *cache,
			    struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
			    uint8_t right, const struct srdma_memnode *node);

/* Access and proof of a verified packet. */
struct srdma_memkey_claim {
	uint8_t right; /* one bit of enum srdma_memkey_right */
	uint8_t depth; /* node depth in the STH */
	uint64_t addr;
	uint64_t len;
	/* holder: identity of the peer, or zero; expiry: that of the STH */
	struct srdma_memkey_bearer bearer;
	const uint8_t *ad; /* as for srdma_memkey_proof() */
	size_t ad_len;
	const uint8_t *proof;
};

/*
 * Checks a claim at time now (Unix seconds). 0; -ERANGE: the bytes do not lie
 * in one node of that depth; -EKEYEXPIRED: the expiry has passed; -EBADMSG:
 * wrong proof; -EINVAL: ad is longer than 255 bytes; -EIO, -ENOMEM.
 */
int srdma_memkey_check(struct srdma_memkey_cache *cache, struct srdma_cmac *c,
		       const struct srdma_memkey_claim *claim, uint32_t now);

#endif
