/* Loading libibverbs and librdmacm. */
#include "host/rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/says.h"

/* The library of this name is replaced by another one. */
static struct {
	const char *name, *other;
} replaced;

void *dlopen(const char *name, int mode)
{
	void *found = dlsym(RTLD_NEXT, "dlopen");
	void *(*real)(const char *, int);

	memcpy(&real, &found, sizeof(real));
	if (replaced.name && name && !strcmp(name, replaced.name))
		name = replaced.other;
	return real(name, mode);
}

static void test_libraries_of_this_machine(void **state)
{
	const struct srdma_rdma *first, *second;

	(void)state;
	assert_int_equal(srdma_rdma_load(&first), 0);
	assert_int_equal(srdma_rdma_load(&second), 0);
	assert_ptr_equal(first, second);
	assert_string_equal(first->wc_status_str(IBV_WC_RETRY_EXC_ERR),
			    "transport retry counter exceeded");
	assert_string_equal(first->event_str(RDMA_CM_EVENT_REJECTED),
			    "RDMA_CM_EVENT_REJECTED");
}

static void test_missing_library_and_function(void **state)
{
	static const struct {
		const char *name, *other, *text;
	} cases[] = {
		{ "libibverbs.so.1", "libno.so.1", "libno.so.1" },
		{ "librdmacm.so.1", "libno.so.2", "libno.so.2" },
		{ "librdmacm.so.1", "libibverbs.so.1",
		  "rdma_create_event_channel" },
	};
	const struct srdma_rdma *rdma;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		replaced.name = cases[i].name;
		replaced.other = cases[i].other;
		assert_int_equal(srdma_rdma_load(&rdma), -ENOTSUP);
		says(cases[i].text);
		says("install libibverbs1");
	}
	replaced.name = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: what was loaded is kept */
		cmocka_unit_test(test_missing_library_and_function),
		cmocka_unit_test(test_libraries_of_this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
