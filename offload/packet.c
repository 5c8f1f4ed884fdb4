#include "packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "closer.h"

enum { FDS_PER_MESSAGE = 253 }; /* SCM_MAX_FD of the kernel */

int packet_send(int fd, const uint8_t *data, size_t len,
		const int fds[REQUESTS_ANSWER_FDS])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * REQUESTS_ANSWER_FDS)];
	} space = { .bytes = { 0 } };
	struct iovec iov = { .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int n = 0;

	memcpy(&iov.iov_base, &data, sizeof(data)); /* casts const away;
						       sendmsg only reads */
	while (n < REQUESTS_ANSWER_FDS && fds[n] >= 0)
		n++;
	if (n > 0) {
		size_t size = sizeof(int) * (size_t)n;

		msg.msg_control = space.bytes;
		msg.msg_controllen = CMSG_SPACE(size);
		space.align.cmsg_level = SOL_SOCKET;
		space.align.cmsg_type = SCM_RIGHTS;
		space.align.cmsg_len = CMSG_LEN(size);
		memcpy(CMSG_DATA(&space.align), fds, size);
	}
	while (sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* take_fds() closed the descriptors that had no room in the message. */
void packet_close_fds(struct message *m)
{
	for (unsigned i = 0; i < m->nfds && i < REQUESTS_MAX_FDS; i++)
		closer_close(m->fds[i]);
	m->nfds = 0;
}

static void take_fds(struct message *m, struct msghdr *msg)
{
	m->nfds = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int),
			       sizeof(int));
			if (m->nfds < REQUESTS_MAX_FDS)
				m->fds[m->nfds] = fd;
			else
				closer_close(fd);
			m->nfds++;
		}
	}
}

int packet_receive(int fd, struct message *m)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FDS_PER_MESSAGE)];
	} space;
	struct iovec iov = { m->data, sizeof(m->data) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space.bytes,
		.msg_controllen = sizeof(space.bytes),
	};
	ssize_t n;

	do {
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	m->len = (size_t)n;
	take_fds(m, &msg);
	if (n == 0) {
		packet_close_fds(m);
		return -ECONNRESET;
	}
	if (msg.msg_flags & MSG_CTRUNC || m->nfds > REQUESTS_MAX_FDS) {
		packet_close_fds(m);
		m->nfds = REQUESTS_MAX_FDS + 1;
	}
	return 1;
}
