/*
 * Properties of the process: no core dumps, locked memory, signals, and its
 * state reported to the service manager.
 */
#ifndef OFFLOAD_PROCESS_H
#define OFFLOAD_PROCESS_H

#include <sys/types.h>

/* Raise the limit of open files to the hard limit. */
void process_raise_files(void);

/*
 * Disable core dumps and ptrace by unprivileged processes; lock memory where
 * that is permitted.
 */
void process_harden(void);

/*
 * The memory locking part of process_harden(), which a child does not inherit.
 */
void process_lock_memory(void);

/*
 * fork(2). The child is named name (at most 15 bytes) in ps and top, and is
 * killed when this process ends for any reason. Returns 0 in the child, its pid
 * in the parent, or -1 with errno.
 */
pid_t process_fork(const char *name);

/*
 * Block SIGTERM, SIGINT and SIGUSR1, ignore SIGPIPE, and return a non-blocking
 * signalfd for the three, or -errno.
 */
int process_signals(void);

/* sd_notify(3): "READY=1", "STOPPING=1". Does nothing without NOTIFY_SOCKET. */
void process_notify(const char *state);

#endif
