/*
 * One worker process: ports, relay and control socket, opened, run and closed
 * in its own process. Worker processes share struct shared, but nothing on the
 * data path.
 */
#ifndef OFFLOAD_THREAD_H
#define OFFLOAD_THREAD_H

#include "options.h"
#include "shared.h"
#include "worker.h"

struct thread {
	struct shared *shared;
	unsigned number;
	struct options o; /* of this worker process (options_of_thread) */
	int listener;	  /* listening control socket; the caller keeps
			     ownership */
	struct worker_params params;
	struct worker *worker;
};

/*
 * Open ports, relay and control socket in the calling process, on its core with
 * --pin. Returns 0, or -errno, which is logged.
 */
int thread_open(struct thread *t);
void thread_close(struct thread *t);

#endif
