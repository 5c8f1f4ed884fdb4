/*
 * Fast mixing of words, sufficient for hash tables and random draws. Not for
 * secrets.
 */
#ifndef KVS_MIX_H
#define KVS_MIX_H

#include <stdint.h>

/* Mix two words into one by folding a 128-bit product. */
static inline uint64_t kvs_mix(uint64_t a, uint64_t b)
{
	const unsigned __int128 p =
		(unsigned __int128)(a ^ 0x9e3779b97f4a7c15) *
		(b ^ 0xe7037ed1a0b428db);

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Bijective mixing of a word (the finalizer of SplitMix64). */
static inline uint64_t kvs_scramble(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

#endif
