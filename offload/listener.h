/*
 * The listening control socket: bound once per path, replaced when its
 * worker is dead.
 */
#ifndef OFFLOAD_LISTENER_H
#define OFFLOAD_LISTENER_H

/*
 * Listen on path (SOCK_SEQPACKET, mode 0600, non-blocking); its folder is
 * made with mode 0700 where it is missing. Returns the descriptor or
 * -errno, -EADDRINUSE if a worker is running on path. Failures are logged.
 */
int listener_open(const char *path);

/* Close and unlink. */
void listener_close(int fd, const char *path);

#endif
