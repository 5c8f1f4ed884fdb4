/* A libsrdma that was built without the headers of verbs. */
#include "host/leg_verbs_absent.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "host/objects.h"
#include "support/fake_worker.h"
#include "support/says.h"

static void test_worker_with_legs_over_verbs(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_device *device;
	struct srdma_host_leg *leg;

	w->legs = SRDMA_PORT_VERBS;
	assert_int_equal(srdma_open_device(&device, w->path, NULL), -ENOTSUP);
	assert_null(device);
	says("was built without RDMA");
	assert_int_equal(srdma_leg_verbs_create(&leg, NULL, 0), -ENOTSUP);
	assert_null(leg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_worker_with_legs_over_verbs, fake_worker_setup,
			fake_worker_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
