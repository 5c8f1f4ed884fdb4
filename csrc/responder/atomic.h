/*
 * Results of the last atomics of a QP, which its responder keeps so that none
 * is executed twice (docs/protocol.md 5).
 */
#ifndef SRDMA_RESPONDER_ATOMIC_H
#define SRDMA_RESPONDER_ATOMIC_H

#include <stdint.h>

#include "base/table.h"

struct srdma_atomic_result {
	uint64_t request_id;
	uint64_t original; /* value found */
};

/* A ring of results. */
struct srdma_atomic_results {
	struct srdma_table_memory *memory;
	struct srdma_atomic_result *result;
	uint32_t size; /* most results kept */
	uint32_t room; /* results that memory is allocated for */
	uint32_t count, next;
};

/* An empty ring of at most size results. Its memory is taken from *memory, which
 * outlives it, when it is needed. */
void srdma_atomic_create(struct srdma_atomic_results *t,
			 struct srdma_table_memory *memory, uint32_t size);
void srdma_atomic_destroy(struct srdma_atomic_results *t);

/* Makes room for n more; in a full ring the oldest are dropped. 0 or -ENOMEM.
 */
int srdma_atomic_make_room(struct srdma_atomic_results *t, uint32_t n);
/* Keeps the result of an atomic for which room was made. */
void srdma_atomic_keep(struct srdma_atomic_results *t, uint64_t request_id,
		       uint64_t original);
/* Finds the original value of a request's atomic. 0, or -ENOENT: not kept. */
int srdma_atomic_find(const struct srdma_atomic_results *t, uint64_t request_id,
		      uint64_t *original);

#endif
