/*
 * The memory keys of one region that demands proofs, at its target: those of
 * its own tree, and those of the ranges of it that were revoked
 * (docs/protocol.md 6.1, 6.3). It knows neither packets nor regions, and
 * allocates only where it is created and where a range is revoked.
 *
 * All ranges are half-open, and in bytes relative to the region's start.
 * serial is a count of the caller that rises with every registration and
 * revocation: it tells what was allowed before one from what came after.
 */
#ifndef SRDMA_MEMGUARD_H
#define SRDMA_MEMGUARD_H

#include <stdint.h>

#include "memory/capability.h"
#include "memory/memkey.h"

struct srdma_memguard;

enum {
	SRDMA_MAX_REVOKED = 64,		 /* ranges per region */
	SRDMA_MAX_REVOKED_OF_LEG = 4096, /* and in all of its regions */
};

struct srdma_memguard_params {
	struct srdma_memtree tree;
	uint32_t rkey;
	/* The caller's; they outlive the guard. */
	struct srdma_cmac *cmac; /* for keys of 16 bytes: scratch */
	const uint8_t *pd_key;	 /* K_PDmem */
	uint32_t *revoked;	 /* ranges of all guards with this count */
	int uncached;		 /* each claim derives all its keys */
};

/* What every new tree of keys begins with. */
struct srdma_memguard_fresh {
	uint8_t salt[SRDMA_MEMKEY_SALT_LEN]; /* random */
	uint64_t serial;
};

/* 0; -EINVAL: not a legal tree; -ENOMEM, -EIO. */
int srdma_memguard_create(struct srdma_memguard **out,
			  const struct srdma_memguard_params *params,
			  const struct srdma_memguard_fresh *fresh);
/* Wipes. NULL is allowed. */
void srdma_memguard_destroy(struct srdma_memguard *g);

/*
 * The tree that judges an access to these bytes: that of the newest revoked
 * range which they touch, else the region's. 0; -ERANGE: they are not all in
 * it; *tree is set all the same. Or they are empty, or not of the region, and
 * *tree is the region's.
 */
int srdma_memguard_find(const struct srdma_memguard *g, uint64_t lo,
			uint64_t hi, const struct srdma_memtree **tree);

/* Is the claim good at this second? As srdma_memkey_check() says; -ERANGE also:
 * the bytes cross the edge of a revoked range. */
int srdma_memguard_check(struct srdma_memguard *g,
			 const struct srdma_memkey_claim *claim, uint32_t now);

/* 1: nothing of these bytes was revoked after the serial. */
int srdma_memguard_current(const struct srdma_memguard *g, uint64_t serial,
			   uint64_t lo, uint64_t hi);

/* Make an open capability for bytes of the region. As srdma_capability_grant()
 * says; -ERANGE also: they cross the edge of a revoked range. */
int srdma_memguard_grant(struct srdma_memguard *g, struct srdma_capability *cap,
			 const struct srdma_capability_scope *scope);

/* Void all capabilities. 0, or -EIO: nothing is changed. */
int srdma_memguard_revoke_all(struct srdma_memguard *g,
			      const struct srdma_memguard_fresh *fresh);

/*
 * Void all capabilities for a range. 0; nothing is changed: -ERANGE: empty or
 * outside; -EINVAL: not made of blocks; -ENOSPC: SRDMA_MAX_REVOKED ranges are
 * kept that it does not cover; -EDQUOT: SRDMA_MAX_REVOKED_OF_LEG in all guards
 * of the count; -ENOMEM, -EIO.
 */
int srdma_memguard_revoke(struct srdma_memguard *g, uint64_t lo, uint64_t hi,
			  const struct srdma_memguard_fresh *fresh);

#endif
