/*
 * The listening control socket: one per path; the socket of a dead worker is
 * replaced.
 */
#ifndef OFFLOAD_LISTENER_H
#define OFFLOAD_LISTENER_H

#include <sys/types.h>

/*
 * Listen on path (SOCK_SEQPACKET, non-blocking) with this mode. A missing
 * directory is created with mode 0700. Returns the descriptor, or -errno, which is
 * logged; -EADDRINUSE if a worker is running on path.
 */
int listener_open(const char *path, mode_t mode);

/* Unlink path and close fd. */
void listener_close(int fd, const char *path);

#endif
