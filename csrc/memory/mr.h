/*
 * Memory regions under random wire rkeys, and the one place where an access
 * is authorized but for its proof (docs/protocol.md 6). Internal to the relay.
 */
#ifndef SRDMA_MR_H
#define SRDMA_MR_H

#include <stdint.h>

#include "port/port.h"
#include "wire/reason.h"

struct srdma_leg;
struct srdma_memguard;

enum srdma_access { /* verbs' flags */
		    SRDMA_ACCESS_LOCAL_WRITE = 1,
		    SRDMA_ACCESS_REMOTE_WRITE = 2,
		    SRDMA_ACCESS_REMOTE_READ = 4,
		    SRDMA_ACCESS_REMOTE_ATOMIC = 8,
		    SRDMA_ACCESS_ALL = 15,
		    SRDMA_ACCESS_PROOF = 0x100, /* remote ones need a proof */
};

enum { SRDMA_MR_BUCKETS = 16384 };

struct srdma_mr {
	struct srdma_mr *next; /* in its bucket */
	struct srdma_leg *leg;
	struct srdma_region *region;
	struct srdma_memguard *guard; /* its memory keys; NULL: no proofs */
	uint32_t key;		      /* wire rkey and local key */
	uint32_t access;
	uint32_t scope_qpn; /* 0: any of the PD */
	uint32_t dmas;	    /* under way */
	int dead;	    /* refused; freed when dmas is 0 */
};

struct srdma_mr_table {
	struct srdma_mr *bucket[SRDMA_MR_BUCKETS];
	/* Of the last registration, revocation or start of a DMA: which was
	 * first? */
	uint64_t serial;
};

/* Any region of this key, dead ones too; NULL if there is none. */
struct srdma_mr *srdma_mr_find(const struct srdma_mr_table *t, uint32_t key);
void srdma_mr_insert(struct srdma_mr_table *t, struct srdma_mr *mr);
/* Unlink and free, memory keys too; dmas must be 0. */
void srdma_mr_free(struct srdma_mr_table *t, struct srdma_mr *mr);

/* What somebody wants to do. */
struct srdma_mr_want {
	const struct srdma_leg *leg; /* PD of the QP */
	uint32_t qpn;
	uint32_t key;
	uint32_t right; /* one flag of enum srdma_access, 0: local read */
	uint64_t addr;
	uint64_t len;
};

/*
 * Authorize. SRDMA_REASON_NONE and *mr set, or the first check that failed.
 */
enum srdma_reason srdma_mr_check(const struct srdma_mr_table *t,
				 const struct srdma_mr_want *want,
				 struct srdma_mr **mr);

/* 1: of these bytes of the region nothing was revoked after the serial. */
int srdma_mr_current(const struct srdma_mr *mr, uint64_t serial, uint64_t addr,
		     uint64_t len);

#endif
