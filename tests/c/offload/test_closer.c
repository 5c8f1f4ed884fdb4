#include "closer.h"
#include "support/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_S = 10, WAIT_MS = 5000 };

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* SIGALRM ends the test if the close blocks this thread. */
static void close_soon(int fd, int *peer)
{
	alarm(LIMIT_S);
	closer_close("", fd);
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
	pass_file(ends[1], lingering(&peer), len, 0);
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
	closer_close("", memfd);
	assert_false(is_open(memfd));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	shutdown(ends[0], SHUT_RD);
	closer_close("", ends[0]);
	assert_false(is_open(ends[0]));
	close(ends[1]);
}

static void expect_closed(int reader)
{
	struct pollfd p = { .fd = reader };

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_true(p.revents & POLLHUP);
	close(reader);
}

/* Also more of them than there are threads. */
static void test_other_files_are_closed_soon(void **state)
{
	int pipes[100][2];

	(void)state;
	for (int i = 0; i < 100; i++)
		assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
	for (int i = 0; i < 100; i++)
		closer_close("", pipes[i][1]);
	for (int i = 0; i < 100; i++)
		expect_closed(pipes[i][0]);
}

/* The files of one owner hang, and the files of another one are closed. The former is
 * told to pass no more. */
static void test_owner_whose_files_hang(void **state)
{
	int peers[2], readers[CLOSER_FILES], pipes[2];

	(void)state;
	alarm(LIMIT_S);
	for (int i = 0; i < 2; i++)
		closer_close("a", lingering(&peers[i]));
	usleep(100000); /* both threads have their file */
	for (int i = 0; i < CLOSER_FILES; i++) {
		assert_false(closer_is_crowded("a"));
		assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
		closer_close("a", pipes[1]);
		readers[i] = pipes[0];
	}
	assert_true(closer_is_crowded("a"));
	assert_false(closer_is_crowded("b"));
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	closer_close("b", pipes[1]);
	expect_closed(pipes[0]);
	assert_true(closer_is_crowded("a"));
	for (int i = 0; i < 2; i++)
		close(peers[i]);
	for (int i = 0; i < CLOSER_FILES; i++)
		expect_closed(readers[i]);
	assert_false(closer_is_crowded("a"));
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lingering_socket_does_not_block),
		cmocka_unit_test(test_file_in_a_queue_does_not_block),
		cmocka_unit_test(test_quick_files_are_closed_at_once),
		cmocka_unit_test(test_other_files_are_closed_soon),
		cmocka_unit_test(test_owner_whose_files_hang),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
