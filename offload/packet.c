#include "packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/passed_fds.h"
#include "closer.h"

int packet_send(int fd, const uint8_t *data, size_t len,
		const int fds[REQUESTS_ANSWER_FDS])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * REQUESTS_ANSWER_FDS)];
	} space;
	struct iovec iov = { .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int n = 0;

	memcpy(&iov.iov_base, &data, sizeof(data)); /* casts const away;
						       sendmsg only reads */
	while (n < REQUESTS_ANSWER_FDS && fds[n] >= 0)
		n++;
	if (n > 0) {
		msg.msg_control = space.bytes;
		srdma_passed_fds_attach(&msg, fds, (unsigned)n);
	}
	while (sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

void packet_close_fds(const char *owner, struct message *m)
{
	for (unsigned i = 0; i < m->nfds; i++)
		closer_close(owner, m->fds[i]);
	m->nfds = 0;
}

/* Of a message whose files did not all get descriptors. */
static void close_file(int fd)
{
	closer_close("", fd);
}

int packet_receive(int fd, const char *owner, struct message *m)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * SRDMA_PASSED_FDS_MOST)];
	} space;
	struct iovec iov = { m->data, sizeof(m->data) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space.bytes,
		.msg_controllen = sizeof(space.bytes),
	};
	const ssize_t n = srdma_passed_fds_receive(fd, &msg, close_file);
	int taken;

	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	m->len = (size_t)n;
	taken = srdma_passed_fds_take(&msg, m->fds, SRDMA_PASSED_FDS_MOST,
				      close_file);
	if (taken < 0)
		return -EMFILE;
	m->nfds = (unsigned)taken;
	if (n > 0)
		return 1;
	packet_close_fds(owner, m);
	return -ECONNRESET;
}
