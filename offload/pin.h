/*
 * Cores for worker processes (--pin): worker process i runs on the i-th core.
 */
#ifndef OFFLOAD_PIN_H
#define OFFLOAD_PIN_H

#include <sched.h>
#include <stdint.h>

struct pin {
	unsigned cores; /* number of cores in the list; 0: not pinned */
	uint16_t core[CPU_SETSIZE];
};

/* Parse "0,2-5": numbers and ranges, each core once. Returns 0 or -EINVAL. */
int pin_parse(struct pin *p, const char *text);

/*
 * Pin the calling process to the core. Returns 0, or -errno, which is logged.
 */
int pin_thread(unsigned core);

#endif
