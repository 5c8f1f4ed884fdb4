/* Atomic operations on 8 bytes of host memory (docs/protocol.md 5). */
#ifndef SRDMA_BASE_ATOMIC_OP_H
#define SRDMA_BASE_ATOMIC_OP_H

#include <stdint.h>

enum srdma_atomic_kind {
	SRDMA_ATOMIC_COMPARE_SWAP = 1,
	SRDMA_ATOMIC_FETCH_ADD,
};

/* Operands, in the byte order of the CPU. */
struct srdma_atomic {
	uint8_t kind;	   /* enum srdma_atomic_kind; 0: no atomic */
	uint64_t swap_add; /* new value, or addend modulo 2^64 */
	uint64_t compare;  /* COMPARE_SWAP: value that must be found */
};

/* Returns the value that the atomic stores where it finds old. */
static inline uint64_t srdma_atomic_apply(const struct srdma_atomic *how,
					  uint64_t old)
{
	if (how->kind == SRDMA_ATOMIC_FETCH_ADD)
		return old + how->swap_add;
	return old == how->compare ? how->swap_add : old;
}

#endif
