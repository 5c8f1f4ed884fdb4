/*
 * Memory keys: K_MR, one one-way tree per right, K_access and the memory
 * proof (docs/protocol.md 6.1). Functions of their arguments: no state but a
 * bounded cache of node keys, no clock, no allocation.
 *
 * c is a context for keys of 16 bytes, for scratch. What gives a key returns
 * 0 or -EIO, and wipes it on failure; out may be the key that it comes from.
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

/* With the range of the tree, all that tells one registration from another. */
struct srdma_memkey_id {
	uint32_t rkey;
	uint64_t generation;
	uint8_t salt[SRDMA_MEMKEY_SALT_LEN];
};

/* Whom a K_access is for, and how long; all zero: whoever has it, for ever. */
struct srdma_memkey_bearer {
	uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN];
	uint32_t expiry; /* Unix seconds: the first at which it is void */
};

/* How keys name an identity, a URI; "" is nobody, all zero. */
int srdma_memkey_holder(uint8_t out[SRDMA_MEMKEY_HOLDER_LEN],
			const char *identity);

int srdma_memkey_mr(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		    const uint8_t pd_key[SRDMA_MEMKEY_LEN],
		    const struct srdma_memtree *t,
		    const struct srdma_memkey_id *id);

int srdma_memkey_root(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		      const uint8_t mr_key[SRDMA_MEMKEY_LEN], uint8_t right);

int srdma_memkey_child(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
		       const uint8_t parent[SRDMA_MEMKEY_LEN],
		       const struct srdma_memnode *child);

/* From the key of a node down to that of *to, which lies in it. */
int srdma_memkey_walk(struct srdma_cmac *c, uint8_t key[SRDMA_MEMKEY_LEN],
		      const struct srdma_memtree *t, unsigned from_depth,
		      const struct srdma_memnode *to);

int srdma_memkey_access(struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
			const uint8_t node_key[SRDMA_MEMKEY_LEN],
			const struct srdma_memnode *node,
			const struct srdma_memkey_bearer *bearer);

/*
 * ad is the generation of the QPs, and the packet's associated data up to and
 * including the expiry of its STH. Also -EINVAL: longer than 255 bytes.
 */
int srdma_memkey_proof(struct srdma_cmac *c,
		       uint8_t out[SRDMA_MEMKEY_PROOF_LEN],
		       const uint8_t access_key[SRDMA_MEMKEY_LEN],
		       const uint8_t *ad, size_t ad_len);

/*
 * Node keys of one tree that were used lately, and the K_access of the last
 * claims; a secret of its owner. The levels that most paths share have slots of
 * their own, which no deeper node takes.
 */
enum {
	SRDMA_MEMKEY_UPPER = 7, /* levels: 127 nodes */
	SRDMA_MEMKEY_SLOTS = (1 << SRDMA_MEMKEY_UPPER) + 256,
	SRDMA_MEMKEY_BEARERS = 16,
};

struct srdma_memkey_cache {
	struct srdma_memtree tree;
	uint8_t mr_key[SRDMA_MEMKEY_LEN];
	int off; /* keep nothing: each look-up derives from mr_key */
	struct srdma_memkey_slot {
		uint64_t name; /* right, depth and index; 0: empty */
		uint8_t key[SRDMA_MEMKEY_LEN];
	} slot[SRDMA_MEMKEY_SLOTS];
	struct srdma_memkey_bearer_slot {
		uint64_t name; /* of the node; 0: empty */
		struct srdma_memkey_bearer bearer;
		uint8_t key[SRDMA_MEMKEY_LEN];
	} access[SRDMA_MEMKEY_BEARERS];
};

/* Start with the legal tree and key of a region. Every init ends in a wipe. */
void srdma_memkey_cache_init(struct srdma_memkey_cache *cache,
			     const struct srdma_memtree *t,
			     const uint8_t mr_key[SRDMA_MEMKEY_LEN]);
void srdma_memkey_cache_wipe(struct srdma_memkey_cache *cache);

/* The key of a node: no derivation if it is hot, else from its lowest hot
 * ancestor down. right is one bit. */
int srdma_memkey_cache_node(struct srdma_memkey_cache *cache,
			    struct srdma_cmac *c, uint8_t out[SRDMA_MEMKEY_LEN],
			    uint8_t right, const struct srdma_memnode *node);

/* What a verified packet wants, and proves. */
struct srdma_memkey_claim {
	uint8_t right; /* one bit */
	uint8_t depth; /* of its STH */
	uint64_t addr;
	uint64_t len;
	struct srdma_memkey_bearer
		bearer;	   /* peer's identity, or zero; expiry */
	const uint8_t *ad; /* as of srdma_memkey_proof() */
	size_t ad_len;
	const uint8_t *proof;
};

/*
 * Is the claim good at this second? 0; -ERANGE: the bytes are not in one node
 * of that depth; -EKEYEXPIRED; -EBADMSG: the proof is wrong; -EINVAL, -EIO.
 */
int srdma_memkey_check(struct srdma_memkey_cache *cache, struct srdma_cmac *c,
		       const struct srdma_memkey_claim *claim, uint32_t now);

#endif
