#include "port/shm/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
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
	assert_int_equal(srdma_ringer_open(&f.ringer, f.eventfd, f.bell.fd), 0);
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
	assert_int_equal(srdma_ringer_open(&r, blocking, f->bell.fd), -EINVAL);
	assert_int_equal(srdma_ringer_open(&r, ends[1], f->bell.fd), -EINVAL);
	assert_int_equal(srdma_ringer_open(&r, -1, f->bell.fd), -EINVAL);
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

	assert_int_equal(srdma_ringer_open(&r, f->eventfd, page), -EPERM);
	assert_int_equal(srdma_ringer_open(&r, f->eventfd, f->eventfd), -EPERM);
	assert_int_equal(srdma_ringer_open(&r, f->eventfd, -1), -EPERM);
	assert_int_equal(fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(srdma_ringer_open(&r, f->eventfd, page), 0);
	srdma_ringer_close(&r);
	close(page);
}

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
