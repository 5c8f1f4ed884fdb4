/*
 * Memory regions by random wire rkeys, and the access check: the only place
 * that authorizes an access, except for its memory proof (docs/protocol.md 6).
 * Private to the relay.
 */
#ifndef SRDMA_MR_H
#define SRDMA_MR_H

#include <stdint.h>

#include "memory/exposed.h"
#include "memory/memkey.h"
#include "port/port.h"
#include "srdma/types.h"
#include "wire/reason.h"

struct srdma_leg;
struct srdma_memguard;

enum { SRDMA_MR_BUCKETS = 16384 };

struct srdma_mr {
	struct srdma_mr *next; /* next region in the bucket */
	struct srdma_leg *leg;
	struct srdma_region *region;
	struct srdma_memguard *guard; /* memory keys; NULL: no proofs */
	uint32_t key;		      /* wire rkey, and local key of the host */
	uint32_t access;
	/* Address of its first byte in requests of the host and of peers. In
	 * the host it is region->base. */
	uint64_t base;
	/* Scope: the only QP on which the peer may use it, or 0; the only
	 * identity that may, or zeros. */
	uint32_t scope_qpn;
	uint8_t scope_holder[SRDMA_MEMKEY_HOLDER_LEN];
	uint32_t dmas; /* DMAs in progress */
	int dead;      /* 1: deregistered; freed when dmas is 0 */
	int moving;    /* 1: REPLACE waits to give it another key */
	struct srdma_exposed exposed; /* to peers, of a file */
};

struct srdma_mr_table {
	struct srdma_mr *bucket[SRDMA_MR_BUCKETS];
	/* Number of the last registration, revocation or start of a DMA; it
	 * orders these events. */
	uint64_t serial;
	/* Rises when a region ends, loses a right or its key, or begins or ends to
	 * move. */
	uint64_t revision;
	struct srdma_exposed_table exposed;
};

/* The region with this key, also if it is dead; NULL if there is none. */
struct srdma_mr *srdma_mr_find(const struct srdma_mr_table *t, uint32_t key);
void srdma_mr_insert(struct srdma_mr_table *t, struct srdma_mr *mr);
/* Gives the region another key, which no region has. dmas must be 0: a DMA of an
 * SGL finds its region by the key. */
void srdma_mr_rename(struct srdma_mr_table *t, struct srdma_mr *mr,
		     uint32_t key);
/* The region is refused from now on: it was deregistered. */
void srdma_mr_end(struct srdma_mr_table *t, struct srdma_mr *mr);
/* 1: the region is refused until srdma_mr_rename(). */
void srdma_mr_set_moving(struct srdma_mr_table *t, struct srdma_mr *mr,
			 int moving);
/* Ends the remote rights of the region. */
void srdma_mr_withdraw(struct srdma_mr_table *t, struct srdma_mr *mr);
/* Removes the region from the table and frees it with its memory keys. dmas
 * must be 0. */
void srdma_mr_free(struct srdma_mr_table *t, struct srdma_mr *mr);

/* An access to be checked. */
struct srdma_mr_want {
	const struct srdma_leg *leg; /* leg (PD) of the QP */
	uint32_t qpn;
	uint32_t key;
	uint32_t right; /* one flag of enum srdma_access; 0: local read */
	/* Identity of the QP's peer, SRDMA_MEMKEY_HOLDER_LEN bytes; not used for
	 * local accesses. */
	const uint8_t *holder;
	/* virtual address of the host; length in bytes */
	uint64_t addr;
	uint64_t len;
};

/*
 * Checks an access, except for its proof. Returns SRDMA_REASON_NONE and the
 * region in *mr, or the reason of the first check that failed and NULL there.
 */
enum srdma_reason srdma_mr_check(const struct srdma_mr_table *t,
				 const struct srdma_mr_want *want,
				 struct srdma_mr **mr);

/* The last access that was permitted to a leg, QP and holder. Until the revision of
 * the table changes, the same kind of access to the same region needs only its
 * bounds checked. All zero: none. */
struct srdma_mr_permit {
	struct srdma_mr *mr;
	uint64_t revision;
	uint32_t key, right;
};
/* As srdma_mr_check(). On success sets *permit. */
enum srdma_reason srdma_mr_permit(const struct srdma_mr_table *t,
				  struct srdma_mr_permit *permit,
				  const struct srdma_mr_want *want,
				  struct srdma_mr **mr);
/* The region if the permit holds for this kind of access; NULL: it does not. */
static inline struct srdma_mr *
srdma_mr_permitted(const struct srdma_mr_table *t,
		   const struct srdma_mr_permit *permit, uint32_t key,
		   uint32_t right)
{
	return permit->revision == t->revision && permit->key == key &&
			       permit->right == right
		       ? permit->mr
		       : NULL;
}
/* 1: the bytes lie in the region. Written as differences, which cannot wrap (6). */
static inline int srdma_mr_covers(const struct srdma_mr *mr, uint64_t addr,
				  uint64_t len)
{
	const struct srdma_region *region = mr->region;

	return len <= region->length && addr >= mr->base &&
	       addr - mr->base <= region->length - len;
}

/* 1 if no part of [addr, addr + len) was revoked after the event `serial`. */
int srdma_mr_current(const struct srdma_mr *mr, uint64_t serial, uint64_t addr,
		     uint64_t len);

#endif
