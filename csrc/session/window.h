/*
 * Inference of serial numbers from 24 bits, and the replay window of
 * packet numbers (docs/protocol.md 4.1). Nothing here knows of keys: the
 * caller commits a number only after its packet's tag verified.
 */
#ifndef SRDMA_WINDOW_H
#define SRDMA_WINDOW_H

#include <stdint.h>

enum { SRDMA_WINDOW_MAX = 1024, SRDMA_WINDOW_WORDS = 32 };

/* First number that is none: packet numbers and request ids have 62 bits. */
#define SRDMA_NUMBER_END ((uint64_t)1 << 62)

struct srdma_window {
	uint64_t next;			   /* highest verified + 1 */
	uint32_t size;			   /* numbers */
	uint64_t seen[SRDMA_WINDOW_WORDS]; /* ring of bits, by number */
};

/*
 * The one candidate c with c mod 2^24 = low, nearest to expected, at most
 * 2^23 above it. Returns 0, or -ERANGE if that is no number of 62 bits.
 */
int srdma_window_infer(uint64_t *c, uint64_t expected, uint32_t low);

/* first: the number before which none was sent; size: 64 or 1024. */
void srdma_window_init(struct srdma_window *w, uint64_t first, uint32_t size);

/* 0, or -ESTALE: too old, or seen. Changes nothing. */
int srdma_window_test(const struct srdma_window *w, uint64_t pn);

/* Mark a verified number that passed the test, and move if it is highest. */
void srdma_window_commit(struct srdma_window *w, uint64_t pn);

#endif
