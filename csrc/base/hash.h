/*
 * Buckets of hash tables with random keys. QPNs are random, but those
 * of one worker process have the same remainder (docs/local-interface.md 6), so
 * their low bits alone would leave buckets empty.
 */
#ifndef SRDMA_HASH_H
#define SRDMA_HASH_H

#include <stdint.h>

/*
 * Fibonacci hashing. mask: number of buckets - 1, a power of two less 1, below
 * 2^21.
 */
static inline uint32_t srdma_hash_bucket(uint32_t number, uint32_t mask)
{
	return number * 0x9e3779b1 >> 11 & mask;
}

#endif
