/*
 * One thread of the worker, which is a worker by itself: ports, relay and
 * control socket, opened, run and closed in its own process. Threads share
 * struct shared, and nothing that a packet passes.
 */
#ifndef OFFLOAD_WORKER_PROCESS_H
#define OFFLOAD_WORKER_PROCESS_H

#include "options.h"
#include "shared.h"
#include "worker.h"

struct worker_process {
	struct shared *shared;
	unsigned number;
	struct options o; /* its own (options_of_process) */
	int listener;	  /* stays the caller's */
	struct worker_params params;
	struct worker *worker;
};

/* On the core that it is pinned to. 0, or -errno, which is logged. */
int worker_process_open(struct worker_process *t);
void worker_process_close(struct worker_process *t);

#endif
