/* Regions of a verbs leg: checks that need no device. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "port/verbs/port_verbs_impl.h"

enum { BASE = 0x1000, LENGTH = 0x2000, HOST_RKEY = 77 };

static void test_remote_atomic_needs_device_atomics(void **state)
{
	static const enum ibv_atomic_cap caps[] = { IBV_ATOMIC_NONE,
						    IBV_ATOMIC_HCA,
						    IBV_ATOMIC_GLOB };
	static struct srdma_verbs_port port;
	struct srdma_conn leg = { .port = &port.base };
	struct srdma_region_params p = {
		.addr = BASE, .length = LENGTH, .host_rkey = HOST_RKEY, .fd = -1
	};
	struct srdma_region *region;

	(void)state;
	for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
		port.limits.atomic_cap = caps[i];
		p.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
		assert_int_equal(srdma_verbs_leg_region_open(&leg, &p, &region),
				 0);
		assert_ptr_equal(region->leg, &leg);
		assert_int_equal(region->base, BASE);
		assert_int_equal(region->length, LENGTH);
		srdma_verbs_leg_region_close(region);
		p.access |= IBV_ACCESS_REMOTE_ATOMIC;
		port.base.why = NULL;
		if (caps[i] == IBV_ATOMIC_NONE) {
			assert_int_equal(
				srdma_verbs_leg_region_open(&leg, &p, &region),
				-EOPNOTSUPP);
			assert_non_null(strstr(port.base.why, "no atomics"));
			continue;
		}
		assert_int_equal(srdma_verbs_leg_region_open(&leg, &p, &region),
				 0);
		srdma_verbs_leg_region_close(region);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remote_atomic_needs_device_atomics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
