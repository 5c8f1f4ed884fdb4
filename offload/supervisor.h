/*
 * Supervisor of the worker processes of one worker: starts them in order,
 * reports ready when all are, and ends them together. Worker process 0 is this
 * process; the others are its children. They are processes because
 * cryptographic libraries have variables that all threads of a process write
 * (docs/performance.md, Worker processes).
 */
#ifndef OFFLOAD_SUPERVISOR_H
#define OFFLOAD_SUPERVISOR_H

#include "options.h"

/*
 * Run until a signal or until any worker process ends. Returns 0 or -errno,
 * which is logged; all processes and resources are gone then. Does not return
 * in a child.
 */
int supervisor_run(const struct options *o);

#endif
