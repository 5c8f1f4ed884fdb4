/*
 * Mixing of words: fast, and good enough for tables and dice. No secret
 * depends on it.
 */
#ifndef KVS_MIX_H
#define KVS_MIX_H

#include <stdint.h>

/* Two words to one, by the halves of a wide product. */
static inline uint64_t kvs_mix(uint64_t a, uint64_t b)
{
	const unsigned __int128 p =
		(unsigned __int128)(a ^ 0x9e3779b97f4a7c15) *
		(b ^ 0xe7037ed1a0b428db);

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* One to one (the finalizer of SplitMix64): no two words give the same. */
static inline uint64_t kvs_scramble(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

#endif
