/*
 * Several threads that use one device, each with a PD of its own
 * (docs/c-library.md). `make tsan` runs this program with ThreadSanitizer.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "srdma/srdma.h"
#include "support/fake_worker.h"

enum { THREADS = 3, ROUNDS = 8, SIZE = 4096 };

struct user {
	pthread_t thread;
	struct srdma_device *device;
	unsigned good; /* rounds */
};

/* Makes and ends a PD with a region and a QP. Returns 0 or the first error. */
static int one_round(struct srdma_device *device)
{
	const struct srdma_mr_attr attr = { .length = SIZE };
	struct srdma_mr *mr = NULL;
	struct srdma_qp *qp = NULL;
	struct srdma_pd *pd;
	struct srdma_wc wc;
	int end, r = srdma_alloc_pd(&pd, device, NULL);

	if (r)
		return r;
	r = srdma_alloc_mr(&mr, pd, &attr);
	if (!r)
		r = srdma_create_qp(&qp, pd, NULL);
	if (!r)
		r = srdma_wait_cq(pd, 1, &wc, 1);
	end = srdma_destroy_qp(qp);
	r = r ? r : end;
	end = srdma_dereg_mr(mr);
	r = r ? r : end;
	end = srdma_dealloc_pd(pd);
	return r ? r : end;
}

static void *use(void *arg)
{
	struct user *u = arg;
	struct srdma_device_attr attr;

	while (u->good < ROUNDS && one_round(u->device) == 0) {
		srdma_query_device(u->device, &attr);
		u->good += !strcmp(attr.name, "fake");
	}
	return NULL;
}

static void test_threads_share_a_device(void **state)
{
	const struct fake_worker *w = *state;
	struct user users[THREADS] = { { .good = 0 } };
	struct srdma_device *device;

	assert_int_equal(srdma_open_device(&device, w->path, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		users[i].device = device;
		assert_int_equal(
			pthread_create(&users[i].thread, NULL, use, &users[i]),
			0);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(users[i].thread, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(users[i].good, ROUNDS);
	assert_int_equal(srdma_close_device(device), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_threads_share_a_device,
						fake_worker_setup,
						fake_worker_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
