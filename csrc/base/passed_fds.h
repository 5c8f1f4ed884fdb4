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
 * recvmsg() of a message of a SOCK_SEQPACKET socket, whose msg_control has room
 * for SRDMA_PASSED_FDS_MOST descriptors. The kernel closes files for which no
 * descriptor is free, in this thread, and a close may block. So this looks at the
 * message, and removes it when all its files are open here. It does not block.
 * Returns the number of bytes, and srdma_passed_fds_take() is to be called; or
 * -errno: -EAGAIN: there is no message; -EMFILE: too many files are open for those
 * of the message, which stays in the socket. Files that were opened are closed by
 * close_fd then.
 */
ssize_t srdma_passed_fds_receive(int fd, struct msghdr *msg,
				 void (*close_fd)(int fd));

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
