/*
 * The process itself: kept out of core dumps and swap, and its state told
 * to the service manager.
 */
#ifndef OFFLOAD_PROCESS_H
#define OFFLOAD_PROCESS_H

#include <sys/types.h>

/* As many open files as the limit permits. */
void process_raise_files(void);

/* No core dump, no ptrace by others, memory locked where that is permitted. */
void process_harden(void);

/* The last of these, which a child does not inherit. */
void process_lock_memory(void);

/*
 * fork(2), whose child goes by the name (15 bytes) in ps and top, and is killed
 * when this process ends, however that ends. 0 in the child, its number, or
 * -1 with errno.
 */
pid_t process_fork(const char *name);

/*
 * Block the signals of the worker and return a non-blocking signalfd for
 * SIGTERM, SIGINT and SIGUSR1; SIGPIPE is ignored. Or -errno.
 */
int process_signals(void);

/* sd_notify(3): "READY=1", "STOPPING=1". Nothing without NOTIFY_SOCKET. */
void process_notify(const char *state);

#endif
