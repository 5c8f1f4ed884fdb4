/* The thread of a context, and the descriptors that it watches (verbs/loop.c). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs/objects.h"

enum { HERE, AGENT };

struct srdma_channel {
	int end[2]; /* of HERE and of AGENT */
};

static struct verbs_root root;
static int tells_end; /* 1: a descriptor tells the end of the worker */
static int patient;   /* 1: the thread waits for descriptors without a limit */
static unsigned looks, ud_looks, worker_looks;

/* --- the kernel, and the rest of the library ----------------------------------------- */

/* In place of that of libc. */
int epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms)
{
	return epoll_pwait(fd, events, n, patient ? -1 : timeout_ms, NULL);
}

int srdma_channel_fd(const struct srdma_channel *c)
{
	return c->end[HERE];
}

void srdma_channel_drop(struct srdma_channel *c)
{
	close(c->end[HERE]);
}

int verbs_ud_look(struct verbs_root *r)
{
	assert_int_equal(pthread_mutex_trylock(&r->lock), EBUSY);
	__atomic_add_fetch(&looks, 1, __ATOMIC_RELEASE);
	return 0;
}

int verbs_worker_tells_end(const struct verbs_root *r)
{
	(void)r;
	return tells_end;
}

void verbs_ud_progress(struct verbs_root *r)
{
	(void)r;
	__atomic_add_fetch(&ud_looks, 1, __ATOMIC_RELEASE);
}

void verbs_collect(struct verbs_root *r)
{
	(void)r;
}

int verbs_worker_look(struct verbs_root *r)
{
	(void)r;
	__atomic_add_fetch(&worker_looks, 1, __ATOMIC_RELEASE);
	return 0;
}

/* --- tests ------------------------------------------------------------------------- */

static int begin_with(int worker_tells_end)
{
	memset(&root, 0, sizeof(root));
	tells_end = patient = worker_tells_end;
	looks = ud_looks = worker_looks = 0;
	pthread_mutex_init(&root.lock, NULL);
	return verbs_loop_start(&root);
}

static int begin(void **state)
{
	(void)state;
	return begin_with(1);
}

static int begin_with_a_silent_worker(void **state)
{
	(void)state;
	return begin_with(0);
}

static int end(void **state)
{
	(void)state;
	verbs_loop_stop(&root);
	assert_null(root.loop);
	verbs_loop_stop(&root);
	return pthread_mutex_destroy(&root.lock);
}

/* Waits until a counter of looks has become larger than `before`. */
static void wait_beyond(const unsigned *counter, unsigned before)
{
	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) <= before)
		usleep(1000);
}

/* The descriptors that a file of /proc/self/fdinfo lists: those of an epoll. */
static unsigned watched_by(const char *fd)
{
	char path[64], line[256];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%.16s", fd);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		n += !strncmp(line, "tfd:", 4);
	fclose(f);
	return n;
}

/* The thread's epoll is the only one of the program, and has its eventfd. */
static unsigned watched(void)
{
	DIR *folder = opendir("/proc/self/fdinfo");
	const struct dirent *d;
	unsigned n = 0;

	assert_non_null(folder);
	while ((d = readdir(folder)))
		n += watched_by(d->d_name);
	closedir(folder);
	return n - 1;
}

static void test_descriptor_that_is_readable(void **state)
{
	int end[2];

	(void)state;
	assert_int_equal(pipe(end), 0);
	assert_int_equal(verbs_loop_watch(&root, end[0]), 0);
	assert_int_equal(watched(), 1);
	assert_int_equal(verbs_loop_watch(&root, end[0]), EEXIST);
	assert_int_equal(write(end[1], "x", 1), 1);
	wait_beyond(&ud_looks, 3);
	assert_int_equal(worker_looks, 0);
	verbs_loop_unwatch(&root, end[0]);
	assert_int_equal(watched(), 0);
	close(end[0]);
	close(end[1]);
}

/* The thread looks from time to time. */
static void test_worker_whose_end_no_descriptor_tells(void **state)
{
	(void)state;
	wait_beyond(&worker_looks, 0);
	assert_int_equal(ud_looks, 0);
}

/* A child of fork() has a copy of the descriptor, whose file so lives on. */
static void test_end_of_a_channel_with_a_copy(void **state)
{
	struct srdma_channel c;
	int copy;

	(void)state;
	verbs_loop_end(&root, NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, c.end), 0);
	assert_int_equal(verbs_loop_watch(&root, c.end[HERE]), 0);
	copy = dup(c.end[HERE]);
	assert_int_equal(watched(), 1);
	verbs_loop_end(&root, &c);
	assert_int_equal(watched(), 0);
	close(copy);
	close(c.end[AGENT]);
}

static void test_one_thread(void **state)
{
	const struct verbs_loop *loop = root.loop;

	(void)state;
	assert_int_equal(verbs_loop_start(&root), 0);
	assert_ptr_equal(root.loop, loop);
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_descriptor_that_is_readable),
		cmocka_unit_test_setup_teardown(
			test_worker_whose_end_no_descriptor_tells,
			begin_with_a_silent_worker, end),
		TEST(test_end_of_a_channel_with_a_copy),
		TEST(test_one_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
