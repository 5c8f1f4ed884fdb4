/* The time of WRITEs, which the standard output reports as `NAME MICROSECONDS`. */
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pair.h"

enum {
	SMALL = 32,
	SMALL_COUNT = 100,
	BULK = 2048,
	BULK_COUNT = 2000,
	DEEP = 96
};

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of signaled WRITEs, one at a time. */
static void measure_small(struct pair *p)
{
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, SMALL);
	double us[SMALL_COUNT];

	for (int i = 0; i < SMALL_COUNT; i++) {
		us[i] = now_us();
		pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
		us[i] = now_us() - us[i];
	}
	qsort(us, SMALL_COUNT, sizeof(*us), compare);
	printf("small %.0f\n", us[SMALL_COUNT / 2]);
}

/* Mean of signaled WRITEs, DEEP of which are outstanding. */
static void measure_bulk(struct pair *p)
{
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, BULK);
	const double start = now_us();
	struct srdma_wc wcs[DEEP];
	int posted = 0, done = 0;

	while (done < BULK_COUNT) {
		int n;

		for (; posted < BULK_COUNT && posted - done < DEEP; posted++)
			ok(srdma_post_send(p->a.qp, &wr, NULL));
		n = srdma_wait_cq(p->a.pd, DEEP, wcs, WAIT_MS);
		assert_true(n > 0);
		for (int i = 0; i < n; i++)
			assert_int_equal(wcs[i].status, SRDMA_WC_SUCCESS);
		done += n;
	}
	printf("bulk %.0f\n", (now_us() - start) / BULK_COUNT);
}

void test_speed(void **state)
{
	const struct srdma_qp_attr attr = { .sq = DEEP };
	struct pair deep = *(struct pair *)*state;

	measure_small(*state);
	ok(srdma_create_qp(&deep.a.qp, deep.a.pd, &attr));
	ok(srdma_create_qp(&deep.b.qp, deep.b.pd, NULL));
	pair_join(&deep);
	measure_bulk(&deep);
	ok(srdma_destroy_qp(deep.a.qp));
	ok(srdma_destroy_qp(deep.b.qp));
	srdma_disconnect(deep.a.connection);
	srdma_disconnect(deep.b.connection);
}
