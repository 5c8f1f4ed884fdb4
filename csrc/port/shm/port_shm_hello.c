#include "port/shm/port_shm_wire.h"

#include "base/bytes.h"
#include "base/passed_fds.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
	MAGIC_LEN = 8,
	SLOTS_AT = MAGIC_LEN + SRDMA_NAME_LEN,
	LEN = SLOTS_AT + 4,
};

static const char magic[MAGIC_LEN] = "srdma-2"; /* including its terminating
						   zero */

/* The kernel would close what has no room, and that may block. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(SRDMA_PASSED_FDS_MOST * sizeof(int))];
};

int srdma_shm_hello_send(int sock, const struct srdma_shm_hello *hello)
{
	uint8_t bytes[LEN];
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
	};

	memcpy(bytes, magic, MAGIC_LEN);
	memcpy(bytes + MAGIC_LEN, hello->name, SRDMA_NAME_LEN);
	srdma_store32(bytes + SLOTS_AT, hello->slots);
	srdma_passed_fds_attach(&msg, hello->fds, (unsigned)hello->nfds);
	if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != LEN)
		return -errno;
	return 0;
}

int srdma_shm_hello_receive(int sock, struct srdma_shm_hello *hello,
			    void (*close_file)(int fd))
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
	const ssize_t n = srdma_passed_fds_receive(sock, &msg, close_file);
	int taken;

	if (n < 0)
		return n == -EAGAIN || n == -EMFILE ? (int)n : -ECONNRESET;
	taken = srdma_passed_fds_take(&msg, hello->fds, SRDMA_SHM_HELLO_FDS,
				      close_file);
	hello->nfds = taken < 0 ? 0 : taken;
	if (!n && !taken)
		return -ECONNRESET;
	if (n != LEN || msg.msg_flags & MSG_TRUNC || taken < 0 ||
	    memcmp(bytes, magic, MAGIC_LEN) ||
	    bytes[MAGIC_LEN + SRDMA_NAME_LEN - 1]) {
		srdma_shm_hello_close(hello, close_file);
		return -EPROTO;
	}
	memcpy(hello->name, bytes + MAGIC_LEN, SRDMA_NAME_LEN);
	hello->slots = srdma_load32(bytes + SLOTS_AT);
	return 0;
}

void srdma_shm_hello_close(struct srdma_shm_hello *hello,
			   void (*close_file)(int fd))
{
	for (int i = 0; i < hello->nfds; i++)
		close_file(hello->fds[i]);
	hello->nfds = 0;
}
