/*
 * Each call of libsrdma to the system and to the allocator fails once, with a
 * worker that answers (docs/c-library.md). The function says what failed, leaves no
 * descriptor and no memory, and the objects that exist can be closed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "host/objects.h"
#include "srdma/srdma.h"
#include "support/descriptors.h"
#include "support/fake_worker.h"

enum { SIZE = 8192 };

struct program {
	struct fake_worker worker;
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_mr *own, *given;
	struct srdma_qp *qp, *holder;
	uint8_t memory[SIZE];
};

static int open_device(struct program *p)
{
	return srdma_open_device(&p->device, p->worker.path, NULL);
}

static int alloc_pd(struct program *p)
{
	return srdma_alloc_pd(&p->pd, p->device, NULL);
}

static int alloc_mr(struct program *p)
{
	const struct srdma_mr_attr attr = { .length = SIZE };

	return srdma_alloc_mr(&p->own, p->pd, &attr);
}

static int reg_mr(struct program *p)
{
	const struct srdma_mr_attr attr = { .addr = p->memory, .length = SIZE };

	return srdma_reg_mr(&p->given, p->pd, &attr);
}

static int create_qp(struct program *p)
{
	return srdma_create_qp(&p->qp, p->pd, NULL);
}

static int create_shared_queue(struct program *p)
{
	return srdma_shared_queue_create(&p->holder, p->pd, 4);
}

static int join_shared_queue(struct program *p)
{
	return srdma_shared_queue_join(p->qp, p->holder);
}

/* The worker completes nothing. */
static int wait_cq(struct program *p)
{
	struct srdma_wc wc;

	srdma_req_notify_cq(p->pd);
	return srdma_wait_cq(p->pd, 1, &wc, 1);
}

static int destroy_qp(struct program *p)
{
	int r = srdma_destroy_qp(p->qp);

	p->qp = r ? p->qp : NULL;
	return r;
}

static int dereg_mr(struct program *p)
{
	int r = srdma_dereg_mr(p->own);

	p->own = r ? p->own : NULL;
	return r;
}

/* In the order of a program. */
static int (*const steps[])(struct program *p) = {
	open_device,	     alloc_pd,		alloc_mr, reg_mr,     create_qp,
	create_shared_queue, join_shared_queue, wait_cq,  destroy_qp, dereg_mr,
};

enum { STEPS = sizeof(steps) / sizeof(*steps) };

/* Closes what there is. */
static void leave(struct program *p)
{
	assert_int_equal(srdma_destroy_qp(p->qp), 0);
	assert_int_equal(srdma_destroy_qp(p->holder), 0);
	assert_int_equal(srdma_dereg_mr(p->own), 0);
	assert_int_equal(srdma_dereg_mr(p->given), 0);
	if (p->pd)
		assert_int_equal(srdma_dealloc_pd(p->pd), 0);
	assert_int_equal(srdma_close_device(p->device), 0);
}

static void run(void *ctx, unsigned long n)
{
	const int step = *(int *)ctx, before = count_descriptors();
	struct program p = { .device = NULL };
	const char *name;
	int r;

	fake_worker_start(&p.worker);
	for (int i = 0; i < step; i++)
		assert_int_equal(steps[i](&p), 0);
	faults_arm(n);
	r = steps[step](&p);
	name = faults_disarm();
	if (r && !name)
		fail_msg("step %d failed without a fault: %d, %s", step, r,
			 srdma_error_text());
	if (r) {
		assert_true(r < 0);
		assert_true(*srdma_error_text());
	}
	leave(&p);
	fake_worker_stop(&p.worker);
	until_descriptors(before);
}

static void test_failed_calls_of_a_program(void **state)
{
	(void)state;
	for (int step = 0; step < STEPS; step++)
		assert_true(faults_each(run, &step) > 0);
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"socket",	"connect",   "getsockopt", "poll",
		"sendmsg",	"recvmsg",   "epoll_ctl",  "epoll_create1",
		"memfd_create", "ftruncate", "mmap",	   "calloc",
		"eventfd",	"realpath",  NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_calls_of_a_program),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
