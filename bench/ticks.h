/*
 * The unit of a run of the ladder: time, or instructions of an emulated CPU.
 */
#ifndef BENCH_TICKS_H
#define BENCH_TICKS_H

#include <stdint.h>

/*
 * A counter that only grows: cycles of the time-stamp counter if there is one,
 * else nanoseconds; instructions after ticks_count_instructions().
 */
uint64_t ticks(void);

/*
 * From now on ticks() counts the instructions of this program, in the file of
 * the QEMU plugin bench/arm64/count.c. Returns 0 or -errno.
 */
int ticks_count_instructions(const char *path);

/* The unit of results: "ns" or "instructions". */
const char *ticks_unit(void);

/* Units per tick. For time, this is measured for 20 ms. */
double ticks_to_unit(void);

#endif
