/*
 * Threads for what may block without a limit, so that the worker's own thread
 * does not.
 */
#ifndef OFFLOAD_THREAD_H
#define OFFLOAD_THREAD_H

/*
 * Run run(arg) in a detached thread, with a small stack and the
 * caller's signal mask. Returns 0 or -errno.
 */
int thread_start(void *(*run)(void *), void *arg);

#endif
