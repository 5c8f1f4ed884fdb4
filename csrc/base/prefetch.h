/* Cache prefetch, so that several misses overlap. Prefetches are hints: any
 * address is allowed. */
#ifndef SRDMA_PREFETCH_H
#define SRDMA_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum {
	SRDMA_CACHE_LINE = 64,
	/* Bytes that one core fetches at once (16 lines). A core that
	 * prefetches more stalls until the first lines have arrived. */
	SRDMA_PREFETCH_FRONT = 1024,
};

/* Prefetches a line for writing, which also takes it from another core's cache.
 * On x86-64 this is assembly, because the builtin needs a target option that
 * would let the compiler use other instructions elsewhere. */
static inline void srdma_prefetch_line_write(char *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* Prefetches all lines of [at, at + len), len > 0; write 1: for writing. */
static inline void srdma_prefetch_lines(const void *at, size_t len, int write)
{
	const uintptr_t first = (uintptr_t)at / SRDMA_CACHE_LINE;
	const uintptr_t last = ((uintptr_t)at + len - 1) / SRDMA_CACHE_LINE;

	for (uintptr_t i = first; i <= last; i++) {
		char *line = (char *)(i * SRDMA_CACHE_LINE);

		if (write)
			srdma_prefetch_line_write(line);
		else
			__builtin_prefetch(line);
	}
}

/* For reading. */
static inline void srdma_prefetch(const void *at, size_t len)
{
	srdma_prefetch_lines(at, len, 0);
}

/* For data that is copied soon: the caller prefetches the front early and the
 * rest when the copy begins. */
static inline void srdma_prefetch_front(const void *at, size_t len, int write)
{
	srdma_prefetch_lines(
		at, len < SRDMA_PREFETCH_FRONT ? len : SRDMA_PREFETCH_FRONT,
		write);
}

static inline void srdma_prefetch_rest(const void *at, size_t len, int write)
{
	if (len > SRDMA_PREFETCH_FRONT)
		srdma_prefetch_lines((const char *)at + SRDMA_PREFETCH_FRONT,
				     len - SRDMA_PREFETCH_FRONT, write);
}

#endif
