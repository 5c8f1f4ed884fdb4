/* Loading libibverbs and librdmacm. */
#include "host/rdma.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/says.h"

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
		struct srdma_rdma_names names;
		const char *text;
	} cases[] = {
		{ { "libno.so.1", "librdmacm.so.1" }, "libno.so.1" },
		{ { "libibverbs.so.1", "libno.so.2" }, "libno.so.2" },
		{ { "libibverbs.so.1", "libibverbs.so.1" },
		  "rdma_create_event_channel" },
	};
	struct srdma_rdma rdma;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(srdma_rdma_load_from(&rdma, &cases[i].names),
				 -ENOTSUP);
		says(cases[i].text);
		says("install libibverbs1");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libraries_of_this_machine),
		cmocka_unit_test(test_missing_library_and_function),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
