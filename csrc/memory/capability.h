/*
 * Capabilities: the right to access a range of a region, as a token that can
 * be made smaller and handed on (docs/protocol.md 6.2). A capability is a
 * secret; every one that was made or decoded ends in srdma_capability_wipe().
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

/* What is granted: rights, and bytes relative to the region's start. */
struct srdma_capability_scope {
	uint64_t lo, hi;
	uint8_t rights; /* enum srdma_memkey_right, or-ed, not 0 */
};

struct srdma_capability {
	struct srdma_memtree tree;
	uint32_t rkey;
	struct srdma_capability_scope scope;
	struct srdma_memkey_bearer bearer; /* of a sealed one, else zero */
	uint8_t final;	/* keys are K_access, not node keys */
	uint16_t nodes; /* that make up the range */
	struct srdma_memnode node[SRDMA_MEMTREE_COVER_MAX];
	/* nodes for the lowest right, then for the next */
	uint8_t key[SRDMA_CAPABILITY_KEYS][SRDMA_MEMKEY_LEN];
};

void srdma_capability_wipe(struct srdma_capability *cap);

/*
 * What follows gives a whole capability or a wiped one. The errors of a scope:
 * -ERANGE: empty, or outside of the region or of what is narrowed; -EINVAL:
 * not made of granules; -EACCES: no right, or one that is not there. And -EIO.
 */

/* Make an open one, at the region's owner. */
int srdma_capability_grant(struct srdma_capability *cap, struct srdma_cmac *c,
			   struct srdma_memkey_cache *cache, uint32_t rkey,
			   const struct srdma_capability_scope *scope);

/* A part of another one. Also -EPERM: a sealed one gives whole nodes only. */
int srdma_capability_narrow(struct srdma_capability *cap, struct srdma_cmac *c,
			    const struct srdma_capability *from,
			    const struct srdma_capability_scope *scope);

/* Make an open one final, for a bearer. Left as it is: -EPERM: it is sealed;
 * -EINVAL: neither holder nor expiry. */
int srdma_capability_seal(struct srdma_capability *cap, struct srdma_cmac *c,
			  const struct srdma_memkey_bearer *bearer);

/*
 * Replace node keys by K_access, once, before a sender uses it: afterwards an
 * open one can be used, but neither narrowed, nor sealed, nor encoded.
 */
int srdma_capability_ready(struct srdma_capability *cap, struct srdma_cmac *c);

/* The node that an access uses, and its key. */
struct srdma_capability_entry {
	const struct srdma_memnode *node; /* cut the access at node->hi */
	const uint8_t *key;
};

/* The entry with the byte at an offset in the region, for one right. 0, or
 * -EACCES, -ERANGE: not granted. */
int srdma_capability_find(const struct srdma_capability *cap, uint8_t right,
			  uint64_t offset, struct srdma_capability_entry *e);

/* The one token of a capability. Returns its length; -EPERM after ready(). */
int srdma_capability_encode(uint8_t out[SRDMA_CAPABILITY_MAX],
			    const struct srdma_capability *cap);

/*
 * Strict: whatever is taken, encode gives back. -EMSGSIZE: no token has this
 * length; -EPROTO: not a token of this version, or a field is not legal;
 * -EBADMSG: damaged. On failure *cap is wiped.
 */
int srdma_capability_decode(struct srdma_capability *cap, const uint8_t *data,
			    size_t len);

#endif
