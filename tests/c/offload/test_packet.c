#include "packet.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/descriptors.h"

enum { ROOM = REQUESTS_MAX_FDS + 1 }; /* descriptors of a message */

static int ends[2];

/* Sends a message of len bytes with n descriptors of one memfd. */
static void pass(size_t len, unsigned n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(ROOM * sizeof(int))];
	} control = { .bytes = { 0 } };
	char bytes[16] = { 0 };
	struct iovec iov = { bytes, len };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)),
	};
	int fd = memfd_create("test", MFD_CLOEXEC);

	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(n * sizeof(int));
	for (unsigned i = 0; i < n; i++)
		memcpy(CMSG_DATA(&control.align) + i * sizeof(int), &fd,
		       sizeof(int));
	assert_int_equal(sendmsg(ends[0], &msg, 0), len);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int teardown(void **state)
{
	(void)state;
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static void test_message_with_descriptors(void **state)
{
	const int before = count_descriptors();
	struct message m;

	(void)state;
	assert_int_equal(packet_receive(ends[1], "", &m), 0);
	pass(5, REQUESTS_MAX_FDS);
	assert_int_equal(packet_receive(ends[1], "", &m), 1);
	assert_int_equal(m.len, 5);
	assert_int_equal(m.nfds, REQUESTS_MAX_FDS);
	assert_int_equal(count_descriptors(), before + REQUESTS_MAX_FDS);
	packet_close_fds("", &m);
	assert_int_equal(count_descriptors(), before);
}

static void test_descriptors_without_room_are_closed(void **state)
{
	const int before = count_descriptors();
	struct message m;

	(void)state;
	pass(5, REQUESTS_MAX_FDS + 1);
	assert_int_equal(packet_receive(ends[1], "", &m), 1);
	assert_true(m.nfds > REQUESTS_MAX_FDS);
	packet_close_fds("", &m);
	assert_int_equal(count_descriptors(), before);
}

/* The kernel would close the files here: they stay in the socket instead. */
static void test_files_without_a_free_descriptor_stay(void **state)
{
	const int before = count_descriptors();
	struct rlimit limit;
	struct message m;

	(void)state;
	for (unsigned n = 0; n < 2; n++) {
		pass(5, 2);
		limit = permit_descriptors(n);
		assert_int_equal(packet_receive(ends[1], "", &m), -EMFILE);
		assert_int_equal(packet_receive(ends[1], "", &m), -EMFILE);
		restore_descriptors(limit);
		assert_int_equal(count_descriptors(), before);
		assert_int_equal(packet_receive(ends[1], "", &m), 1);
		assert_int_equal(m.nfds, 2);
		packet_close_fds("", &m);
		assert_int_equal(count_descriptors(), before);
	}
	assert_int_equal(packet_receive(ends[1], "", &m), 0);
}

static void test_messages_are_received_once(void **state)
{
	struct message m;

	(void)state;
	pass(3, 1);
	pass(4, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(packet_receive(ends[1], "", &m), 1);
		assert_int_equal(m.len, 3 + i);
		assert_int_equal(m.nfds, 1 + i);
		packet_close_fds("", &m);
	}
	assert_int_equal(packet_receive(ends[1], "", &m), 0);
}

static void test_end_with_descriptors(void **state)
{
	const int before = count_descriptors();
	struct message m;

	(void)state;
	pass(0, ROOM);
	assert_int_equal(packet_receive(ends[1], "", &m), -ECONNRESET);
	assert_int_equal(count_descriptors(), before);
}

#define PAIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR(test_message_with_descriptors),
		PAIR(test_descriptors_without_room_are_closed),
		PAIR(test_files_without_a_free_descriptor_stay),
		PAIR(test_messages_are_received_once),
		PAIR(test_end_with_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
