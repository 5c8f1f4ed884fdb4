/*
 * The process at the other end of a Unix socket. It may end at any time, and
 * its pid may then be reused.
 */
#ifndef OFFLOAD_PEER_H
#define OFFLOAD_PEER_H

/*
 * Returns a pidfd, which the caller closes, of the process that connected or,
 * on a client's socket, of the process that listens. -1 with errno on failure;
 * ESRCH: the process has ended and was reaped.
 */
int peer_pidfd(int fd);

/* 1 if the process has ended, even if it was not reaped yet. */
int peer_ended(int pidfd);

#endif
