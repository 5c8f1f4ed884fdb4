#include "base/passed_fds.h"

#include <errno.h>
#include <string.h>

/* Takes or closes the descriptors of one control message. Returns their
 * number. */
static unsigned take(struct cmsghdr *c, int *fds, unsigned room,
		     void (*close_fd)(int fd))
{
	const unsigned n =
		(unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

	for (unsigned i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
		if (i < room)
			fds[i] = fd;
		else
			close_fd(fd);
	}
	return n;
}

int srdma_passed_fds_take(struct msghdr *msg, int *fds, unsigned room,
			  void (*close_fd)(int fd))
{
	int lost = (msg->msg_flags & MSG_CTRUNC) != 0;
	unsigned taken = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR(msg, c)) {
		unsigned n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = take(c, room ? fds + taken : NULL, room - taken, close_fd);
		lost |= n > room - taken;
		taken += n > room - taken ? room - taken : n;
	}
	if (!lost)
		return (int)taken;
	while (taken > 0)
		close_fd(fds[--taken]);
	return -EMSGSIZE;
}

static ssize_t receive(int fd, struct msghdr *msg, int flags)
{
	ssize_t n;

	do {
		n = recvmsg(fd, msg, flags | MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Removes the first message, whose files are open here, so that the kernel closes none
 * of them. */
static ssize_t remove_first(int fd)
{
	char first; /* qemu-user receives nothing without a buffer */
	struct iovec into = { &first, sizeof(first) };
	struct msghdr rest = { .msg_iov = &into, .msg_iovlen = 1 };

	return receive(fd, &rest, 0);
}

ssize_t srdma_passed_fds_receive(int fd, struct msghdr *msg,
				 void (*close_fd)(int fd))
{
	const size_t room = msg->msg_controllen;
	const ssize_t n = receive(fd, msg, MSG_PEEK);
	ssize_t r;

	if (n < 0)
		return n;
	if (!msg->msg_controllen && !(msg->msg_flags & MSG_CTRUNC)) {
		/* It has no files, or the kernel could not copy their list. */
		msg->msg_controllen = room;
		return receive(fd, msg, 0);
	}
	r = msg->msg_flags & MSG_CTRUNC ? -EMFILE : remove_first(fd);
	if (r >= 0)
		return n;
	srdma_passed_fds_take(msg, NULL, 0, close_fd);
	return r;
}

void srdma_passed_fds_attach(struct msghdr *msg, const int *fds, unsigned n)
{
	const size_t size = n * sizeof(int);
	struct cmsghdr *c;

	msg->msg_controllen = CMSG_SPACE(size);
	memset(msg->msg_control, 0, msg->msg_controllen);
	c = CMSG_FIRSTHDR(msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(c), fds, size);
}
