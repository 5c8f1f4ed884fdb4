/* Units of time. All times and durations of the data plane are nanoseconds. */
#ifndef SRDMA_BASE_TIME_H
#define SRDMA_BASE_TIME_H

#include <stdint.h>

#define SRDMA_MS     UINT64_C(1000000)	  /* ns per millisecond */
#define SRDMA_SECOND UINT64_C(1000000000) /* ns per second */
#define SRDMA_NEVER  UINT64_MAX		  /* a time that does not come */

static inline uint64_t srdma_time_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t srdma_time_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
