/*
 * Each call of a host's leg over verbs to the system and to the allocator fails
 * once, at a fake device, and each call of the search for the device that reaches
 * the worker (docs/rdma.md). The function says what failed and leaves nothing.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "host/error.h"
#include "host/host_device.h"
#include "host/leg_verbs.h"
#include "host/socket.h"
#include "srdma/device.h"
#include "support/descriptors.h"
#include "support/fake_rdma.h"

enum { RING = 64, WAIT_MS = 5000 };

int srdma_rdma_load(const struct srdma_rdma **out)
{
	return fake_rdma_load(out);
}

/* A failure has a text. */
static void judge(int r, const char *failed)
{
	if (r && !failed)
		fail_msg("no fault, and the result is %d: %s", r,
			 srdma_error_text());
	if (r)
		assert_true(r < 0 && *srdma_error_text());
}

static void create(void *ctx, unsigned long n)
{
	static const struct srdma_leg_verbs_params params = {
		.address = "127.0.0.1:4791",
		.token = "the token of leg",
		.ring = RING,
	};
	const int before = count_descriptors();
	struct srdma_host_leg *leg;
	int r;

	(void)ctx;
	srdma_error_set(0, "%s", "");
	faults_arm(n);
	r = srdma_leg_verbs_create(&leg, &params,
				   srdma_socket_deadline(WAIT_MS));
	judge(r, faults_disarm());
	if (r)
		assert_null(leg);
	else
		leg->ops->destroy(leg);
	assert_int_equal(fake_rdma.objects, 0);
	assert_int_equal(count_descriptors(), before);
}

static void test_leg_is_created_or_not(void **state)
{
	(void)state;
	assert_true(faults_each(create, NULL) > 4);
}

/* A folder that cannot be read has no devices: the refusal names none. */
static void find(void *ctx, unsigned long n)
{
	struct srdma_host_route route = { .own = { 0 } };
	struct sockaddr_in *peer = (struct sockaddr_in *)&route.peer;
	int r;

	(void)ctx;
	peer->sin_family = AF_INET;
	peer->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	faults_arm(n);
	r = srdma_host_device_route(&route, "/sys", "none");
	faults_disarm();
	assert_int_equal(r, -ENODEV);
	assert_true(*srdma_error_text());
}

static void test_device_is_not_found(void **state)
{
	(void)state;
	assert_true(faults_each(find, NULL) > 0);
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"timerfd_create", "epoll_create1", "eventfd",
		"calloc",	  "opendir",	   NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_leg_is_created_or_not,
						fake_rdma_setup,
						fake_rdma_teardown),
		cmocka_unit_test(test_device_is_not_found),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
