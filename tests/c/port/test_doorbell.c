#include "port/shm/doorbell.h"
#include "support/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	struct srdma_doorbell bell;
	struct srdma_ringer ringer;
	int eventfd;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .eventfd = srdma_doorbell_eventfd() };
	assert_int_equal(srdma_doorbell_create(&f.bell), 0);
	assert_int_equal(srdma_ringer_open(&f.ringer, SRDMA_WAKE_EVENTFD,
					   f.eventfd, f.bell.fd),
			 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	srdma_ringer_close(&f->ringer);
	srdma_ringer_close(&f->ringer);
	srdma_doorbell_destroy(&f->bell);
	close(f->eventfd);
	return 0;
}

static uint64_t rings(struct fixture *f)
{
	uint64_t n;

	if (read(f->eventfd, &n, sizeof(n)) == sizeof(n))
		return n;
	assert_int_equal(errno, EAGAIN);
	return 0;
}

static void test_only_sleeper_is_rung(void **state)
{
	struct fixture *f = *state;

	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(rings(f), 0);
	srdma_doorbell_arm(&f->bell, SRDMA_DOORBELL_NEWS);
	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(rings(f), 1);
	srdma_doorbell_disarm(&f->bell);
	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(rings(f), 0);
}

static void test_memory_ring_wakes_only_armed_for_memory(void **state)
{
	struct fixture *f = *state;

	srdma_doorbell_arm(&f->bell, SRDMA_DOORBELL_NEWS);
	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_MEMORY);
	assert_int_equal(rings(f), 0);
	srdma_doorbell_arm(&f->bell,
			   SRDMA_DOORBELL_NEWS | SRDMA_DOORBELL_MEMORY);
	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_MEMORY);
	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(rings(f), 2);
}

static void test_full_counter_does_not_block(void **state)
{
	struct fixture *f = *state;
	uint64_t most = UINT64_MAX - 1;

	assert_int_equal(write(f->eventfd, &most, sizeof(most)), sizeof(most));
	srdma_doorbell_arm(&f->bell, SRDMA_DOORBELL_NEWS);
	srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_NEWS);
	assert_true(rings(f) == most);
}

/*
 * Like the ports, use edge-triggered epoll, so that the counter is never read.
 */
static void test_every_ring_is_an_edge(void **state)
{
	struct fixture *f = *state;
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, f->eventfd, &ev), 0);
	srdma_doorbell_arm(&f->bell, SRDMA_DOORBELL_NEWS);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(epoll_wait(epoll, &ev, 1, 0), 0);
		srdma_ringer_ring(&f->ringer, SRDMA_DOORBELL_NEWS);
		assert_int_equal(epoll_wait(epoll, &ev, 1, 0), 1);
	}
	close(epoll);
}

static void test_peer_cannot_write_doorbell(void **state)
{
	struct fixture *f = *state;

	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
			      f->bell.fd, 0),
			 MAP_FAILED);
	assert_int_equal(pwrite(f->bell.fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(f->bell.fd, 0), -1);
}

static int unsealed_page(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, 4096), 0);
	return fd;
}

static void test_non_eventfd_is_refused(void **state)
{
	struct fixture *f = *state;
	struct srdma_ringer r = { 0 };
	int blocking = eventfd(0, EFD_CLOEXEC), ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(
		srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, blocking, f->bell.fd),
		-EINVAL);
	assert_int_equal(
		srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, ends[1], f->bell.fd),
		-EINVAL);
	assert_int_equal(
		srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, -1, f->bell.fd),
		-EINVAL);
	assert_null(r.page.at);
	srdma_ringer_close(&r);
	close(blocking);
	close(ends[0]);
	close(ends[1]);
}

static void test_unsealed_page_is_refused(void **state)
{
	struct fixture *f = *state;
	struct srdma_ringer r = { 0 };
	int page = unsealed_page();

	assert_int_equal(
		srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, f->eventfd, page),
		-EPERM);
	assert_int_equal(srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, f->eventfd,
					   f->eventfd),
			 -EPERM);
	assert_int_equal(
		srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, f->eventfd, -1),
		-EPERM);
	assert_int_equal(fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(
		srdma_ringer_open(&r, SRDMA_WAKE_EVENTFD, f->eventfd, page), 0);
	srdma_ringer_close(&r);
	close(page);
}

/* --- sockets -------------------------------------------------------------- */

static struct srdma_doorbell bell;
static struct srdma_ringer ringer;
static int ends[2];

static int socket_setup(void **state)
{
	(void)state;
	assert_int_equal(srdma_doorbell_create(&bell), 0);
	assert_int_equal(srdma_doorbell_socket(ends), 0);
	assert_int_equal(srdma_ringer_open(&ringer, SRDMA_WAKE_SOCKET,
					   ends[SRDMA_DOORBELL_RINGER],
					   bell.fd),
			 0);
	return 0;
}

static int socket_teardown(void **state)
{
	(void)state;
	srdma_ringer_close(&ringer);
	srdma_doorbell_destroy(&bell);
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static int readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };

	return poll(&p, 1, 0) ? p.revents : 0;
}

static void test_socket_is_readable_until_drained(void **state)
{
	(void)state;
	srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), 0);
	srdma_doorbell_arm(&bell, SRDMA_DOORBELL_NEWS);
	for (int i = 0; i < 3; i++)
		srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), POLLIN);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), POLLIN);
	srdma_doorbell_drain(ends[SRDMA_DOORBELL_SLEEPER]);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), 0);
	srdma_doorbell_drain(ends[SRDMA_DOORBELL_SLEEPER]);
	srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), POLLIN);
}

static void test_end_of_ringer_is_no_wake_up(void **state)
{
	(void)state;
	srdma_ringer_close(&ringer);
	ringer.page.at = NULL;
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), 0);
}

/* A program fills the socket by its copy of the end, and makes it blocking. */
static void test_full_socket_does_not_block(void **state)
{
	const int end = ends[SRDMA_DOORBELL_RINGER], large = 1 << 20;

	(void)state;
	setsockopt(end, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	while (send(end, "x", 1, MSG_DONTWAIT) == 1)
		;
	assert_int_equal(fcntl(end, F_SETFL, 0), 0);
	assert_int_equal(fcntl(ends[SRDMA_DOORBELL_SLEEPER], F_SETFL, 0), 0);
	srdma_doorbell_arm(&bell, SRDMA_DOORBELL_NEWS);
	alarm(10);
	srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), POLLIN);
	srdma_doorbell_drain(ends[SRDMA_DOORBELL_SLEEPER]);
	alarm(0);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), 0);
}

static void test_ended_sleeper_raises_no_signal(void **state)
{
	(void)state;
	close(ends[SRDMA_DOORBELL_SLEEPER]);
	srdma_doorbell_arm(&bell, SRDMA_DOORBELL_NEWS);
	srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	ends[SRDMA_DOORBELL_SLEEPER] = -1;
}

/* Files in the queue would be closed by the worker, which may block. */
static void test_ringer_takes_nothing_from_sleeper(void **state)
{
	(void)state;
	assert_int_equal(send(ends[SRDMA_DOORBELL_SLEEPER], "x", 1,
			      MSG_DONTWAIT | MSG_NOSIGNAL),
			 -1);
	assert_int_equal(errno, EPIPE);
}

/* Two ends of `type`; the first one has `sent` bytes in its queue. */
static int pair(int type, size_t sent)
{
	int both[2];

	assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, both), 0);
	assert_int_equal(send(both[1], "xx", sent, 0), sent);
	/* The other end stays open: the kernel would not tell it otherwise. */
	return both[0];
}

/* An abstract name of one byte, so that the end of the test removes it. */
static int listening(struct sockaddr_un *name)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*name);

	*name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	assert_int_equal(bind(fd, (struct sockaddr *)name, sizeof(sa_family_t)),
			 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)name, &len), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static int of_a_service(int accepted)
{
	struct sockaddr_un name;
	int service = listening(&name), fd, other;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		connect(fd, (struct sockaddr *)&name, sizeof(sa_family_t) + 6),
		0);
	other = accept(service, NULL, NULL);
	assert_true(other >= 0);
	close(service);
	return accepted ? other : fd;
}

static int tcp(void)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(name);
	int service = socket(AF_INET, SOCK_STREAM, 0), fd;

	assert_int_equal(listen(service, 1), 0);
	assert_int_equal(getsockname(service, (struct sockaddr *)&name, &len),
			 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, len), 0);
	close(service);
	return fd;
}

static void refuse_socket(const char *what, int fd)
{
	struct srdma_ringer r = { 0 };
	int rc = srdma_ringer_open(&r, SRDMA_WAKE_SOCKET, fd, bell.fd);

	if (rc != -EINVAL)
		fail_msg("%s: %d", what, rc);
	assert_null(r.page.at);
	close(fd);
}

static void test_other_files_are_refused(void **state)
{
	struct sockaddr_un name;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	close(pipes[0]);
	refuse_socket("no file", -1);
	refuse_socket("eventfd", srdma_doorbell_eventfd());
	refuse_socket("pipe", pipes[1]);
	refuse_socket("datagrams", pair(SOCK_DGRAM, 0));
	refuse_socket("packets", pair(SOCK_SEQPACKET, 0));
	refuse_socket("waiting bytes", pair(SOCK_STREAM, 2));
	refuse_socket("no connection", socket(AF_UNIX, SOCK_STREAM, 0));
	refuse_socket("listener", listening(&name));
	refuse_socket("client of a service", of_a_service(0));
	refuse_socket("accepted by a service", of_a_service(1));
	refuse_socket("TCP", tcp());
}

static void test_unsealed_page_of_socket_is_refused(void **state)
{
	struct srdma_ringer r = { 0 };
	int page = unsealed_page();

	(void)state;
	assert_int_equal(srdma_ringer_open(&r, SRDMA_WAKE_SOCKET,
					   ends[SRDMA_DOORBELL_RINGER], page),
			 -EPERM);
	close(page);
}

/* --- the sleeper trusts the ringer no more than the reverse --------------- */

static void test_checked_drain_takes_all_rings(void **state)
{
	(void)state;
	srdma_doorbell_arm(&bell, SRDMA_DOORBELL_NEWS);
	for (int i = 0; i < 3; i++)
		srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	assert_int_equal(
		srdma_doorbell_drain_checked(ends[SRDMA_DOORBELL_SLEEPER]), 0);
	assert_int_equal(readable(ends[SRDMA_DOORBELL_SLEEPER]), 0);
	assert_int_equal(
		srdma_doorbell_drain_checked(ends[SRDMA_DOORBELL_SLEEPER]), 0);
	shutdown(ends[SRDMA_DOORBELL_RINGER], SHUT_WR);
	assert_int_equal(
		srdma_doorbell_drain_checked(ends[SRDMA_DOORBELL_SLEEPER]), 0);
}

/* A ringer that enlarges its buffer and floods costs two calls per drain. */
static void test_checked_drain_is_bounded(void **state)
{
	const int large = 1 << 16;
	char bytes[100] = { 0 };

	(void)state;
	setsockopt(ends[SRDMA_DOORBELL_RINGER], SOL_SOCKET, SO_SNDBUF, &large,
		   sizeof(large));
	assert_int_equal(
		send(ends[SRDMA_DOORBELL_RINGER], bytes, sizeof(bytes), 0),
		sizeof(bytes));
	assert_int_equal(
		srdma_doorbell_drain_checked(ends[SRDMA_DOORBELL_SLEEPER]), 0);
	assert_int_equal(recv(ends[SRDMA_DOORBELL_SLEEPER], bytes,
			      sizeof(bytes), MSG_DONTWAIT),
			 sizeof(bytes) - 64);
}

/* The close of the file would block this thread: SIGALRM would end the test. */
static void refuse_file(int flags)
{
	const int end = ends[SRDMA_DOORBELL_SLEEPER];
	int peer, fd = lingering(&peer);

	pass_file(ends[SRDMA_DOORBELL_RINGER], fd, 1, flags);
	srdma_doorbell_arm(&bell, SRDMA_DOORBELL_NEWS);
	srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	alarm(10);
	for (int i = 0; i < 3; i++)
		assert_int_equal(srdma_doorbell_drain_checked(end), -EPROTO);
	alarm(0);
	assert_true(readable(end));
	close(peer);
}

static void test_file_is_refused_and_not_closed(void **state)
{
	(void)state;
	refuse_file(0);
}

static void test_file_of_urgent_byte_is_not_closed(void **state)
{
	(void)state;
	refuse_file(MSG_OOB);
}

/* The rings in front of a file are taken with it, or first: kernels differ. */
static void test_file_behind_rings_is_refused(void **state)
{
	const int end = ends[SRDMA_DOORBELL_SLEEPER];
	int peer, fd = lingering(&peer);

	(void)state;
	srdma_doorbell_arm(&bell, SRDMA_DOORBELL_NEWS);
	srdma_ringer_ring(&ringer, SRDMA_DOORBELL_NEWS);
	pass_file(ends[SRDMA_DOORBELL_RINGER], fd, 1, MSG_OOB);
	alarm(10);
	srdma_doorbell_drain_checked(end);
	assert_int_equal(srdma_doorbell_drain_checked(end), -EPROTO);
	alarm(0);
	close(peer);
}

#define SOCKET(f)                                                              \
	cmocka_unit_test_setup_teardown(f, socket_setup, socket_teardown)
#define BELL(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BELL(test_only_sleeper_is_rung),
		BELL(test_memory_ring_wakes_only_armed_for_memory),
		BELL(test_full_counter_does_not_block),
		BELL(test_every_ring_is_an_edge),
		BELL(test_peer_cannot_write_doorbell),
		BELL(test_non_eventfd_is_refused),
		BELL(test_unsealed_page_is_refused),
		SOCKET(test_socket_is_readable_until_drained),
		SOCKET(test_end_of_ringer_is_no_wake_up),
		SOCKET(test_full_socket_does_not_block),
		SOCKET(test_ended_sleeper_raises_no_signal),
		SOCKET(test_ringer_takes_nothing_from_sleeper),
		SOCKET(test_other_files_are_refused),
		SOCKET(test_checked_drain_takes_all_rings),
		SOCKET(test_checked_drain_is_bounded),
		SOCKET(test_file_is_refused_and_not_closed),
		SOCKET(test_file_of_urgent_byte_is_not_closed),
		SOCKET(test_file_behind_rings_is_refused),
		SOCKET(test_unsealed_page_of_socket_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
