/*
 * Inference of full serial numbers from their low 24 bits, and the replay
 * window of packet numbers (docs/protocol.md 4.1). The caller commits a number
 * only after the packet's tag was verified.
 */
#ifndef SRDMA_WINDOW_H
#define SRDMA_WINDOW_H

#include <stdint.h>

enum { SRDMA_WINDOW_MAX = 1024, SRDMA_WINDOW_WORDS = 32 };

/* End of the range of packet numbers and request ids: they have 62 bits. */
#define SRDMA_NUMBER_END ((uint64_t)1 << 62)

struct srdma_window {
	uint64_t next;			   /* highest verified number + 1 */
	uint32_t size;			   /* in packet numbers */
	uint64_t seen[SRDMA_WINDOW_WORDS]; /* circular bitmap by number */
};

/*
 * Finds the number c with c mod 2^24 = low that is nearest to expected; a tie
 * goes to the number above. Returns 0, or -ERANGE if no such number lies
 * between expected - 2^23 and expected + 2^23 and below 2^62.
 */
int srdma_window_infer(uint64_t *c, uint64_t expected, uint32_t low);

/* first: first packet number of the direction; size: 64 or 1024 numbers. */
void srdma_window_init(struct srdma_window *w, uint64_t first, uint32_t size);

/* Returns 0, or -ESTALE if pn was seen or is before the window. Changes
 * nothing. */
int srdma_window_test(const struct srdma_window *w, uint64_t pn);

/* Marks a verified number that passed the test. The window moves if the number
 * is the highest. */
void srdma_window_commit(struct srdma_window *w, uint64_t pn);

#endif
