#include "support/fake_proxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/socket.h"

const char *fake_proxy_worker;

int fake_proxy_connect(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(name.sun_path, fake_proxy_worker);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)),
			 0);
	return fd;
}

static void pass(int fd, const char *opened, size_t len)
{
	int passed = fake_proxy_connect();

	srdma_socket_send(
		fd, opened, len,
		&(struct srdma_socket_fds){ .fd = { passed }, .n = 1 },
		INT64_MAX);
	close(passed);
}

/* {"event": "opened", "remote": true} */
void fake_proxy_pass(int fd)
{
	static const char opened[] = "\0\0\0\x16\xa2\x65"
				     "event\x66"
				     "opened\x66"
				     "remote\xf5";

	pass(fd, opened, sizeof(opened) - 1);
}

/* {"event": "opened"} */
void fake_proxy_pass_here(int fd)
{
	static const char opened[] = "\0\0\0\x0e\xa1\x65"
				     "event\x66"
				     "opened";

	pass(fd, opened, sizeof(opened) - 1);
}

/* {"event": "opened", "lasting": true} */
void fake_proxy_pass_lasting(int fd)
{
	static const char opened[] = "\0\0\0\x17\xa2\x65"
				     "event\x66"
				     "opened\x67"
				     "lasting\xf5";

	pass(fd, opened, sizeof(opened) - 1);
}
