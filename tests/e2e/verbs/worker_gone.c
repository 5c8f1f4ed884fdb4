/*
 * RESET of a QP when the worker has ended, and so makes no other QP (docs/run.md 4).
 * tests/e2e/test_run.py starts it by `srdma run`, waits for its line and ends the
 * worker.
 */
#include "open.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>

static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp;

static void make(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_qp_init_attr_ex attr = {
		.cap = { DEPTH, 0, 1, 0, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	srq = ibv_create_srq(pd, &srq_attr);
	attr.send_cq = attr.recv_cq = cq;
	attr.srq = srq;
	qp = ibv_create_qp_ex(ctx, &attr);
	assert_non_null(qp);
	assert_int_equal(to_init(qp), 0);
}

static void await_the_end_of_the_worker(void)
{
	struct ibv_async_event e;
	struct ibv_wc wc;

	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	puts("ready");
	fflush(stdout);
	do {
		while (ibv_get_async_event(ctx, &e)) {
			assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
			sched_yield();
		}
		ibv_ack_async_event(&e); /* the QP's, then that of the device */
	} while (e.event_type != IBV_EVENT_DEVICE_FATAL);
}

/* The QP is in RESET, takes no requests, and still needs its CQ and SRQ. */
static void test_reset_without_a_worker(void **state)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 8 };
	struct ibv_send_wr *bad_send, send = { .opcode = IBV_WR_SEND,
					       .sg_list = &sge,
					       .num_sge = 1,
					       .send_flags = IBV_SEND_INLINE };
	struct ibv_recv_wr *bad_recv, recv = { 0 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp_ex *ex;

	(void)state;
	make();
	await_the_end_of_the_worker();
	for (int i = 0; i < 2; i++)
		assert_int_not_equal(to(qp, IBV_QPS_RESET), 0);
	assert_int_not_equal(to_init(qp), 0);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RESET);
	assert_int_equal(ibv_post_send(qp, &send, &bad_send), EINVAL);
	assert_int_equal(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reset_without_a_worker),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
