/*
 * A worker of a shared-memory wire that wants to block its peer
 * (docs/local-interface.md 4.1, 4.5): the peer goes on with other workers. If a
 * call blocks, SIGALRM ends the test.
 */
#include "closer.h"
#include "port/shm/port_shm.h"
#include "port/shm/port_shm_impl.h"
#include "support/passing.h"
#include "support/shm_pair.h"
#include "support/shm_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_S = 60 };

/* `a` of the first pair is hostile, `a` of the second one is not. */
static struct shm_pair hostile, good;

static void close_file(int fd)
{
	closer_close("", fd);
}

static int setup(void **state)
{
	(void)state;
	memset(&hostile, 0, sizeof(hostile));
	shm_make_dir(hostile.dir);
	hostile.a = shm_wire(hostile.dir, "a", 16);
	assert_int_equal(srdma_port_shm_create_wire(&hostile.b, hostile.dir,
						    "b", 16, close_file),
			 0);
	shm_pair_join(&hostile);
	good = hostile;
	good.a = shm_wire(hostile.dir, "c", 16);
	shm_pair_join(&good);
	alarm(LIMIT_S);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hostile.a->ops->destroy(hostile.a);
	good.a->ops->destroy(good.a);
	good.b->ops->destroy(good.b);
	alarm(0);
	assert_int_equal(rmdir(hostile.dir), 0);
	return 0;
}

/* Each end of the good pair sleeps, and is woken by the other one. */
static void expect_service(uint32_t number)
{
	struct srdma_port *a = good.a, *b = good.b;
	struct pollfd p[2] = { { .fd = a->ops->fd(a), .events = POLLIN },
			       { .fd = b->ops->fd(b), .events = POLLIN } };

	shm_expect_nothing(b);
	assert_int_equal(b->ops->arm(b), 0);
	assert_int_equal(shm_send_number(good.conn, number), 0);
	a->ops->flush(a);
	assert_int_equal(poll(&p[1], 1, -1), 1);
	b->ops->disarm(b);
	shm_expect_number(b, good.far, number);
	assert_int_equal(a->ops->arm(a), 0);
	assert_int_equal(shm_send_number(good.far, number), 0);
	b->ops->flush(b);
	assert_int_equal(poll(&p[0], 1, -1), 1);
	a->ops->disarm(a);
	shm_expect_number(a, good.conn, number);
}

/* The hostile worker holds the file that b rings: its flags and its buffer. */
static void test_full_wake_up_object_does_not_block(void **state)
{
	const int rung = srdma_shm_conn_of(hostile.far)->ringer.fd;
	const uint64_t most = UINT64_MAX - 1; /* fills an eventfd too */

	(void)state;
	while (write(rung, &most, sizeof(most)) > 0)
		;
	assert_int_equal(fcntl(rung, F_SETFL, 0), 0);
	assert_int_equal(hostile.a->ops->arm(hostile.a), 0);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(shm_send_number(hostile.far, i), 0);
		hostile.b->ops->flush(hostile.b);
		expect_service(i);
	}
}

/* A socket that becomes full wakes its worker no more. */
static void test_many_wake_ups_leave_room_for_more(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		expect_service(i);
}

static void expect_down(int status)
{
	struct srdma_event ev;

	assert_int_equal(hostile.b->ops->arm(hostile.b), 1);
	ev = shm_expect(hostile.b, SRDMA_EV_DOWN);
	assert_ptr_equal(ev.conn, hostile.far);
	assert_int_equal(ev.status, status);
	hostile.b->ops->close(hostile.far);
}

static void pass_through_wake_up_socket(int flags)
{
	int peer;

	pass_file(srdma_shm_conn_of(hostile.conn)->ringer.fd, lingering(&peer),
		  1, flags);
	shm_expect_nothing(hostile.b);
	expect_down(-EPROTO);
	expect_service(1);
	close(peer);
}

static void test_file_in_wake_up_socket_ends_the_path(void **state)
{
	(void)state;
	pass_through_wake_up_socket(0);
}

static void test_file_with_urgent_byte_ends_the_path(void **state)
{
	(void)state;
	pass_through_wake_up_socket(MSG_OOB);
}

/* Hellos that are refused, with a file in each place: taken, and in the queue. */
static void test_files_of_greetings_do_not_block(void **state)
{
	int peer[2], sock = shm_dial(hostile.dir, "b");
	char byte;

	(void)state;
	pass_file(sock, lingering(&peer[0]), 1, 0);
	pass_file(sock, lingering(&peer[1]), 1, 0);
	shm_expect_nothing(hostile.b);
	assert_true(recv(sock, &byte, 1, 0) <= 0); /* the end */
	expect_service(1);
	close(sock);
	close(peer[0]);
	close(peer[1]);
}

#define HOSTILE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		HOSTILE(test_full_wake_up_object_does_not_block),
		HOSTILE(test_many_wake_ups_leave_room_for_more),
		HOSTILE(test_file_in_wake_up_socket_ends_the_path),
		HOSTILE(test_file_with_urgent_byte_ends_the_path),
		HOSTILE(test_files_of_greetings_do_not_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
