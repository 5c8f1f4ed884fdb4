/*
 * One thread of the worker, which is a worker by itself: ports, relay and
 * control socket, opened, run and closed in its own process. Threads share
 * struct shared, and nothing that a packet passes.
 */
#ifndef OFFLOAD_THREAD_H
#define OFFLOAD_THREAD_H

#include "options.h"
#include "shared.h"
#include "worker.h"

struct thread {
	struct shared *shared;
	unsigned number;
	struct options o; /* its own (options_of_thread) */
	int listener;	  /* stays the caller's */
	struct worker_params params;
	struct worker *worker;
};

/* On the core that it is pinned to. 0, or -errno, which is logged. */
int thread_open(struct thread *t);
void thread_close(struct thread *t);

#endif
