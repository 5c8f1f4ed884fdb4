/* The device and a PD of the programs of this folder, for cmocka. */
#ifndef TESTS_E2E_VERBS_DEVICE_H
#define TESTS_E2E_VERBS_DEVICE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <infiniband/verbs.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;

/* One of two ends. The second half of its memory receives. */
struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

/* The next event is of this type and object. */
static inline void expect_event(enum ibv_event_type type, const void *object)
{
	struct ibv_async_event e;

	assert_int_equal(ibv_get_async_event(ctx, &e), 0);
	assert_int_equal(e.event_type, type);
	assert_ptr_equal(e.element.qp, object);
	ibv_ack_async_event(&e);
}

/* 0 or errno. */
static inline int post_to_srq(struct ibv_srq *srq, uint64_t id,
			      struct ibv_sge *list, int sges)
{
	struct ibv_recv_wr wr = { .wr_id = id,
				  .sg_list = list,
				  .num_sge = sges };
	struct ibv_recv_wr *bad = NULL;
	int err = ibv_post_srq_recv(srq, &wr, &bad);

	assert_ptr_equal(bad, err ? &wr : NULL);
	return err;
}

static int setup(void **state)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	(void)state;
	if (!list || n != 1)
		return -1;
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	return pd ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	if (ibv_close_device(ctx) != -1 || errno != EBUSY || ibv_dealloc_pd(pd))
		return -1;
	return ibv_close_device(ctx);
}

#endif
