#include "closer.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINGER_S = 20, LIMIT_S = 10, WAIT_MS = 5000 };

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* A TCP socket with unsent bytes, whose last close blocks. *peer stays open. */
static int lingering(int *peer)
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

static void pass(int sock, int fd, size_t len)
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
	assert_int_equal(sendmsg(sock, &msg, 0), len);
	close(fd);
}

/* SIGALRM ends the test if the close blocks this thread. */
static void close_soon(int fd, int *peer)
{
	alarm(LIMIT_S);
	closer_close(fd);
	alarm(0);
	if (*peer >= 0)
		close(*peer);
}

static void test_lingering_socket_does_not_block(void **state)
{
	int peer, fd = lingering(&peer);

	(void)state;
	close_soon(fd, &peer);
}

/* The file is in the queue of a socket whose other end was closed. */
static void queue_of(int type, size_t len)
{
	int ends[2], peer;

	assert_int_equal(socketpair(AF_UNIX, type, 0, ends), 0);
	pass(ends[1], lingering(&peer), len);
	close(ends[1]);
	close_soon(ends[0], &peer);
}

static void test_file_in_a_queue_does_not_block(void **state)
{
	(void)state;
	queue_of(SOCK_STREAM, 1);
	queue_of(SOCK_DGRAM, 1);
	queue_of(SOCK_SEQPACKET, 1);
	queue_of(SOCK_SEQPACKET, 0); /* FIONREAD tells 0 */
}

/* Files of programs that behave are closed at once, without a thread. */
static void test_quick_files_are_closed_at_once(void **state)
{
	int memfd = memfd_create("test", MFD_CLOEXEC), ends[2];

	(void)state;
	closer_close(memfd);
	assert_false(is_open(memfd));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	shutdown(ends[0], SHUT_RD);
	closer_close(ends[0]);
	assert_false(is_open(ends[0]));
	close(ends[1]);
}

/* Also more of them than there are threads. */
static void test_other_files_are_closed_soon(void **state)
{
	int pipes[100][2];

	(void)state;
	for (int i = 0; i < 100; i++)
		assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
	for (int i = 0; i < 100; i++)
		closer_close(pipes[i][1]);
	for (int i = 0; i < 100; i++) {
		struct pollfd p = { .fd = pipes[i][0] };

		assert_int_equal(poll(&p, 1, WAIT_MS), 1);
		assert_true(p.revents & POLLHUP);
		close(pipes[i][0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lingering_socket_does_not_block),
		cmocka_unit_test(test_file_in_a_queue_does_not_block),
		cmocka_unit_test(test_quick_files_are_closed_at_once),
		cmocka_unit_test(test_other_files_are_closed_soon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
