/*
 * Memory keys at the target for one region that requires proofs: the keys of
 * the region's tree and of its revoked ranges (docs/protocol.md 6.1, 6.3).
 * Allocates only on creation and on revocation of a range. Not thread-safe.
 *
 * Ranges are half-open and in bytes relative to the region's start. serial is a
 * counter of the caller that rises with each registration and revocation; it
 * orders accesses and revocations.
 */
#ifndef SRDMA_MEMGUARD_H
#define SRDMA_MEMGUARD_H

#include <stdint.h>

#include "memory/capability.h"
#include "memory/memkey.h"

struct srdma_memguard;

enum {
	SRDMA_MAX_REVOKED = 64,		 /* revoked ranges per region */
	SRDMA_MAX_REVOKED_OF_LEG = 4096, /* revoked ranges per leg */
};

struct srdma_memguard_params {
	struct srdma_memtree tree;
	uint32_t rkey;
	/* Borrowed: these outlive the guard. */
	struct srdma_cmac *cmac; /* scratch for 16-byte keys */
	const uint8_t *pd_key;	 /* K_PDmem */
	/* Number of revoked ranges in all guards that share it. */
	uint32_t *revoked;
	int uncached; /* 1: each claim derives all its keys */
};

/* Fresh values for a new tree of keys. */
struct srdma_memguard_fresh {
	uint8_t salt[SRDMA_MEMKEY_SALT_LEN]; /* random */
	uint64_t serial;
};

/* Creates the guard of a region without revoked ranges. 0, -EINVAL (the tree is
 * not legal), -ENOMEM, -EIO. */
int srdma_memguard_create(struct srdma_memguard **out,
			  const struct srdma_memguard_params *params,
			  const struct srdma_memguard_fresh *fresh);
/* Wipes the keys and frees the guard. NULL is allowed. */
void srdma_memguard_destroy(struct srdma_memguard *g);

/*
 * Finds the tree for an access to [lo, hi): that of the newest revoked range
 * that overlaps, else the region's. Returns 0, or -ERANGE if [lo, hi) crosses
 * the edge of that revoked range (*tree is its tree), is empty, or is outside
 * the region (*tree is the region's).
 */
int srdma_memguard_find(const struct srdma_memguard *g, uint64_t lo,
			uint64_t hi, const struct srdma_memtree **tree);

/* Checks a claim at time now (Unix seconds). Errors of srdma_memkey_check();
 * -ERANGE also if the bytes cross the edge of a revoked range. */
int srdma_memguard_check(struct srdma_memguard *g,
			 const struct srdma_memkey_claim *claim, uint32_t now);

/* 1 if no part of [lo, hi) was revoked after serial. */
int srdma_memguard_current(const struct srdma_memguard *g, uint64_t serial,
			   uint64_t lo, uint64_t hi);

/* Makes an open capability for a range of the region. Errors of
 * srdma_capability_grant(); -ERANGE also if the range crosses the edge of a
 * revoked range. */
int srdma_memguard_grant(struct srdma_memguard *g, struct srdma_capability *cap,
			 const struct srdma_capability_scope *scope);

/* Revokes all capabilities of the region. 0, or -EIO, -ENOMEM: nothing is
 * revoked. */
int srdma_memguard_revoke_all(struct srdma_memguard *g,
			      const struct srdma_memguard_fresh *fresh);

/*
 * Revokes all capabilities for [lo, hi). Returns 0. On failure nothing is
 * revoked: -ERANGE: the range is empty or outside the region; -EINVAL: it does
 * not begin at a multiple of the block size, or does not end at one or at the
 * end of the region; -ENOSPC: SRDMA_MAX_REVOKED other ranges would remain;
 * -EDQUOT: SRDMA_MAX_REVOKED_OF_LEG ranges would remain in all guards that
 * share `revoked`; -ENOMEM, -EIO.
 */
int srdma_memguard_revoke(struct srdma_memguard *g, uint64_t lo, uint64_t hi,
			  const struct srdma_memguard_fresh *fresh);

#endif
