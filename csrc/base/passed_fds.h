/*
 * File descriptors that a message of a Unix socket carries (SCM_RIGHTS,
 * unix(7)).
 */
#ifndef SRDMA_PASSED_FDS_H
#define SRDMA_PASSED_FDS_H

#include <sys/socket.h>

/* Descriptors that one message can carry: SCM_MAX_FD of the kernel. */
enum { SRDMA_PASSED_FDS_MOST = 253 };

/*
 * Takes the descriptors of a message that recvmsg() received. *fds has `room`
 * elements. The caller owns the descriptors and closes them.
 * Returns how many there were; -EMSGSIZE: more than `room` came, or the kernel
 * had no room for all of them (MSG_CTRUNC). Then all are closed by close_fd.
 */
int srdma_passed_fds_take(struct msghdr *msg, int *fds, unsigned room,
			  void (*close_fd)(int fd));

/*
 * Puts n descriptors, at least 1, into a message for sendmsg(). msg_control is
 * a buffer of CMSG_SPACE(n * sizeof(int)) bytes or more. The caller keeps the
 * descriptors.
 */
void srdma_passed_fds_attach(struct msghdr *msg, const int *fds, unsigned n);

#endif
