/*
 * Functions of libibverbs as a program sees them, and what they refuse (docs/run.md
 * 4). tests/e2e/test_run.py starts it by `srdma run`. No peer is needed.
 */
#include "open.h"

#include <fcntl.h>

static void test_device(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	const union ibv_gid empty = { 0 };
	struct ibv_gid_entry table[2];
	union ibv_gid gid;
	__be16 pkey;

	(void)state;
	assert_string_equal(ibv_get_device_name(ctx->device), "srdma0");
	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_int_equal(attr.max_sge, 28);
	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.flags, IBV_QPF_GRH_REQUIRED);
	assert_int_equal(ibv_query_port(ctx, 2, &port), EINVAL);
	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	assert_memory_equal(gid.raw + 10, "\xff\xff\x7f\0\0\1", 6);
	assert_int_equal(port.gid_tbl_len, 2);
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &gid), 0);
	assert_memory_equal(&gid, &empty, sizeof(gid));
	assert_int_equal(ibv_query_gid(ctx, 1, 2, &gid), -1);
	assert_int_equal(ibv_query_gid(ctx, 1, -1, &gid), -1);
	assert_int_equal(ibv_query_gid(ctx, 2, 0, &gid), -1);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, &entry, 1), EINVAL);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 1, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 2, &entry, 0), EINVAL);
	assert_int_equal(ibv_query_gid_table(ctx, table, 2, 0), 1);
	assert_int_equal(ibv_query_gid_table(ctx, &entry, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_table(ctx, &entry, 1, 1), -EOPNOTSUPP);
	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	assert_int_equal(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, pkey), 0);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, 1), -1);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(ibv_port_state_str(99), "unknown");
	assert_string_equal(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
	assert_string_equal(ibv_node_type_str(99), "unknown");
	assert_string_equal(ibv_event_type_str(99), "unknown");
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
	assert_int_equal(ibv_rate_to_mbps(99), -1);
	assert_int_equal(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
	assert_int_equal(mbps_to_ibv_rate(1), IBV_RATE_MAX);
	assert_int_equal(ibv_fork_init(), 0);
}

static void test_absent_functions(void **state)
{
	(void)state;
	errno = 0;
	assert_null(ibv_import_dm(ctx, 1));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void refuse_region(size_t length, unsigned access, int err)
{
	errno = 0;
	assert_null(ibv_reg_mr(pd, memory, length, (int)access));
	assert_int_equal(errno, err);
}

static void test_regions(void **state)
{
	struct ibv_mr *mr =
		ibv_reg_mr(pd, memory, LENGTH,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	(void)state;
	assert_non_null(mr);
	assert_int_equal(mr->lkey, mr->rkey);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	refuse_region(0, IBV_ACCESS_LOCAL_WRITE, EINVAL);
	refuse_region(LENGTH, IBV_ACCESS_REMOTE_WRITE, EINVAL);
	refuse_region(LENGTH, IBV_ACCESS_REMOTE_ATOMIC, EINVAL);
	refuse_region(LENGTH, IBV_ACCESS_MW_BIND, EOPNOTSUPP);
	assert_null(ibv_reg_mr_iova(pd, memory, LENGTH, UINT64_MAX - 1, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr_iova(pd, memory, LENGTH, (uintptr_t)memory + 1,
				    IBV_ACCESS_LOCAL_WRITE |
					    IBV_ACCESS_REMOTE_ATOMIC));
	assert_int_equal(errno, EINVAL);
}

/* --- queues ------------------------------------------------------------------ */

struct queues {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_qp_init_attr init_of(const struct queues *q)
{
	return (struct ibv_qp_init_attr){ .send_cq = q->cq,
					  .recv_cq = q->cq,
					  .cap = { DEPTH, DEPTH, 1, 1, 0 },
					  .qp_type = IBV_QPT_RC };
}

static void open_queues(struct queues *q)
{
	struct ibv_qp_init_attr init;

	q->channel = ibv_create_comp_channel(ctx);
	assert_non_null(q->channel);
	q->cq = ibv_create_cq(ctx, 2 * DEPTH, q, q->channel, 0);
	assert_non_null(q->cq);
	init = init_of(q);
	q->qp = ibv_create_qp(pd, &init);
	assert_non_null(q->qp);
}

/* A function that returns errno sets it too. */
static void refused(int result, int err)
{
	assert_int_equal(result, err);
	assert_int_equal(errno, err);
	errno = 0;
}

static void close_queues(struct queues *q)
{
	errno = 0;
	refused(ibv_destroy_comp_channel(q->channel), EBUSY);
	refused(ibv_destroy_cq(q->cq), EBUSY);
	refused(ibv_dealloc_pd(pd), EBUSY);
	refused(ibv_resize_cq(q->cq, 0), EINVAL);
	refused(to(q->qp, IBV_QPS_RTS), EINVAL);
	refused(ibv_set_ece(q->qp, NULL), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(q->qp), 0);
	assert_int_equal(ibv_destroy_cq(q->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(q->channel), 0);
}

static void refuse_qp(struct ibv_qp_init_attr init, int err)
{
	errno = 0;
	assert_null(ibv_create_qp(pd, &init));
	assert_int_equal(errno, err);
}

static void test_illegal_queues(void **state)
{
	struct queues q;
	struct ibv_qp_init_attr init;

	(void)state;
	assert_null(ibv_create_cq(ctx, 0, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, (1 << 20) + 1, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, 1, NULL, NULL, 1));
	assert_int_equal(errno, EINVAL);
	open_queues(&q);
#define REFUSE(ERR, FIELD, VALUE)                                              \
	do {                                                                   \
		init = init_of(&q);                                            \
		init.FIELD = VALUE;                                            \
		refuse_qp(init, ERR);                                          \
	} while (0)
	REFUSE(EOPNOTSUPP, qp_type, IBV_QPT_XRC_SEND);
	REFUSE(EINVAL, cap.max_send_sge, 29);
	REFUSE(EINVAL, cap.max_recv_sge, 29);
	REFUSE(EINVAL, cap.max_send_wr, 4097);
	REFUSE(EINVAL, cap.max_recv_wr, 4097);
	REFUSE(EINVAL, cap.max_inline_data, 449);
	REFUSE(EINVAL, recv_cq, NULL);
	close_queues(&q);
}

/* The leg has 16,384 records: the QP of open_queues() and three of 5,001 fit. */
static void test_depths_of_a_pd(void **state)
{
	struct queues q;
	struct ibv_qp_init_attr init;
	struct ibv_qp *deep[3];

	(void)state;
	open_queues(&q);
	init = init_of(&q);
	init.cap.max_send_wr = init.cap.max_recv_wr = 2500;
	for (int i = 0; i < 3; i++) {
		deep[i] = ibv_create_qp(pd, &init);
		assert_non_null(deep[i]);
	}
	refuse_qp(init, ENOSPC);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ibv_destroy_qp(deep[i]), 0);
	close_queues(&q);
}

/* --- states ---------------------------------------------------------------------- */

static int to_rtr(struct ibv_qp *qp, uint8_t last, int is_global)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = 77,
		.path_mtu = IBV_MTU_4096,
		.ah_attr = { .is_global = (uint8_t)is_global, .port_num = 1 },
	};

	memcpy(attr.ah_attr.grh.dgid.raw + 10, "\xff\xff\x0a\0\0", 5);
	attr.ah_attr.grh.dgid.raw[15] = last;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static void test_illegal_transitions(void **state)
{
	struct queues q;
	struct ibv_qp_attr attr = { .cur_qp_state = IBV_QPS_RTS };
	struct ibv_qp_init_attr init;

	(void)state;
	open_queues(&q);
	assert_int_equal(to(q.qp, IBV_QPS_INIT), EINVAL); /* no port */
	assert_int_equal(to(q.qp, IBV_QPS_RTS), EINVAL);
	assert_int_equal(to_init(q.qp), 0);
	assert_int_equal(ibv_modify_qp(q.qp, &attr, IBV_QP_CUR_STATE), EINVAL);
	assert_int_equal(to_rtr(q.qp, 1, 0), EINVAL); /* no GRH */
	assert_int_equal(to_rtr(q.qp, 1, 1), EACCES); /* no [[peer]] */
	assert_int_equal(ibv_query_qp(q.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_INIT);
	assert_int_equal(init.cap.max_send_wr, DEPTH);
	assert_int_equal(to(q.qp, IBV_QPS_ERR), 0);
	assert_int_equal(to(q.qp, IBV_QPS_RTS), EINVAL);
	close_queues(&q);
}

/* --- work requests ------------------------------------------------------------------ */

static int post_recv(struct ibv_qp *qp, uint64_t id, int sges)
{
	struct ibv_sge sge[2] = { 0 };
	struct ibv_recv_wr wr = { .wr_id = id,
				  .sg_list = sge,
				  .num_sge = sges };
	struct ibv_recv_wr *bad = NULL;
	int err = ibv_post_recv(qp, &wr, &bad);

	assert_ptr_equal(bad, err ? &wr : NULL);
	return err;
}

static int post_send(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int sges)
{
	struct ibv_sge sge[2] = { 0 };
	struct ibv_send_wr wr = { .wr_id = 9,
				  .sg_list = sge,
				  .num_sge = sges,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(qp, &wr, &bad);

	assert_ptr_equal(bad, err ? &wr : NULL);
	return err;
}

static void expect_flushed(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
}

static void test_work_requests(void **state)
{
	struct queues q;
	struct ibv_wc wc;

	(void)state;
	open_queues(&q);
	assert_int_equal(post_recv(q.qp, 1, 1), EINVAL); /* RESET */
	assert_int_equal(to_init(q.qp), 0);
	assert_int_equal(post_send(q.qp, IBV_WR_SEND, 1), EINVAL);
	assert_int_equal(post_recv(q.qp, 1, 2), EINVAL);
	for (uint64_t i = 1; i <= DEPTH; i++)
		assert_int_equal(post_recv(q.qp, i, 1), 0);
	assert_int_equal(post_recv(q.qp, 5, 1), ENOMEM);
	assert_int_equal(ibv_poll_cq(q.cq, 1, &wc), 0);
	assert_int_equal(ibv_poll_cq(q.cq, -1, &wc), -1);
	assert_int_equal(to(q.qp, IBV_QPS_ERR), 0);
	for (uint64_t i = 1; i <= DEPTH; i++)
		expect_flushed(q.cq, i);
	assert_int_equal(post_send(q.qp, IBV_WR_SEND, 2), EINVAL);
	assert_int_equal(post_send(q.qp, IBV_WR_SEND_WITH_INV, 1), EINVAL);
	assert_int_equal(post_send(q.qp, IBV_WR_SEND, 0), 0);
	expect_flushed(q.cq, 9);
	close_queues(&q);
}

static void test_completion_events(void **state)
{
	struct queues q;
	struct ibv_cq *cq;
	void *context;

	(void)state;
	open_queues(&q);
	assert_int_equal(fcntl(q.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_req_notify_cq(q.cq, 0), 0);
	assert_int_equal(ibv_get_cq_event(q.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(to_init(q.qp), 0);
	assert_int_equal(post_recv(q.qp, 1, 1), 0);
	assert_int_equal(to(q.qp, IBV_QPS_ERR), 0);
	assert_int_equal(ibv_get_cq_event(q.channel, &cq, &context), 0);
	assert_ptr_equal(cq, q.cq);
	assert_ptr_equal(context, &q);
	assert_int_equal(ibv_get_cq_event(q.channel, &cq, &context), -1);
	ibv_ack_cq_events(q.cq, 1);
	expect_flushed(q.cq, 1);
	close_queues(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_absent_functions),
		cmocka_unit_test(test_regions),
		cmocka_unit_test(test_illegal_queues),
		cmocka_unit_test(test_depths_of_a_pd),
		cmocka_unit_test(test_illegal_transitions),
		cmocka_unit_test(test_work_requests),
		cmocka_unit_test(test_completion_events),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
