/*
 * Dice: words, and ranks by Zipf's law as YCSB throws them (Gray et al.,
 * SIGMOD 1994): rank r from 0 on comes with a probability of (r + 1)^-theta,
 * scaled so that all are 1.
 */
#ifndef KVS_ZIPF_H
#define KVS_ZIPF_H

#include <stdint.h>

/* The next word of the sequence that a state begins (SplitMix64). */
uint64_t kvs_dice(uint64_t *state);
/* From 0 to below n. */
uint64_t kvs_dice_below(uint64_t *state, uint64_t n);

struct kvs_zipf {
	uint64_t n;
	double theta, zeta, alpha, eta, second;
};

/* n ranks; 0 <= theta < 1, 0: all alike. 0 or -EINVAL. */
int kvs_zipf_init(struct kvs_zipf *zipf, uint64_t n, double theta);
uint64_t kvs_zipf_draw(const struct kvs_zipf *zipf, uint64_t *dice);

#endif
