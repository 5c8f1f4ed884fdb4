/*
 * Shared receive queues as a program sees them (docs/run.md 4). tests/e2e/test_run.py
 * starts it by `srdma run`. Both QPs of a test are of the same worker.
 */
#include "open.h"

#include <fcntl.h>
#include <sched.h>

/* QP 0 sends; QP 1 takes receives of the SRQ. */
struct shared {
	struct ibv_cq *cq[2];
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
};

enum { SGES = 3, MOST = 28 /* SGEs of the device */ };

static struct ibv_srq_init_attr srq_attr(void)
{
	return (struct ibv_srq_init_attr){ .attr = { .max_wr = DEPTH,
						     .max_sge = SGES } };
}

static struct ibv_qp_init_attr qp_attr(const struct shared *s, int i)
{
	return (struct ibv_qp_init_attr){ .send_cq = s->cq[i],
					  .recv_cq = s->cq[i],
					  .srq = i ? s->srq : NULL,
					  .cap = { DEPTH, DEPTH, 1, 1, 0 },
					  .qp_type = IBV_QPT_RC,
					  .sq_sig_all = 1 };
}

static void open_srq(struct shared *s)
{
	struct ibv_srq_init_attr attr = srq_attr();

	s->srq = ibv_create_srq(pd, &attr);
	assert_non_null(s->srq);
	s->mr = ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(s->mr);
}

static void open_qps(struct shared *s)
{
	struct ibv_qp_init_attr init;

	for (int i = 0; i < 2; i++) {
		s->cq[i] = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
		assert_non_null(s->cq[i]);
		init = qp_attr(s, i);
		s->qp[i] = ibv_create_qp(pd, &init);
		assert_non_null(s->qp[i]);
		assert_int_equal(to_init(s->qp[i]), 0);
	}
	assert_int_equal(init.cap.max_recv_wr, 0); /* it has none of its own */
}

static void open_shared(struct shared *s)
{
	open_srq(s);
	open_qps(s);
}

static void connect_shared(const struct shared *s)
{
	for (int i = 0; i < 2; i++)
		connect_to(s->qp[i], s->qp[!i]->qp_num);
}

static void close_shared(struct shared *s)
{
	assert_int_equal(ibv_destroy_srq(s->srq), s->qp[1] ? EBUSY : 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(s->qp[i] ? ibv_destroy_qp(s->qp[i]) : 0, 0);
	if (s->qp[1])
		assert_int_equal(ibv_destroy_srq(s->srq), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_cq(s->cq[i]), 0);
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
}

static int post(const struct shared *s, uint64_t id, int sges)
{
	struct ibv_sge sge[SGES + 1] = {
		{ .addr = (uintptr_t)memory, .length = 64, .lkey = s->mr->lkey }
	};

	return post_to_srq(s->srq, id, sge, sges);
}

static void poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)))
		sched_yield();
	assert_int_equal(n, 1);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
}

/* Sends a message, and waits until the peer has it. */
static void send_one(const struct shared *s)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND };
	struct ibv_wc wc;

	assert_int_equal(ibv_post_send(s->qp[0], &wr, &bad), 0);
	poll_one(s->cq[0], &wc);
}

static void expect_no_event(void)
{
	struct ibv_async_event e;

	assert_int_equal(ibv_get_async_event(ctx, &e), -1);
	assert_int_equal(errno, EAGAIN);
}

/* --- tests ------------------------------------------------------------------------- */

static void test_attributes(void **state)
{
	struct ibv_device_attr device;
	struct ibv_srq_attr attr;
	struct ibv_qp_attr qp;
	struct ibv_qp_init_attr init;
	struct shared s;

	(void)state;
	assert_int_equal(ibv_query_device(ctx, &device), 0);
	assert_int_equal(device.max_srq_wr, 4096);
	assert_int_equal(device.max_srq_sge, MOST);
	open_shared(&s);
	assert_int_equal(ibv_query_srq(s.srq, &attr), 0);
	assert_int_equal(attr.max_wr, DEPTH);
	assert_int_equal(attr.max_sge, SGES);
	assert_int_equal(attr.srq_limit, 0);
	attr.srq_limit = DEPTH + 1;
	assert_int_equal(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.srq_limit = DEPTH;
	assert_int_equal(ibv_modify_srq(s.srq, &attr, IBV_SRQ_MAX_WR),
			 EOPNOTSUPP);
	assert_int_equal(ibv_modify_srq(s.srq, &attr, 0), 0);
	assert_int_equal(ibv_query_srq(s.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	assert_int_equal(ibv_query_qp(s.qp[1], &qp, IBV_QP_CAP, &init), 0);
	assert_ptr_equal(init.srq, s.srq);
	close_shared(&s);
}

static void refuse(struct ibv_srq_init_attr attr)
{
	errno = 0;
	assert_null(ibv_create_srq(pd, &attr));
	assert_int_equal(errno, EINVAL);
}

static void refuse_ex(struct ibv_srq_init_attr_ex attr, int err)
{
	attr.attr = srq_attr().attr;
	errno = 0;
	assert_null(ibv_create_srq_ex(ctx, &attr));
	assert_int_equal(errno, err);
}

static void test_illegal_srqs(void **state)
{
	const uint32_t both = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	struct ibv_srq_init_attr_ex ex = { .attr = srq_attr().attr,
					   .comp_mask = both,
					   .srq_type = IBV_SRQT_BASIC,
					   .pd = pd };
	struct ibv_srq_init_attr attr = srq_attr();
	struct ibv_srq *srq;

	(void)state;
	attr.attr.max_wr = 0;
	refuse(attr);
	attr.attr.max_wr = 4097;
	refuse(attr);
	attr = srq_attr();
	attr.attr.max_sge = MOST + 1;
	refuse(attr);
	refuse_ex((struct ibv_srq_init_attr_ex){ .pd = pd }, EINVAL);
	refuse_ex((struct ibv_srq_init_attr_ex){ .comp_mask = both,
						 .srq_type = IBV_SRQT_XRC,
						 .pd = pd },
		  EOPNOTSUPP);
	refuse_ex(
		(struct ibv_srq_init_attr_ex){
			.comp_mask = both | IBV_SRQ_INIT_ATTR_CQ, .pd = pd },
		EOPNOTSUPP);
	srq = ibv_create_srq_ex(ctx, &ex);
	assert_non_null(srq);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void test_qp_of_another_pd(void **state)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_qp_init_attr init;
	struct shared s;

	(void)state;
	open_shared(&s);
	init = qp_attr(&s, 1);
	errno = 0;
	assert_null(ibv_create_qp(other, &init));
	assert_int_equal(errno, EINVAL);
	close_shared(&s);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void test_receives(void **state)
{
	struct ibv_recv_wr *bad = NULL, own = { 0 };
	struct shared s;
	struct ibv_wc wc;

	(void)state;
	open_shared(&s);
	connect_shared(&s);
	assert_int_equal(ibv_post_recv(s.qp[1], &own, &bad), EINVAL);
	for (uint64_t id = 1; id <= DEPTH; id++)
		assert_int_equal(post(&s, id, 1), 0);
	assert_int_equal(post(&s, 9, 1), ENOMEM);
	for (uint64_t id = 1; id <= DEPTH; id++) {
		send_one(&s);
		poll_one(s.cq[1], &wc);
		assert_int_equal(wc.wr_id, id);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.qp_num, s.qp[1]->qp_num);
	}
	assert_int_equal(post(&s, 9, 1), 0);
	close_shared(&s);
}

/* Receives that were posted before a QP could take them. */
/* A receive that is longer than a message can be. */
static int post_too_long(const struct shared *s)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory,
			       .length = (1U << 30) + 1,
			       .lkey = s->mr->lkey };

	return post_to_srq(s->srq, 9, &sge, 1);
}

static void test_receives_before_qps(void **state)
{
	struct shared s;
	struct ibv_wc wc;

	(void)state;
	open_srq(&s);
	assert_int_equal(post(&s, 9, SGES + 1), EINVAL);
	assert_int_equal(post_too_long(&s), EMSGSIZE);
	for (uint64_t id = 1; id <= DEPTH; id++)
		assert_int_equal(post(&s, id, 1), 0);
	assert_int_equal(post(&s, 9, 1), ENOMEM);
	open_qps(&s);
	assert_int_equal(post(&s, 9, 1), ENOMEM);
	connect_shared(&s);
	for (uint64_t id = 1; id <= DEPTH; id++) {
		send_one(&s);
		poll_one(s.cq[1], &wc);
		assert_int_equal(wc.wr_id, id);
	}
	assert_int_equal(post_too_long(&s), EMSGSIZE);
	assert_int_equal(post(&s, 9, 1), 0);
	close_shared(&s);
}

/* Receives with several SGEs, also on a QP that takes no other receives. */
static void check_lists(const struct shared *s)
{
	char *to = memory + LENGTH / 2;
	struct ibv_sge list[SGES + 1], all = { .addr = (uintptr_t)memory,
					       .length = 16 * SGES,
					       .lkey = s->mr->lkey };
	struct ibv_recv_wr *bad, recv = { .wr_id = 7, .sg_list = list };
	struct ibv_send_wr *bad_send,
		send = { .opcode = IBV_WR_SEND, .sg_list = &all, .num_sge = 1 };
	struct ibv_wc wc;

	for (int i = 0; i <= SGES; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)(to + 64 * i), 16,
					    s->mr->lkey };
	for (int i = 0; i < 16 * SGES; i++)
		memory[i] = (char)(i + 1);
	recv.num_sge = SGES + 1;
	assert_int_equal(ibv_post_srq_recv(s->srq, &recv, &bad), EINVAL);
	recv.num_sge = SGES;
	for (int n = 0; n < 2 * DEPTH; n++) {
		memset(to, 0, LENGTH / 2);
		assert_int_equal(ibv_post_srq_recv(s->srq, &recv, &bad), 0);
		assert_int_equal(ibv_post_send(s->qp[0], &send, &bad_send), 0);
		poll_one(s->cq[0], &wc);
		poll_one(s->cq[1], &wc);
		assert_int_equal(wc.wr_id, 7);
		assert_int_equal(wc.byte_len, 16 * SGES);
		for (int i = 0; i < SGES; i++) {
			assert_memory_equal(to + 64 * i, memory + 16 * i, 16);
			assert_int_equal(to[64 * i + 16], 0);
		}
	}
}

static void test_lists(void **state)
{
	struct shared s;

	(void)state;
	open_shared(&s);
	connect_shared(&s);
	check_lists(&s);
	close_shared(&s);
}

/*
 * RESET of both QPs. Receives that were not taken stay in the SRQ, and completions
 * that were not polled are gone: the SRQ has room for as many receives.
 */
static void test_reset(void **state)
{
	struct shared s;
	struct ibv_wc wc;

	(void)state;
	open_shared(&s);
	for (uint64_t round = 0; round < 3; round++) {
		connect_shared(&s);
		for (uint64_t id = 1; id <= DEPTH; id++)
			assert_int_equal(post(&s, id, 1), 0);
		send_one(&s);
		send_one(&s); /* of 1 and 2, which are not polled */
		for (int i = 0; i < 2; i++)
			assert_int_equal(to(s.qp[i], IBV_QPS_RESET), 0);
		assert_int_equal(ibv_poll_cq(s.cq[1], 1, &wc), 0);
		assert_int_equal(ibv_destroy_srq(s.srq), EBUSY);
		expect_no_event(); /* the QP is not in error */
		assert_int_equal(post(&s, 5, 1), 0);
		assert_int_equal(post(&s, 6, 1), 0);
		assert_int_equal(post(&s, 7, 1), ENOMEM);
		for (int i = 0; i < 2; i++)
			assert_int_equal(to_init(s.qp[i]), 0);
		connect_shared(&s);
		for (uint64_t id = 3; id <= 6; id++) {
			send_one(&s);
			poll_one(s.cq[1], &wc);
			assert_int_equal(wc.wr_id, id);
			assert_int_equal(wc.qp_num, s.qp[1]->qp_num);
		}
		check_lists(&s);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(to(s.qp[i], IBV_QPS_RESET), 0);
			assert_int_equal(to_init(s.qp[i]), 0);
		}
	}
	close_shared(&s);
	expect_no_event();
}

/* A QP that is in error works again, with the same SRQ. */
static void test_reset_after_an_error(void **state)
{
	struct shared s;
	struct ibv_wc wc;

	(void)state;
	open_shared(&s);
	connect_shared(&s);
	assert_int_equal(post(&s, 1, 1), 0);
	assert_int_equal(to(s.qp[1], IBV_QPS_ERR), 0);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, s.qp[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(to(s.qp[i], IBV_QPS_RESET), 0);
		assert_int_equal(to_init(s.qp[i]), 0);
	}
	connect_shared(&s);
	send_one(&s);
	poll_one(s.cq[1], &wc);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(to(s.qp[1], IBV_QPS_ERR), 0);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, s.qp[1]); /* once more */
	close_shared(&s);
}

static void test_limit(void **state)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct shared s;
	struct ibv_wc wc;

	(void)state;
	open_shared(&s);
	connect_shared(&s);
	for (uint64_t id = 1; id <= 3; id++)
		assert_int_equal(post(&s, id, 1), 0);
	assert_int_equal(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	send_one(&s);
	poll_one(s.cq[1], &wc);
	expect_no_event(); /* 2 are left */
	send_one(&s);
	poll_one(s.cq[1], &wc);
	expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	assert_int_equal(ibv_query_srq(s.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	send_one(&s);
	poll_one(s.cq[1], &wc);
	expect_no_event(); /* once for each limit */
	close_shared(&s);
}

static void test_last_wqe(void **state)
{
	struct shared s;

	(void)state;
	open_shared(&s);
	connect_shared(&s);
	assert_int_equal(to(s.qp[1], IBV_QPS_ERR), 0);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, s.qp[1]);
	assert_int_equal(to(s.qp[0], IBV_QPS_ERR), 0);
	expect_no_event(); /* it has no SRQ */
	close_shared(&s);
	expect_no_event();
}

/* The SRQ gets back the room of receives whose QP ends before they are polled. */
static void test_qp_that_ends_before_its_completions_are_polled(void **state)
{
	struct shared s;

	(void)state;
	open_shared(&s);
	connect_shared(&s);
	for (uint64_t id = 1; id <= DEPTH; id++)
		assert_int_equal(post(&s, id, 1), 0);
	send_one(&s);
	send_one(&s);
	assert_int_equal(ibv_destroy_qp(s.qp[1]), 0);
	s.qp[1] = NULL;
	assert_int_equal(post(&s, 5, 1), 0);
	assert_int_equal(post(&s, 6, 1), 0);
	assert_int_equal(post(&s, 7, 1), ENOMEM);
	close_shared(&s);
	expect_no_event();
}

static int setup_events(void **state)
{
	return setup(state) || fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
}

/* An argument is a pattern for the names of the tests to run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_illegal_srqs),
		cmocka_unit_test(test_qp_of_another_pd),
		cmocka_unit_test(test_receives),
		cmocka_unit_test(test_receives_before_qps),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_reset_after_an_error),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_last_wqe),
		cmocka_unit_test(
			test_qp_that_ends_before_its_completions_are_polled),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup_events, teardown);
}
