/*
 * Cores for threads (--pin): the first thread gets the first core, and so on.
 */
#ifndef OFFLOAD_PIN_H
#define OFFLOAD_PIN_H

#include <sched.h>
#include <stdint.h>

struct pin {
	unsigned cores; /* named; 0: threads are not pinned */
	uint16_t core[CPU_SETSIZE];
};

/* "0,2-5": numbers and ranges, each core once. 0 or -EINVAL. */
int pin_parse(struct pin *p, const char *text);

/* Keep the calling thread on the core. 0, or -errno, which is logged. */
int pin_thread(unsigned core);

#endif
