/* Memory that will be needed soon is asked for, so that many misses come
 * together. A hint: any address may be named. */
#ifndef SRDMA_PREFETCH_H
#define SRDMA_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum {
	SRDMA_CACHE_LINE = 64,
	/* Bytes that a core waits for at once (16 lines): who asks for more is
	 * stopped until the first are there. */
	SRDMA_PREFETCH_FRONT = 1024,
};

/* The line, to be written: from another core that has it, too. x86-64 has no
 * builtin for that which does not change what the compiler may use elsewhere. */
static inline void srdma_prefetch_line_write(char *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

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

/* To be read. */
static inline void srdma_prefetch(const void *at, size_t len)
{
	srdma_prefetch_lines(at, len, 0);
}

/* What is copied soon: its front now, its rest when the copy begins. */
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
