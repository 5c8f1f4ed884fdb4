/*
 * Statistics: one JSON object per line on stdout, with all counters by name
 * (docs/protocol.md 13.2).
 */
#ifndef OFFLOAD_REPORT_H
#define OFFLOAD_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/stats.h"

enum { REPORT_MAX = 8192 };

struct report {
	const char *name; /* needs no JSON escaping: options.c checks it */
	uint64_t uptime_ns;
	uint32_t qps;
	const struct srdma_stats *stats;
};

/* Format the line including its newline. Returns its length, or -EMSGSIZE. */
int report_format(char out[REPORT_MAX], const struct report *r);

/*
 * Standard output, shared by the worker processes of a worker through a lock,
 * with the rest of a partially written line. Lies in memory shared with forked
 * processes.
 */
struct report_out;

/* NULL with errno: out of memory or file descriptors. */
struct report_out *report_out_create(void);
/* out may be NULL. */
void report_out_destroy(struct report_out *out);

/*
 * Write the line to stdout if stdout accepts it now, after the rest of the
 * previous line. If the reader is slow or gone, whole lines are dropped; the
 * worker never blocks. A worker process that hangs while it holds the lock
 * delays each line of the others by 0.1 s.
 */
void report_print(const struct report *r, struct report_out *out);

#endif
