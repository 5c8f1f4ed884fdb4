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

/*
 * Prefetches a line for reading. For writing: also takes it from another core's
 * cache. Assembly is used where the builtin does not work: on x86-64 it needs a
 * target option that would let the compiler use other instructions elsewhere,
 * and for aarch64 gcc 12 deletes the calls of functions that only prefetch.
 */
#if defined(__aarch64__)
static inline void srdma_prefetch_line(const char *line)
{
	__asm__ volatile("prfm pldl1keep, %0" : : "Q"(*line));
}

static inline void srdma_prefetch_line_write(const char *line)
{
	__asm__ volatile("prfm pstl1keep, %0" : : "Q"(*line));
}
#elif defined(__x86_64__)
static inline void srdma_prefetch_line(const char *line)
{
	__builtin_prefetch(line);
}

static inline void srdma_prefetch_line_write(const char *line)
{
	__asm__ volatile("prefetchw %0" : : "m"(*line));
}
#else
static inline void srdma_prefetch_line(const char *line)
{
	__builtin_prefetch(line);
}

static inline void srdma_prefetch_line_write(const char *line)
{
	__builtin_prefetch(line, 1);
}
#endif

/* Prefetches all lines of [at, at + len), len > 0; write 1: for writing. */
static inline void srdma_prefetch_lines(const void *at, size_t len, int write)
{
	const uintptr_t within = (uintptr_t)at % SRDMA_CACHE_LINE;
	char *line = (char *)(uintptr_t)at - within;

	for (char *const end = line + within + len; line < end;
	     line += SRDMA_CACHE_LINE) {
		if (write)
			srdma_prefetch_line_write(line);
		else
			srdma_prefetch_line(line);
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
