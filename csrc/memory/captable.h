/*
 * Capability table: the capabilities that are installed for the requests of one
 * leg, by handle (docs/protocol.md 6.4).
 */
#ifndef SRDMA_MEMORY_CAPTABLE_H
#define SRDMA_MEMORY_CAPTABLE_H

#include <stdint.h>

#include "memory/capability.h"

enum { SRDMA_CAPTABLE_MAX = 1024 }; /* capabilities of a leg */

struct srdma_captable_entry {
	uint64_t number; /* of the installation: never used again */
	uint32_t handle;
	uint8_t flags; /* of the STH of packets that it proves */
	struct srdma_capability cap;
};

struct srdma_captable {
	struct srdma_captable_entry *slot[SRDMA_CAPTABLE_MAX]; /* by handle */
	uint32_t count, serial;
	uint64_t installed; /* installations so far */
};

/*
 * Installs a copy of a capability that is ready for use. A handle is never 0,
 * and is not used again before 2^22 others were. 0; -EDQUOT: the table is full;
 * -ENOMEM.
 */
int srdma_captable_add(struct srdma_captable *g,
		       const struct srdma_capability *cap, uint32_t *handle);
/* Wipes and removes it. 0 or -ENOENT. */
int srdma_captable_drop(struct srdma_captable *g, uint32_t handle);
/* Wipes and removes all. */
void srdma_captable_wipe(struct srdma_captable *g);

/* An access that a request makes. */
struct srdma_captable_want {
	uint32_t handle;
	uint32_t rkey;
	uint8_t right; /* one bit */
	uint64_t addr;
	uint64_t len;
};

/* Proof for the first bytes of the access; valid while
 * srdma_captable_is_current(). All zero: none. */
struct srdma_captable_use {
	uint64_t number; /* of the entry */
	const struct srdma_memnode *node;
	const uint8_t *key; /* K_access */
	uint32_t expiry;
	uint8_t flags; /* of the STH */
	uint64_t run;  /* bytes of the access in the node */
};

/*
 * 0: the capability grants all of the access. -ENOENT: no such handle; -EACCES:
 * not granted. An access to no bytes needs only the handle, and leaves *use as
 * it is.
 */
int srdma_captable_find(const struct srdma_captable *g,
			const struct srdma_captable_want *want,
			struct srdma_captable_use *use);

/*
 * 1: the entry from which *use was found is still installed. A handle may have
 * been given to another capability meanwhile, so that it does not tell.
 */
int srdma_captable_is_current(const struct srdma_captable *g, uint32_t handle,
			      const struct srdma_captable_use *use);

#endif
