/*
 * What the threads of a worker share: made once, before there is more than
 * one. Each thread is a process (crew.h): what lies in memory is a copy of its
 * own from then on, but for the turns on standard output; descriptors lead to
 * the same.
 */
#ifndef OFFLOAD_SHARED_H
#define OFFLOAD_SHARED_H

#include <stdint.h>

#include "ctl.h"
#include "options.h"
#include "crypto/provider.h"
#include "report.h"
#include "broadcast.h"

struct shared {
	int signals; /* signalfd; thread 0 reads it */
	int ended;   /* epoll, readable when a thread but 0 has ended */
	struct broadcast words;
	struct report_out *report;
	struct srdma_provider *provider;      /* NULL: OpenSSL */
	uint8_t suites[SRDMA_CTL_SUITES_LEN]; /* measured, for HELLO */
};

/* 0, or -errno, which is logged: there is nothing to close then. */
int shared_open(struct shared *s, const struct options *o);
void shared_close(struct shared *s);

#endif
