/*
 * Random numbers: uniform words, and ranks with Zipf's distribution as in YCSB
 * (Gray et al., SIGMOD 1994): rank r, counted from 0, has a probability
 * proportional to (r + 1)^-theta.
 */
#ifndef KVS_ZIPF_H
#define KVS_ZIPF_H

#include <stdint.h>

/* The next word of the sequence of *state (SplitMix64). */
uint64_t kvs_dice(uint64_t *state);
/* Uniform in [0, n). */
uint64_t kvs_dice_below(uint64_t *state, uint64_t n);

struct kvs_zipf {
	uint64_t n;
	double theta, zeta, alpha, eta, second;
};

/* n ranks; 0 <= theta < 1, 0: uniform. Returns 0 or -EINVAL. */
int kvs_zipf_init(struct kvs_zipf *zipf, uint64_t n, double theta);
/* A rank from 0 to n - 1; dice is the state of kvs_dice(). */
uint64_t kvs_zipf_draw(const struct kvs_zipf *zipf, uint64_t *dice);

#endif
