/*
 * The process itself: kept out of core dumps and swap, and its state told
 * to the service manager.
 */
#ifndef OFFLOAD_PROCESS_H
#define OFFLOAD_PROCESS_H

/* As many open files as the limit permits. */
void process_raise_files(void);

/* No core dump, no ptrace by others, memory locked where that is permitted. */
void process_harden(void);

/*
 * Block the signals of the worker and return a non-blocking signalfd for
 * SIGTERM, SIGINT and SIGUSR1; SIGPIPE is ignored. Or -errno.
 */
int process_signals(void);

/* sd_notify(3): "READY=1", "STOPPING=1". Nothing without NOTIFY_SOCKET. */
void process_notify(const char *state);

#endif
