/* Clocks in nanoseconds. */
#ifndef KVS_CLOCK_H
#define KVS_CLOCK_H

#include <stdint.h>
#include <time.h>

/*
 * clock: CLOCK_MONOTONIC, or the CPU time clock of a process or thread that is
 * readable; no error is reported.
 */
static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

#endif
