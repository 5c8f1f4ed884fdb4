/*
 * Capabilities: tokens for access to a range of a region, which the bearer can
 * narrow and pass on (docs/protocol.md 6.2). A capability contains secret keys:
 * the owner of a capability that was made or decoded must call
 * srdma_capability_wipe().
 */
#ifndef SRDMA_CAPABILITY_H
#define SRDMA_CAPABILITY_H

#include <stddef.h>
#include <stdint.h>

#include "memory/memkey.h"
#include "memory/memtree.h"

enum {
	SRDMA_CAPABILITY_RIGHTS = 3,
	SRDMA_CAPABILITY_KEYS =
		SRDMA_CAPABILITY_RIGHTS * SRDMA_MEMTREE_COVER_MAX,
	SRDMA_CAPABILITY_HEAD = 64,
	SRDMA_CAPABILITY_CHECK = 8,
	SRDMA_CAPABILITY_MAX = SRDMA_CAPABILITY_HEAD +
			       SRDMA_CAPABILITY_KEYS * SRDMA_MEMKEY_LEN +
			       SRDMA_CAPABILITY_CHECK,
};

/* Rights and range of a capability; bytes relative to the region's start. */
struct srdma_capability_scope {
	uint64_t lo, hi;
	uint8_t rights; /* enum srdma_memkey_right, or-ed, not 0 */
};

struct srdma_capability {
	struct srdma_memtree tree;
	uint32_t rkey;
	struct srdma_capability_scope scope;
	struct srdma_memkey_bearer bearer; /* zero unless sealed */
	uint8_t final;	/* 1: keys are K_access; 0: node keys */
	uint16_t nodes; /* number of nodes that make up the range */
	struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX];
	/* keys of all nodes for the lowest right, then for the next right */
	uint8_t key[SRDMA_CAPABILITY_KEYS][SRDMA_MEMKEY_LEN];
};

void srdma_capability_wipe(struct srdma_capability *cap);

/*
 * The functions that make a capability leave it complete or, on failure, wiped.
 * Errors of a scope: -ERANGE: empty, or outside the region or the narrowed
 * capability;
 * -EINVAL: not made of granules; -EACCES: rights are empty, unknown or not in
 * the narrowed capability. Also -EIO and -ENOMEM: the provider failed.
 */

/* Makes an open capability from the region's keys. */
int srdma_capability_grant(struct srdma_capability *cap, struct srdma_cmac *c,
			   struct srdma_memkey_cache *cache, uint32_t rkey,
			   const struct srdma_capability_scope *scope);

/* Makes a capability for a part of `from`. Also -EPERM: `from` is sealed and
 * the range is not made of its nodes. */
int srdma_capability_narrow(struct srdma_capability *cap, struct srdma_cmac *c,
			    const struct srdma_capability *from,
			    const struct srdma_capability_scope *scope);

/* Seals an open capability for a holder, an expiry, or both. -EPERM (already
 * sealed) and -EINVAL (neither holder nor expiry) leave cap unchanged. */
int srdma_capability_seal(struct srdma_capability *cap, struct srdma_cmac *c,
			  const struct srdma_memkey_bearer *bearer);

/*
 * Replaces node keys by K_access, once, for use by a sender. An open capability
 * can then no longer be narrowed, sealed or encoded.
 */
int srdma_capability_ready(struct srdma_capability *cap, struct srdma_cmac *c);

/* Node and key for one access. */
struct srdma_capability_entry {
	const struct srdma_memnode *node; /* node->hi limits the access */
	const uint8_t *key;
};

/* Finds the entry for the byte at offset (from the region's start) and one
 * right. 0; -EACCES: the right is not granted; -ERANGE: the byte is not. */
int srdma_capability_find(const struct srdma_capability *cap, uint8_t right,
			  uint64_t offset, struct srdma_capability_entry *e);

/* Writes the unique token of a capability. Returns its length; -EPERM after
 * srdma_capability_ready() on an open capability; -EIO: the provider failed, and
 * out holds no key. */
int srdma_capability_encode(uint8_t out[SRDMA_CAPABILITY_MAX],
			    const struct srdma_capability *cap);

/*
 * Decodes a token. Strict: srdma_capability_encode() of the result gives the
 * same bytes. -EMSGSIZE: the length is not that of a token; -EPROTO: not a
 * token of this version, or an illegal field; -EBADMSG: wrong check sum; -EIO:
 * the provider failed. On failure *cap is wiped.
 */
int srdma_capability_decode(struct srdma_capability *cap, const uint8_t *data,
			    size_t len);

#endif
