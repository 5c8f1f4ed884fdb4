#include "support/passing.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINGER_S = 20 };

int lingering(int *peer)
{
	const struct linger on = { .l_onoff = 1, .l_linger = LINGER_S };
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(name);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char bytes[4096] = { 0 };

	assert_int_equal(listen(server, 1), 0);
	assert_int_equal(getsockname(server, (struct sockaddr *)&name, &len),
			 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, len), 0);
	*peer = accept(server, NULL, NULL);
	assert_true(*peer >= 0);
	close(server);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &on, sizeof(on));
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	return fd;
}

void pass_file(int sock, int fd, size_t len, int flags)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	char byte = 0;
	struct iovec iov = { &byte, len };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};

	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.align), &fd, sizeof(int));
	assert_int_equal(sendmsg(sock, &msg, flags), len);
	close(fd);
}
