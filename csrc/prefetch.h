/* Memory that will be needed soon is asked for, so that the misses of many
 * packets come together. A hint: any address may be named. */
#ifndef SRDMA_PREFETCH_H
#define SRDMA_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum { SRDMA_CACHE_LINE = 64 };

static inline void srdma_prefetch(const void *at, size_t len)
{
	const uintptr_t first = (uintptr_t)at / SRDMA_CACHE_LINE;
	const uintptr_t last = ((uintptr_t)at + len - 1) / SRDMA_CACHE_LINE;

	for (uintptr_t line = first; line <= last; line++)
		__builtin_prefetch((const void *)(line * SRDMA_CACHE_LINE));
}

#endif
