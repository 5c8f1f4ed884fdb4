/*
 * State of a worker that is created once, before its worker processes are
 * forked. Each process has a copy of the memory, except for *report, which is
 * shared; the descriptors refer to the same open file descriptions.
 */
#ifndef OFFLOAD_SHARED_H
#define OFFLOAD_SHARED_H

#include <stdint.h>

#include "relay/ctl.h"
#include "options.h"
#include "crypto/provider.h"
#include "report.h"
#include "broadcast.h"

struct shared {
	int signals; /* signalfd; worker process 0 reads it */
	int ended;   /* epoll, readable when another worker process has ended */
	struct broadcast words;
	struct report_out *report;
	struct srdma_provider *provider;      /* NULL: OpenSSL */
	uint8_t suites[SRDMA_CTL_SUITES_LEN]; /* order of preference, for
						 HELLO */
};

/* Returns 0, or -errno, which is logged; nothing needs to be closed then. */
int shared_open(struct shared *s, const struct options *o);
void shared_close(struct shared *s);

#endif
