/*
 * The threads of a worker: started in order, ready when all are, ended
 * together. Thread 0 is this process, each other one a child of it, for
 * libraries of ciphers have words that all threads of a process write
 * (docs/performance.md, Threads).
 */
#ifndef OFFLOAD_SUPERVISOR_H
#define OFFLOAD_SUPERVISOR_H

#include "options.h"

/*
 * Run until a signal, or the end of any thread, however it ends. 0, or
 * -errno, which is logged; nothing stays behind. A child does not return.
 */
int supervisor_run(const struct options *o);

#endif
