/*
 * Timers: which of many are due, at the cost of those that are. A binary heap,
 * the earliest first; each timer knows its place, so that it can be moved
 * and taken out. It has no clock.
 */
#ifndef SRDMA_TIMER_H
#define SRDMA_TIMER_H

#include <stdint.h>

struct srdma_timer {
	uint64_t when;
	struct srdma_timer *next; /* of those that srdma_timers_take() gives */
	uint32_t place;		  /* in the heap, from 1; 0: it is not set */
};

/* Times lie side by side: a timer itself is looked at only where it moves. */
struct srdma_timer_place {
	uint64_t when;
	struct srdma_timer *timer;
};

struct srdma_timers {
	struct srdma_timer_place *heap; /* the caller's: one for each timer */
	uint32_t count;
};

/* Ring at when at the latest: what is set stays if it is earlier. UINT64_MAX:
 * nothing is asked for. A timer that is all 0 is not set. */
void srdma_timer_wake(struct srdma_timers *t, struct srdma_timer *x,
		      uint64_t when);
/* It is not set any more, if it was. */
void srdma_timer_cancel(struct srdma_timers *t, struct srdma_timer *x);
/* When the first one rings; UINT64_MAX: none is set. */
uint64_t srdma_timers_first(const struct srdma_timers *t);
/* Take out all that are due, chained by next, the earliest first: each may be
 * set again at once, and is not due twice. */
struct srdma_timer *srdma_timers_take(struct srdma_timers *t, uint64_t now);

#endif
