#include "port/shm/port_shm_wire.h"

#include "base/bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	MAGIC_LEN = 8,
	SLOTS_AT = MAGIC_LEN + SRDMA_NAME_LEN,
	LEN = SLOTS_AT + 4,
	MORE_FDS = SRDMA_SHM_HELLO_FDS + 1,
};

static const char magic[MAGIC_LEN] = "srdma-1"; /* including its terminating
						   zero */

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(MORE_FDS * sizeof(int))];
};

int srdma_shm_hello_send(int sock, const struct srdma_shm_hello *hello)
{
	size_t size = (size_t)hello->nfds * sizeof(int);
	uint8_t bytes[LEN];
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE(size),
	};
	struct cmsghdr *c;

	memcpy(bytes, magic, MAGIC_LEN);
	memcpy(bytes + MAGIC_LEN, hello->name, SRDMA_NAME_LEN);
	srdma_store32(bytes + SLOTS_AT, hello->slots);
	memset(&control, 0, sizeof(control));
	c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(c), hello->fds, size);
	if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != LEN)
		return -errno;
	return 0;
}

/* The kernel installs all received descriptors: keep or close each. */
static void collect(struct msghdr *msg, struct srdma_shm_hello *hello)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int),
			       sizeof(int));
			if (hello->nfds < SRDMA_SHM_HELLO_FDS)
				hello->fds[hello->nfds] = fd;
			else
				close(fd);
			hello->nfds++;
		}
	}
}

int srdma_shm_hello_receive(int sock, struct srdma_shm_hello *hello)
{
	uint8_t bytes[LEN];
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN
							 : -ECONNRESET;
	hello->nfds = 0;
	collect(&msg, hello);
	if (!n && !hello->nfds)
		return -ECONNRESET;
	if (n != LEN || msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ||
	    hello->nfds > SRDMA_SHM_HELLO_FDS ||
	    memcmp(bytes, magic, MAGIC_LEN) ||
	    bytes[MAGIC_LEN + SRDMA_NAME_LEN - 1]) {
		srdma_shm_hello_close(hello);
		return -EPROTO;
	}
	memcpy(hello->name, bytes + MAGIC_LEN, SRDMA_NAME_LEN);
	hello->slots = srdma_load32(bytes + SLOTS_AT);
	return 0;
}

void srdma_shm_hello_close(struct srdma_shm_hello *hello)
{
	for (int i = 0; i < hello->nfds && i < SRDMA_SHM_HELLO_FDS; i++)
		close(hello->fds[i]);
	hello->nfds = 0;
}
