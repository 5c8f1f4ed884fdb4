/*
 * Installed capabilities (captable) of a leg, which its requests name by handle
 * (docs/protocol.md 6.4). Private to the relay.
 */
#ifndef SRDMA_GRANT_H
#define SRDMA_GRANT_H

#include <stdint.h>

#include "memory/capability.h"
#include "relay.h"

struct srdma_grant {
	uint32_t handle;
	uint8_t flags; /* STH flags of packets with its proof */
	struct srdma_capability cap;
};

struct srdma_grants {
	struct srdma_grant *slot[SRDMA_MAX_GRANTS]; /* by handle modulo size */
	uint32_t count, serial;
};

/*
 * Stores a copy of a capability after srdma_capability_ready(). Handles are not
 * 0; a handle is reused after 2^22 others at the earliest. 0; -EDQUOT:
 * SRDMA_MAX_GRANTS are installed; -ENOMEM.
 */
int srdma_grant_add(struct srdma_grants *g, const struct srdma_capability *cap,
		    uint32_t *handle);
/* Removes and wipes a capability. 0, or -ENOENT: no such handle. */
int srdma_grant_drop(struct srdma_grants *g, uint32_t handle);
/* Removes and wipes all. */
void srdma_grant_wipe(struct srdma_grants *g);

/* Access of a request. */
struct srdma_grant_want {
	uint32_t handle;
	uint32_t rkey;
	uint8_t right; /* one bit of enum srdma_memkey_right */
	uint64_t addr;
	uint64_t len;
};

/* Proof material of a packet; valid until the capability is removed. */
struct srdma_grant_use {
	const struct srdma_memnode *node;
	const uint8_t *key; /* K_access */
	uint32_t expiry;
	uint8_t flags; /* for the STH */
	uint64_t run;  /* bytes from the start that the node covers */
};

/*
 * Finds the proof material for the first bytes of an access, all of which the
 * capability must grant. 0; -ENOENT: no such handle; -EACCES: not granted. If
 * len is 0, only the handle is checked and *use is not set.
 */
int srdma_grant_find(const struct srdma_grants *g,
		     const struct srdma_grant_want *want,
		     struct srdma_grant_use *use);

#endif
