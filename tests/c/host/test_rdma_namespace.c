/* Loading libibverbs and librdmacm in a link namespace of their own. */
#include "host/rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/says.h"

/* The handle of a library of this namespace, and its path. */
static void *system_library(const char *name, const char **path)
{
	void *handle = dlopen(name, RTLD_NOW);
	struct link_map *map;

	assert_non_null(handle);
	assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
	*path = map->l_name;
	return handle;
}

static void test_without_paths_it_is_refused(void **state)
{
	const struct srdma_rdma *rdma;

	(void)state;
	srdma_rdma_set_paths("libibverbs.so.1", NULL);
	assert_int_equal(srdma_rdma_load(&rdma), -ENOTSUP);
	says("not found on this machine");
	srdma_rdma_set_paths("/no/libibverbs.so.1", "/no/librdmacm.so.1");
	assert_int_equal(srdma_rdma_load(&rdma), -ENOTSUP);
	says("/no/libibverbs.so.1");
}

static void test_functions_are_those_of_the_namespace(void **state)
{
	const struct srdma_rdma *rdma;
	const char *verbs, *cm;
	void *handle = system_library("libibverbs.so.1", &verbs), *own;

	(void)state;
	system_library("librdmacm.so.1", &cm);
	srdma_rdma_set_paths(verbs, cm);
	assert_int_equal(srdma_rdma_load(&rdma), 0);
	own = dlsym(handle, "ibv_alloc_pd");
	assert_non_null(own);
	assert_memory_not_equal(&rdma->alloc_pd, &own, sizeof(own));
	assert_string_equal(rdma->wc_status_str(IBV_WC_SUCCESS), "success");
}

static void test_errno_is_that_of_the_namespace(void **state)
{
	struct rdma_event_channel closed = { .fd = -1 };
	struct rdma_cm_event *event;
	const struct srdma_rdma *rdma;

	(void)state;
	assert_int_equal(srdma_rdma_load(&rdma), 0);
	srdma_rdma_clear_errno(rdma);
	errno = 0;
	assert_int_equal(rdma->get_cm_event(&closed, &event), -1);
	assert_int_not_equal(srdma_rdma_errno(rdma), 0);
	assert_int_equal(errno, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: what was loaded is kept */
		cmocka_unit_test(test_without_paths_it_is_refused),
		cmocka_unit_test(test_functions_are_those_of_the_namespace),
		cmocka_unit_test(test_errno_is_that_of_the_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
