/*
 * Timers in a binary heap, earliest first. Each timer stores its index in the
 * heap, so that it can be moved or removed in O(log n). The heap has no clock:
 * the caller passes the time. All times have one unit, chosen by the caller
 * (the relay: ns).
 */
#ifndef SRDMA_TIMER_H
#define SRDMA_TIMER_H

#include <stdint.h>

struct srdma_timer {
	uint64_t when;
	struct srdma_timer *next; /* next in the list of srdma_timers_take() */
	uint32_t place;		  /* index in the heap, from 1; 0: not set */
};

/* A heap entry holds a copy of the time, so that comparisons do not touch the
 * timers themselves. */
struct srdma_timer_place {
	uint64_t when;
	struct srdma_timer *timer;
};

struct srdma_timers {
	/* allocated by the caller, one entry per timer */
	struct srdma_timer_place *heap;
	uint32_t count;
};

/*
 * Makes x expire at `when` or earlier: a timer that is set to an earlier time
 * keeps it. UINT64_MAX changes nothing. A timer of all zero bytes is not set.
 */
void srdma_timer_wake(struct srdma_timers *t, struct srdma_timer *x,
		      uint64_t when);
/* Does nothing if x is not set. */
void srdma_timer_cancel(struct srdma_timers *t, struct srdma_timer *x);
/* Time of the earliest timer; UINT64_MAX if none is set. */
uint64_t srdma_timers_first(const struct srdma_timers *t);
/*
 * Removes all timers with a time <= now and returns them linked by next, the
 * earliest first; NULL if none. Each may be set again while the list is read.
 */
struct srdma_timer *srdma_timers_take(struct srdma_timers *t, uint64_t now);

#endif
