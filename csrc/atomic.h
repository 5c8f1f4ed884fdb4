/*
 * Atomics: what they do to 8 bytes of host memory, and the results that a
 * target keeps of the last ones of a QP, so that none is executed twice
 * (docs/protocol.md 5).
 */
#ifndef SRDMA_ATOMIC_H
#define SRDMA_ATOMIC_H

#include <stdint.h>

#include "base/table.h"

enum srdma_atomic_kind {
	SRDMA_ATOMIC_COMPARE_SWAP = 1,
	SRDMA_ATOMIC_FETCH_ADD,
};

/* A QP keeps as many, and so does its peer. */
enum { SRDMA_ATOMIC_RESULTS = 1024 };

/* Of numbers in the host's byte order. */
struct srdma_atomic {
	uint8_t kind;	   /* enum srdma_atomic_kind; 0: it is none */
	uint64_t swap_add; /* what is put there, or added modulo 2^64 */
	uint64_t compare;  /* COMPARE_SWAP: if this is there */
};

/* What an atomic leaves where there was old. */
uint64_t srdma_atomic_apply(const struct srdma_atomic *how, uint64_t old);

struct srdma_atomic_result {
	uint64_t request_id;
	uint64_t original;
};

/* A ring; all zero but memory and size: none yet. */
struct srdma_atomic_results {
	struct srdma_table_memory *memory;
	struct srdma_atomic_result *result;
	uint32_t size; /* results at most */
	uint32_t room; /* for so many is memory taken */
	uint32_t count, next;
};

/* Of size results at most; the memory, which outlives it, is taken for as many
 * as there are. */
void srdma_atomic_create(struct srdma_atomic_results *t,
			 struct srdma_table_memory *memory, uint32_t size);
void srdma_atomic_destroy(struct srdma_atomic_results *t);

/* Make room for n more: the oldest ones go where there may not be as many. 0 or
 * -ENOMEM. */
int srdma_atomic_make_room(struct srdma_atomic_results *t, uint32_t n);
/* One was executed, for which room was made. */
void srdma_atomic_keep(struct srdma_atomic_results *t, uint64_t request_id,
		       uint64_t original);
/* What the atomic of this request found. 0, or -ENOENT: it is not kept. */
int srdma_atomic_find(const struct srdma_atomic_results *t, uint64_t request_id,
		      uint64_t *original);

#endif
