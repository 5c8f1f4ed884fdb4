/*
 * Capabilities that a leg's requests may name (docs/protocol.md 6.4).
 * Internal to the relay.
 */
#ifndef SRDMA_GRANT_H
#define SRDMA_GRANT_H

#include <stdint.h>

#include "memory/capability.h"
#include "relay.h"

struct srdma_grant {
	uint32_t handle;
	uint8_t flags; /* of the STH of what it proves */
	struct srdma_capability cap;
};

struct srdma_grants {
	struct srdma_grant *slot[SRDMA_MAX_GRANTS]; /* by handle */
	uint32_t count, serial;
};

/*
 * Keep a copy of a capability that is ready for use. Handles are never 0, and
 * come again after 2^22 others at the least. 0; -EDQUOT: as many as can be
 * are kept; -ENOMEM.
 */
int srdma_grant_add(struct srdma_grants *g, const struct srdma_capability *cap,
		    uint32_t *handle);
/* Wipes it. -ENOENT: no such handle. */
int srdma_grant_drop(struct srdma_grants *g, uint32_t handle);
/* Drops all. */
void srdma_grant_wipe(struct srdma_grants *g);

/* An access that a request names. */
struct srdma_grant_want {
	uint32_t handle;
	uint32_t rkey;
	uint8_t right; /* one bit */
	uint64_t addr;
	uint64_t len;
};

/* What its first packet needs; valid until the capability is dropped. */
struct srdma_grant_use {
	const struct srdma_memnode *node;
	const uint8_t *key; /* K_access */
	uint32_t expiry;
	uint8_t flags; /* of the STH */
	uint64_t run;  /* bytes of the access in the node */
};

/*
 * 0: all of the access is granted. -ENOENT: no such handle; -EACCES: the
 * capability does not grant it. An access to no bytes only needs the handle,
 * and leaves *use as it is.
 */
int srdma_grant_find(const struct srdma_grants *g,
		     const struct srdma_grant_want *want,
		     struct srdma_grant_use *use);

#endif
