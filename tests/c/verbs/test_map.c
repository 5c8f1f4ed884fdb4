/* Memory of regions that is moved into a memfd (verbs/map.c). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "verbs/map.h"

enum { PAGE = 4096, PAGES = 16, SIZE = PAGES * PAGE };

static struct verbs_range range[3];

static char *new_memory(int flags, int rights)
{
	char *at = mmap(NULL, SIZE, rights, flags | MAP_ANONYMOUS, -1, 0);

	assert_true(at != MAP_FAILED);
	if (rights & PROT_WRITE)
		for (int i = 0; i < SIZE; i++)
			at[i] = (char)(i % 251);
	return at;
}

static char *memory_of(void)
{
	return new_memory(MAP_PRIVATE, PROT_READ | PROT_WRITE);
}

static void expect_pattern(const char *at)
{
	for (int i = 0; i < SIZE; i++)
		assert_int_equal(at[i], (char)(i % 251));
}

/* The byte of a range as the worker sees it, which maps the memfd. */
static char *seen(const struct verbs_range *r)
{
	uint64_t offset;
	int fd = verbs_map_fd(r, &offset);
	char *at;

	assert_true(fd >= 0);
	assert_true(offset % PAGE + r->length <= SIZE);
	at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(at != MAP_FAILED);
	return at + offset;
}

static int is_moved(const struct verbs_range *r)
{
	uint64_t offset;

	return verbs_map_fd(r, &offset) >= 0;
}

/* 1: the memory would be moved. */
static int moves(void *addr, size_t length)
{
	int moved;

	verbs_map_enter(&range[0], addr, length, 1);
	moved = is_moved(&range[0]);
	verbs_map_leave(&range[0]);
	return moved;
}

static void expect_not_moved(void *addr, size_t length)
{
	assert_false(moves(addr, length));
}

static void test_memory_is_moved_and_moved_back(void **state)
{
	char *at = memory_of(), *theirs;

	(void)state;
	verbs_map_enter(&range[0], at, SIZE, 1);
	theirs = seen(&range[0]);
	expect_pattern(at);
	expect_pattern(theirs);
	theirs[5] = 77;
	assert_int_equal(at[5], 77);
	at[9] = 78;
	assert_int_equal(theirs[9], 78);
	verbs_map_leave(&range[0]);
	assert_int_equal(at[5], 77);
	theirs[5] = 1;
	assert_int_equal(at[5], 77);
	at[5] = 5;
	at[9] = 9;
	expect_pattern(at);
	munmap(theirs, SIZE);
	munmap(at, SIZE);
}

/* Pages in the middle of the heap, as of posix_memalign(). */
static void test_heap(void **state)
{
	char *at;

	(void)state;
	assert_int_equal(posix_memalign((void **)&at, PAGE, 2 * PAGE), 0);
	memset(at, 3, 2 * PAGE);
	verbs_map_enter(&range[0], at, 2 * PAGE, 1);
	assert_true(is_moved(&range[0]));
	assert_int_equal(at[2 * PAGE - 1], 3);
	verbs_map_leave(&range[0]);
	assert_int_equal(at[2 * PAGE - 1], 3);
	free(at);
}

/* Regions of the same memory have the same memfd; it stays as long as one does. */
static void test_regions_inside_a_region(void **state)
{
	char *at = memory_of(), *theirs;
	uint64_t offset;
	int fd;

	(void)state;
	verbs_map_enter(&range[0], at, SIZE, 1);
	verbs_map_enter(&range[1], at + 100, 200, 0);
	fd = verbs_map_fd(&range[0], &offset);
	assert_int_equal(offset, 0);
	assert_int_equal(verbs_map_fd(&range[1], &offset), fd);
	assert_int_equal(offset, 100);
	verbs_map_enter(&range[2], at + PAGE, SIZE, 1); /* ends outside */
	assert_false(is_moved(&range[2]));
	verbs_map_leave(&range[0]);
	theirs = seen(&range[1]) - 100;
	theirs[100] = 55;
	assert_int_equal(at[100], 55);
	/* The third one is written by its addresses, so nothing is moved. */
	verbs_map_leave(&range[1]);
	theirs[100] = 56;
	assert_int_equal(at[100], 56);
	verbs_map_leave(&range[2]);
	munmap(theirs, SIZE);
	munmap(at, SIZE);
}

static void test_memory_that_is_not_moved(void **state)
{
	static char page[PAGE] __attribute__((aligned(PAGE))) = { 1 };
	char *at = memory_of();
	char *shared = new_memory(MAP_SHARED, PROT_READ | PROT_WRITE);
	char *read_only = new_memory(MAP_PRIVATE, PROT_READ);

	(void)state;
	expect_not_moved(at + 1, PAGE);
	expect_not_moved(at, PAGE + 1);
	expect_not_moved(at, 0);
	expect_not_moved(shared, SIZE);
	expect_not_moved(read_only, SIZE);
	expect_not_moved(page, PAGE); /* of the program's file */
	expect_not_moved((void *)(UINTPTR_MAX - PAGE + 1), PAGE);
	verbs_map_enter(&range[0], at, SIZE, 0);
	assert_false(is_moved(&range[0]));
	/* The worker may be writing to it. */
	verbs_map_enter(&range[1], at, SIZE, 1);
	assert_false(is_moved(&range[1]));
	verbs_map_leave(&range[1]);
	verbs_map_leave(&range[0]);
	munmap(at + PAGE, PAGE);
	expect_not_moved(at, SIZE); /* it has a hole */
	munmap(at, SIZE);
	munmap(shared, SIZE);
	munmap(read_only, SIZE);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_mutex(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return arg;
}

/* Another thread may write to the memory while it is copied. */
static void test_program_with_threads(void **state)
{
	char *at = memory_of(), *further = memory_of(), *theirs;
	pthread_t thread;
	int moved;

	(void)state;
	verbs_map_enter(&range[1], at, SIZE, 1);
	theirs = seen(&range[1]);
	pthread_mutex_lock(&mutex);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_mutex, NULL),
			 0);
	moved = moves(further, SIZE);
	verbs_map_leave(&range[1]);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	munmap(further, SIZE);
	assert_false(moved);
	theirs[5] = 77; /* it stays in the memfd */
	assert_int_equal(at[5], 77);
	/* It may be enlarged, as by realloc(). */
	at = mremap(at, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	assert_true(at != MAP_FAILED);
	memset(at, 1, 2 * SIZE);
	munmap(theirs, SIZE);
	munmap(at, 2 * SIZE);
}

/* The program may unmap the memory before the region ends, and map other memory at
 * the same address. */
static void test_memory_that_was_unmapped(void **state)
{
	char *at = memory_of(), *other;

	(void)state;
	verbs_map_enter(&range[0], at, SIZE, 1);
	assert_true(is_moved(&range[0]));
	munmap(at, SIZE);
	other = mmap(at, SIZE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_equal(other, at);
	verbs_map_enter(&range[1], other, SIZE, 1);
	assert_false(is_moved(&range[1]));
	verbs_map_leave(&range[1]);
	munmap(other, SIZE);
	verbs_map_leave(&range[0]);
}

/* A child does not share the memory. */
static void test_fork(void **state)
{
	char *at = memory_of();
	pid_t child;
	int status;

	(void)state;
	verbs_map_enter(&range[0], at, SIZE, 1);
	assert_true(is_moved(&range[0]));
	child = fork();
	if (!child) {
		unsigned char there;

		_exit(!mincore(at, PAGE, &there));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	verbs_map_leave(&range[0]);
	expect_pattern(at);
	munmap(at, SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_is_moved_and_moved_back),
		cmocka_unit_test(test_heap),
		cmocka_unit_test(test_regions_inside_a_region),
		cmocka_unit_test(test_memory_that_is_not_moved),
		cmocka_unit_test(test_program_with_threads),
		cmocka_unit_test(test_memory_that_was_unmapped),
		cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
