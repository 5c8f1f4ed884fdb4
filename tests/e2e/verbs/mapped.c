/*
 * Memory of regions that the worker maps (docs/run.md 4.2).
 * tests/e2e/test_run.py starts it by `srdma run`, with map_memory = true.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"

enum { SIZE = 1 << 20 };

/* Mappings of memfds of regions in this process. */
static int count(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, "/memfd:srdma-region") != NULL;
	fclose(file);
	return n;
}

static void test_region(void **state)
{
	char *at = aligned_alloc(4096, SIZE);
	struct ibv_mr *mr[3];

	(void)state;
	assert_non_null(at);
	memset(at, 7, SIZE);
	for (int i = 0; i < 2; i++)
		mr[i] = ibv_reg_mr(pd, at, SIZE, IBV_ACCESS_LOCAL_WRITE);
	mr[2] = ibv_reg_mr(pd, at + 1, 10, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(count(), 1);
	for (int i = 0; i < 3; i++) {
		assert_non_null(mr[i]);
		assert_int_equal(count(), 1);
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	}
	assert_int_equal(count(), 0);
	for (int i = 0; i < SIZE; i++)
		assert_int_equal(at[i], 7);
	free(at);
}

/* A region that the worker refuses leaves the memory as it was. */
static void test_refused_region(void **state)
{
	char *at = aligned_alloc(4096, SIZE);

	(void)state;
	assert_non_null(at);
	memset(at, 7, SIZE);
	assert_null(ibv_reg_mr_iova(pd, at, SIZE, UINT64_MAX - 8,
				    IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(count(), 0);
	assert_int_equal(at[SIZE - 1], 7);
	free(at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_region),
		cmocka_unit_test(test_refused_region),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
