/*
 * Statistics: one JSON object per line on stdout, with all counters by
 * their names (docs/protocol.md 13.2).
 */
#ifndef OFFLOAD_REPORT_H
#define OFFLOAD_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "stats.h"

enum { REPORT_MAX = 4096 }; /* PIPE_BUF: a line is written whole */

struct report {
	const char *name; /* needs no quoting: options.c checks it */
	uint64_t uptime_ns;
	uint32_t qps;
	const struct srdma_stats *stats;
};

/* The line with its newline. Returns its length, or -EMSGSIZE. */
int report_format(char out[REPORT_MAX], const struct report *r);

/*
 * Write the line to stdout if it takes one now: a reader that is slow or
 * gone loses lines, and never stops the worker.
 */
void report_print(const struct report *r);

#endif
