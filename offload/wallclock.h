/* The wall clock, against which capabilities expire (protocol.md 6.1). */
#ifndef OFFLOAD_WALLCLOCK_H
#define OFFLOAD_WALLCLOCK_H

#include <stdint.h>

/*
 * 2026-01-01. A clock before this version was written was never set: it starts
 * in 1970 on a machine without a battery.
 */
#define WALLCLOCK_LEAST 1767225600

/*
 * Unix time for srdma_relay_clock(). UINT32_MAX: `seconds` of CLOCK_REALTIME
 * are implausible, so that all capabilities with an expiry count as expired.
 */
uint32_t wallclock_seconds(int64_t seconds);

#endif
