/*
 * One worker process: ports, relay and control socket, opened, run and closed
 * in its own process. Worker processes share struct shared, but nothing on the
 * data path.
 */
#ifndef OFFLOAD_WORKER_PROCESS_H
#define OFFLOAD_WORKER_PROCESS_H

#include "options.h"
#include "shared.h"
#include "worker.h"

struct worker_process {
	struct shared *shared;
	unsigned number;
	struct options o; /* of this worker process (options_of_process) */
	int listener;	  /* listening control socket; the caller keeps
			     ownership */
	struct worker_params params;
	struct worker *worker;
};

/*
 * Open ports, relay and control socket in the calling process, on its core with
 * --pin. Returns 0, or -errno, which is logged.
 */
int worker_process_open(struct worker_process *t);
void worker_process_close(struct worker_process *t);

#endif
