/*
 * The threads of a worker: started in order, ready when all are, ended
 * together.
 */
#ifndef OFFLOAD_CREW_H
#define OFFLOAD_CREW_H

#include "options.h"

/*
 * Run until a signal, or the end of any thread. The caller's thread is thread
 * 0. 0, or -errno, which is logged; nothing stays behind.
 */
int crew_run(const struct options *o);

#endif
