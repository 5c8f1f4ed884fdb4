/* Descriptors that arrive with a message are taken all together, or closed. */
#include "base/passed_fds.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/descriptors.h"

enum { MOST = 8, ROOM = 3 };

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(MOST * sizeof(int))];
};

static int ends[2];
static int closed; /* descriptors that close_one() closed */
static int
	no_memory; /* 1: MSG_PEEK shows no files, as if the kernel had no memory */

/* Takes the place of the C library's. */
ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	const size_t room = msg->msg_controllen;
	const int peek = no_memory && flags & MSG_PEEK;
	ssize_t n;

	msg->msg_controllen = peek ? 0 : room;
	n = syscall(SYS_recvmsg, fd, msg, flags);
	if (peek)
		msg->msg_flags &= ~MSG_CTRUNC;
	return n;
}

static void close_one(int fd)
{
	assert_int_equal(close(fd), 0);
	closed++;
}

/* Sends one byte with descriptors 0, 1, ... of `files`. */
static void pass(const int *files, unsigned n)
{
	union control control;
	struct iovec iov = { (char[]){ "x" }, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		msg.msg_control = &control;
		srdma_passed_fds_attach(&msg, files, n);
	}
	assert_int_equal(sendmsg(ends[0], &msg, 0), 1);
}

/* Receives the byte; the kernel has room for `space` descriptors. */
static int take(int *fds, unsigned room, unsigned space)
{
	union control control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_LEN(space * sizeof(int)),
	};

	closed = 0;
	assert_int_equal(recvmsg(ends[1], &msg, MSG_CMSG_CLOEXEC), 1);
	return srdma_passed_fds_take(&msg, fds, room, close_one);
}

static int same_file(int a, int b)
{
	struct stat one, other;

	assert_int_equal(fstat(a, &one), 0);
	assert_int_equal(fstat(b, &other), 0);
	return one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

static int teardown(void **state)
{
	(void)state;
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static void test_descriptors_in_their_order(void **state)
{
	const int before = count_descriptors();
	int fds[ROOM], files[MOST], n;

	(void)state;
	for (unsigned i = 0; i < MOST; i++)
		files[i] = ends[i % 2];
	for (int sent = 0; sent <= ROOM; sent++) {
		pass(files, (unsigned)sent);
		n = take(fds, ROOM, MOST);
		assert_int_equal(n, sent);
		assert_int_equal(count_descriptors(), before + sent);
		assert_int_equal(closed, 0);
		while (n > 0) {
			n--;
			assert_true(same_file(fds[n], files[n]));
			close(fds[n]);
		}
	}
}

static void test_more_than_there_is_room_for(void **state)
{
	const int before = count_descriptors();
	int fds[ROOM], files[MOST];

	(void)state;
	for (unsigned i = 0; i < MOST; i++)
		files[i] = ends[0];
	for (unsigned n = ROOM + 1; n <= MOST; n++) {
		pass(files, n);
		assert_int_equal(take(fds, ROOM, MOST), -EMSGSIZE);
		assert_int_equal(closed, n);
		assert_int_equal(count_descriptors(), before);
	}
}

/* The kernel itself closes those without room, and sets MSG_CTRUNC. */
static void test_control_data_cut_by_the_kernel(void **state)
{
	const int before = count_descriptors();
	int fds[MOST], files[MOST];

	(void)state;
	if (getenv("RUNNER")) {
		puts("qemu-user gives the kernel more room than the program "
		     "did");
		skip();
	}
	for (unsigned i = 0; i < MOST; i++)
		files[i] = ends[0];
	for (unsigned space = 0; space < MOST - 1; space++) {
		pass(files, MOST);
		assert_int_equal(take(fds, MOST, space), -EMSGSIZE);
		assert_int_equal(closed, space);
		assert_int_equal(count_descriptors(), before);
	}
}

/* Files are never left to the kernel, which closes them in the thread that receives. */
static void test_list_of_files_that_is_not_shown(void **state)
{
	const int before = count_descriptors();
	union control control;
	char byte;
	struct iovec iov = { &byte, 1 };
	int fds[ROOM];

	(void)state;
	for (no_memory = 0; no_memory < 2; no_memory++) {
		for (unsigned sent = 0; sent <= ROOM; sent++) {
			struct msghdr msg = {
				.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control.bytes),
			};
			int n;

			pass((int[]){ ends[0], ends[1], ends[0] }, sent);
			assert_int_equal(srdma_passed_fds_receive(ends[1], &msg,
								  close_one),
					 1);
			n = srdma_passed_fds_take(&msg, fds, ROOM, close_one);
			assert_int_equal(n, sent);
			assert_int_equal(count_descriptors(), before + n);
			while (n > 0)
				close(fds[--n]);
			assert_int_equal(srdma_passed_fds_receive(ends[1], &msg,
								  close_one),
					 -EAGAIN);
		}
	}
	no_memory = 0;
}

#define PAIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR(test_descriptors_in_their_order),
		PAIR(test_more_than_there_is_room_for),
		PAIR(test_control_data_cut_by_the_kernel),
		PAIR(test_list_of_files_that_is_not_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
