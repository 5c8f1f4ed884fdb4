/*
 * One thread of the worker, which is a worker by itself: provider, ports,
 * relay and control socket, opened, run and closed in that thread. Threads
 * share struct thread_shared, and nothing that a packet passes.
 */
#ifndef OFFLOAD_THREAD_H
#define OFFLOAD_THREAD_H

#include <stdint.h>

#include "options.h"
#include "worker.h"

struct thread_shared {
	int signals; /* signalfd, read by thread 0 */
	struct words words;
	struct report_out report;
	uint8_t suites[SRDMA_CTL_SUITES_LEN]; /* measured before HELLO tells */
};

struct thread {
	struct thread_shared *shared;
	unsigned number;
	struct options o; /* its own (options_of_thread) */
	int listener;	  /* stays the caller's */
	struct worker_params worker;
};

/* On the core that it is pinned to. 0, or -errno, which is logged. */
int thread_open(struct thread *t);
void thread_close(struct thread *t);

#endif
