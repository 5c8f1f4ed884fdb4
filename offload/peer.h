/*
 * The process at the other end of a Unix socket: it may end at any time, and
 * its number may then be another's.
 */
#ifndef OFFLOAD_PEER_H
#define OFFLOAD_PEER_H

/* The caller closes it. -1 with errno; ESRCH: it has ended, and its parent
 * knows. For a client: of the process that listened. */
int peer_pidfd(int fd);

/* Has it ended? Its parent may not know yet. */
int peer_ended(int pidfd);

#endif
