/*
 * Statistics: one JSON object per line on stdout, with all counters by
 * their names (docs/protocol.md 13.2).
 */
#ifndef OFFLOAD_REPORT_H
#define OFFLOAD_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/stats.h"

enum { REPORT_MAX = 8192 };

struct report {
	const char *name; /* needs no quoting: options.c checks it */
	uint64_t uptime_ns;
	uint32_t qps;
	const struct srdma_stats *stats;
};

/* The line with its newline. Returns its length, or -EMSGSIZE. */
int report_format(char out[REPORT_MAX], const struct report *r);

/*
 * Standard output, on which the threads of a worker take turns, and what it has
 * not taken yet of a line that it began to take. Of this process and of those
 * that it forks.
 */
struct report_out;

/* NULL: out of memory, or of descriptors; errno tells. */
struct report_out *report_out_create(void);
/* NULL is allowed. */
void report_out_destroy(struct report_out *out);

/*
 * Write the line to stdout if it takes one now, after the rest of the one
 * before: a reader that is slow or gone loses lines, each as a whole, and never
 * stops the worker. Nor does another thread that hangs in its turn: that costs
 * each line 0.1 s.
 */
void report_print(const struct report *r, struct report_out *out);

#endif
