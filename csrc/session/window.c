#include "session/window.h"

#include <errno.h>
#include <string.h>

enum { WORD_BITS = 64 };

/*
 * Circular bitmap as in RFC 6479. The oldest and the newest word of the window
 * may lie only partly in it, so the bitmap has at least one word more than the
 * window. A power of two makes the index a mask.
 */
_Static_assert(SRDMA_WINDOW_WORDS > SRDMA_WINDOW_MAX / WORD_BITS, "ring");
_Static_assert((SRDMA_WINDOW_WORDS & (SRDMA_WINDOW_WORDS - 1)) == 0, "mask");

/* RFC 5042 X3 */
int srdma_window_infer(uint64_t *c, uint64_t expected, uint32_t low)
{
	const uint64_t cycle = (uint64_t)1 << 24, half = cycle / 2;
	uint64_t n = (expected & ~(cycle - 1)) | (low & (cycle - 1));

	if (n + half <= expected)
		n += cycle;
	else if (n > expected + half && n >= cycle)
		n -= cycle;
	if (n > expected + half || n >= SRDMA_NUMBER_END)
		return -ERANGE;
	*c = n;
	return 0;
}

void srdma_window_init(struct srdma_window *w, uint64_t first, uint32_t size)
{
	memset(w, 0, sizeof(*w));
	w->next = first;
	w->size = size;
}

static uint64_t bit(uint64_t pn)
{
	return (uint64_t)1 << (pn % WORD_BITS);
}

static unsigned word(uint64_t pn)
{
	return (unsigned)(pn / WORD_BITS) & (SRDMA_WINDOW_WORDS - 1);
}

/* RFC 5042 A5.4.1 */
int srdma_window_test(const struct srdma_window *w, uint64_t pn)
{
	if (pn >= w->next)
		return 0;
	/* pn + size <= highest */
	if (pn + w->size < w->next)
		return -ESTALE;
	return w->seen[word(pn)] & bit(pn) ? -ESTALE : 0;
}

void srdma_window_commit(struct srdma_window *w, uint64_t pn)
{
	if (pn >= w->next) {
		/* Clear the words between the old highest number and pn. */
		uint64_t steps = pn / WORD_BITS;

		steps -= w->next ? (w->next - 1) / WORD_BITS : 0;
		if (steps > SRDMA_WINDOW_WORDS)
			steps = SRDMA_WINDOW_WORDS;
		for (; steps; steps--)
			w->seen[word(pn - (steps - 1) * WORD_BITS)] = 0;
		w->next = pn + 1;
	}
	w->seen[word(pn)] |= bit(pn);
}
