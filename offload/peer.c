#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

/* Without SO_PEERPIDFD, the pid may be reused between the two system calls. */
int peer_pidfd(int fd)
{
	int pidfd;
	struct ucred peer;
	socklen_t len = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
		return pidfd;
	if (errno == EINVAL) /* kernels before 6.16: the peer was reaped */
		errno = ESRCH;
	len = sizeof(peer);
	if (errno != ENOPROTOOPT ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

int peer_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}
