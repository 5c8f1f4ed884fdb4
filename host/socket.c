#include "host/socket.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/passed_fds.h"
#include "host/error.h"

int64_t srdma_socket_deadline(int timeout_ms)
{
	struct timespec now;

	if (timeout_ms < 0)
		return INT64_MAX;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + timeout_ms;
}

int srdma_socket_late(int64_t deadline)
{
	return srdma_socket_deadline(0) > deadline;
}

int srdma_socket_wait(int fd, short events, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };
	int64_t left = -1;
	int r;

	if (deadline != INT64_MAX) {
		left = deadline - srdma_socket_deadline(0);
		left = left < 0 ? 0 : left > INT_MAX ? INT_MAX : left;
	}
	r = poll(&p, 1, (int)left);
	if (r < 0)
		return -errno;
	return r ? 0 : -ETIMEDOUT;
}

/* --- connecting ---------------------------------------------------------- */

static int connect_error(const struct srdma_socket_peer *p, int err)
{
	switch (err) {
	case ENOENT:
		return srdma_error_set(-err, "no %s at %s: start one: %s",
				       p->what, p->path, p->start);
	case ECONNREFUSED:
		return srdma_error_set(-err,
				       "the %s at %s has ended: "
				       "start it: %s",
				       p->what, p->path, p->start);
	case EACCES:
		return srdma_error_set(-err,
				       "%s belongs to another user: "
				       "use your own %s%s",
				       p->path, p->what,
				       p->trust ? p->trust : "");
	case EPROTOTYPE:
	case ENOTSOCK:
		return srdma_error_set(-EPROTOTYPE,
				       "%s is not the socket of "
				       "a %s: give another path",
				       p->path, p->what);
	case EAGAIN: /* the backlog stayed full until the time limit */
		return srdma_error_set(-ETIMEDOUT,
				       "the %s at %s accepts no "
				       "connection: restart it",
				       p->what, p->path);
	}
	return srdma_error_set(-err, "%s: %s", p->path, strerror(err));
}

/* The process gets memory and secrets: it must be of this user or root. */
static int check_user(int fd, const struct srdma_socket_peer *p)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	uid_t own = geteuid();

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return connect_error(p, errno);
	if (own == 0 || peer.uid == 0 || peer.uid == own ||
	    peer.uid == p->trusted)
		return 0;
	return srdma_error_set(-EPERM,
			       "%s: the %s is of user %u, this process "
			       "is of user %u: use a %s of this user or of "
			       "root%s",
			       p->path, p->what, peer.uid, own, p->what,
			       p->trust ? p->trust : "");
}

int srdma_socket_connect(const struct srdma_socket_peer *peer, int timeout_ms)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	/* connect() of a Unix socket obeys the time limit of send() */
	struct timeval limit = { .tv_sec = timeout_ms / 1000,
				 .tv_usec = timeout_ms % 1000 * 1000 };
	int r, fd;

	if (strlen(peer->path) >= sizeof(name.sun_path))
		return srdma_error_set(-ENAMETOOLONG,
				       "%.200s: the path of a "
				       "socket has at most %zu bytes",
				       peer->path, sizeof(name.sun_path) - 1);
	strcpy(name.sun_path, peer->path);
	/* a zero time limit would be no limit */
	fd = socket(AF_UNIX,
		    peer->type | SOCK_CLOEXEC |
			    (timeout_ms ? 0 : SOCK_NONBLOCK),
		    0);
	if (fd < 0)
		return connect_error(peer, errno);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)))
		r = connect_error(peer, errno);
	else
		r = check_user(fd, peer);
	if (!r)
		return fd;
	close(fd);
	return r;
}

/* --- messages ------------------------------------------------------------ */

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(SRDMA_SOCKET_FDS * sizeof(int))];
};

void srdma_socket_close_fds(struct srdma_socket_fds *fds)
{
	while (fds->n > 0)
		close(fds->fd[--fds->n]);
}

int srdma_socket_send(int fd, const void *data, size_t len,
		      const struct srdma_socket_fds *fds, int64_t deadline)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)data,
			   .iov_len = len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	union control c;
	ssize_t n;
	int r;

	if (fds && fds->n) {
		m.msg_control = &c;
		srdma_passed_fds_attach(&m, fds->fd, fds->n);
	}
	for (;;) {
		n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0)
			return (int)n;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		r = srdma_socket_wait(fd, POLLOUT, deadline);
		if (r && r != -EINTR)
			return r;
	}
}

static void close_fd(int fd)
{
	close(fd);
}

int srdma_socket_receive(int fd, void *data, size_t len,
			 struct srdma_socket_fds *fds, int64_t deadline)
{
	struct iovec v = { .iov_base = data, .iov_len = len };
	union control c;
	ssize_t n;
	int r;

	fds->n = 0;
	for (;;) {
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_control = &c,
				    .msg_controllen = sizeof(c) };

		n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n >= 0) {
			r = srdma_passed_fds_take(&m, fds->fd, SRDMA_SOCKET_FDS,
						  close_fd);
			fds->n = r < 0 ? 0 : (unsigned)r;
			return (int)n;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		r = srdma_socket_wait(fd, POLLIN, deadline);
		if (r)
			return r;
	}
}
