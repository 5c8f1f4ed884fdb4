/*
 * UC QPs (docs/run.md 4). tests/e2e/test_run.py starts it by `srdma run`. Both QPs of a
 * test are of the same worker.
 */
#include "open.h"

#include <arpa/inet.h>
#include <sched.h>

enum { IMM = 0x1234, REMOTE = LENGTH / 2, LAST = DEPTH };

static struct ibv_cq *cq[2];
static struct ibv_qp *qp[2];
static struct ibv_srq *srq;
static struct ibv_mr *mr;

/* --- two ends ---------------------------------------------------------------------- */

static struct ibv_qp *make(int i, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq[i],
		.recv_cq = cq[i],
		.srq = i ? srq : NULL,
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = type,
		.sq_sig_all = 1,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};

	return ibv_create_qp_ex(ctx, &init);
}

/* type: of the QP that sends. The other one is UC. */
static void open_ends(enum ibv_qp_type type)
{
	mr = ibv_reg_mr(pd, memory, LENGTH,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(mr);
	memset(memory, 0, LENGTH);
	for (int i = 0; i < 2; i++) {
		cq[i] = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
		assert_non_null(cq[i]);
		qp[i] = make(i, i ? IBV_QPT_UC : type);
		assert_non_null(qp[i]);
		assert_int_equal(to_init(qp[i]), 0);
	}
}

static void close_ends(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static int to_rtr(int i, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_4096,
				    .dest_qp_num = qp[!i]->qp_num,
				    .ah_attr = { .is_global = 1,
						 .port_num = 1 } };

	assert_int_equal(ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid), 0);
	return ibv_modify_qp(qp[i], &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | mask);
}

static int to_rts(int i, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	return ibv_modify_qp(qp[i], &attr, IBV_QP_STATE | mask);
}

static void connect_uc(int i)
{
	assert_int_equal(to_rtr(i, IBV_QP_RQ_PSN), 0);
	assert_int_equal(to_rts(i, IBV_QP_SQ_PSN), 0);
}

static void connect_ends(void)
{
	connect_uc(0);
	connect_uc(1);
}

static int post(enum ibv_wr_opcode opcode, uint64_t id, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = id,
		       .sg_list = &sge,
		       .num_sge = 1,
		       .opcode = opcode,
		       .imm_data = htonl(IMM),
		       .wr.rdma = { .remote_addr = (uintptr_t)memory + REMOTE,
				    .rkey = rkey } };

	return ibv_post_send(qp[0], &wr, &bad);
}

static void post_recv(uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory + REMOTE, 64, mr->lkey };
	struct ibv_recv_wr *bad,
		wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(srq ? ibv_post_srq_recv(srq, &wr, &bad)
			     : ibv_post_recv(qp[1], &wr, &bad),
			 0);
}

static struct ibv_wc next_of(int i)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq[i], 1, &wc)))
		sched_yield();
	assert_int_equal(n, 1);
	return wc;
}

static void expect(int i, uint64_t id, enum ibv_wc_status status)
{
	const struct ibv_wc wc = next_of(i);

	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

/* The next message arrived, with the first 8 bytes of the memory and immediate data. */
static void expect_imm(uint64_t id, enum ibv_wc_opcode opcode)
{
	const struct ibv_wc wc = next_of(1);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), IMM);
	assert_memory_equal(memory + REMOTE, memory, 8);
}

/* --- states ------------------------------------------------------------------------ */

static void test_attributes(void **state)
{
	static const int absent[] = { IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT,
				      IBV_QP_RNR_RETRY,
				      IBV_QP_MAX_QP_RD_ATOMIC };

	(void)state;
	open_ends(IBV_QPT_UC);
	assert_int_equal(to_rtr(0, 0), EINVAL); /* no PSN */
	assert_int_equal(to_rtr(0, IBV_QP_RQ_PSN | IBV_QP_MIN_RNR_TIMER),
			 EINVAL);
	assert_int_equal(to_rtr(0, IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC),
			 EINVAL);
	assert_int_equal(to_rtr(0, IBV_QP_RQ_PSN), 0);
	assert_int_equal(to_rts(0, 0), EINVAL);
	for (unsigned i = 0; i < sizeof(absent) / sizeof(*absent); i++)
		assert_int_equal(to_rts(0, IBV_QP_SQ_PSN | absent[i]), EINVAL);
	assert_int_equal(to_rts(0, IBV_QP_SQ_PSN), 0);
	assert_int_equal(qp[0]->state, IBV_QPS_RTS);
	assert_int_equal(to(qp[0], IBV_QPS_ERR), 0);
	close_ends();
}

static void test_reset(void **state)
{
	(void)state;
	open_ends(IBV_QPT_UC);
	for (int round = 0; round < 2; round++) {
		connect_ends();
		memory[0] = (char)(1 + round);
		assert_int_equal(post(IBV_WR_RDMA_WRITE, 1, mr->rkey), 0);
		expect(0, 1, IBV_WC_SUCCESS);
		assert_int_equal(memory[REMOTE], 1 + round);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(to(qp[i], IBV_QPS_RESET), 0);
			assert_int_equal(to_init(qp[i]), 0);
		}
	}
	close_ends();
}

/* --- requests ---------------------------------------------------------------------- */

static void test_refused_requests(void **state)
{
	static const enum ibv_wr_opcode absent[] = {
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_WRITE,
		IBV_WR_SEND_WITH_INV,
	};
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	(void)state;
	open_ends(IBV_QPT_UC);
	connect_ends();
	for (unsigned i = 0; i < sizeof(absent) / sizeof(*absent); i++)
		assert_int_equal(post(absent[i], 1, mr->rkey), EINVAL);
	ex = ibv_qp_to_qp_ex(qp[0]);
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + REMOTE);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory + REMOTE);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	assert_int_equal(ibv_wr_complete(ex), EINVAL); /* none was posted */
	assert_int_equal(post(IBV_WR_RDMA_WRITE, 2, mr->rkey), 0);
	expect(0, 2, IBV_WC_SUCCESS);
	assert_int_equal(ibv_poll_cq(cq[0], 1, &wc), 0);
	close_ends();
}

static void test_refused_operations(void **state)
{
	static const uint64_t absent[] = {
		IBV_QP_EX_WITH_RDMA_READ,
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_UC,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
		init.send_ops_flags = absent[i];
		errno = 0;
		assert_null(ibv_create_qp_ex(ctx, &init));
		assert_int_equal(errno, EOPNOTSUPP);
	}
}

static void test_operations(void **state)
{
	(void)state;
	open_ends(IBV_QPT_UC);
	connect_ends();
	memory[0] = 1;
	assert_int_equal(post(IBV_WR_RDMA_WRITE, 1, mr->rkey), 0);
	expect(0, 1, IBV_WC_SUCCESS);
	assert_memory_equal(memory + REMOTE, memory, 8);
	post_recv(2);
	post_recv(3);
	memory[1] = 2;
	assert_int_equal(post(IBV_WR_RDMA_WRITE_WITH_IMM, 1, mr->rkey), 0);
	expect(0, 1, IBV_WC_SUCCESS);
	expect_imm(2, IBV_WC_RECV_RDMA_WITH_IMM);
	memory[2] = 3;
	assert_int_equal(post(IBV_WR_SEND_WITH_IMM, 1, 0), 0);
	expect(0, 1, IBV_WC_SUCCESS);
	expect_imm(3, IBV_WC_RECV);
	close_ends();
}

/* No message is lost: they wait for receives. */
static void test_receives_that_come_late(void **state)
{
	(void)state;
	open_ends(IBV_QPT_UC);
	connect_ends();
	for (uint64_t id = 1; id <= LAST; id++)
		assert_int_equal(post(IBV_WR_SEND, id, 0), 0);
	for (uint64_t id = 1; id <= LAST; id++)
		post_recv(id);
	for (uint64_t id = 1; id <= LAST; id++) {
		expect(0, id, IBV_WC_SUCCESS);
		expect(1, id, IBV_WC_SUCCESS);
	}
	close_ends();
}

static void test_srq(void **state)
{
	struct ibv_srq_init_attr init = { .attr = { DEPTH, 1, 0 } };

	(void)state;
	srq = ibv_create_srq(pd, &init);
	assert_non_null(srq);
	open_ends(IBV_QPT_UC);
	connect_ends();
	post_recv(2);
	assert_int_equal(post(IBV_WR_SEND_WITH_IMM, 1, 0), 0);
	expect(0, 1, IBV_WC_SUCCESS);
	expect_imm(2, IBV_WC_RECV);
	close_ends();
	assert_int_equal(ibv_destroy_srq(srq), 0);
	srq = NULL;
}

/* --- errors ------------------------------------------------------------------------ */

/* Errors are those of RC, so that no message is lost without a sign. */
static void test_wrong_key(void **state)
{
	(void)state;
	open_ends(IBV_QPT_UC);
	connect_ends();
	assert_int_equal(post(IBV_WR_RDMA_WRITE, 1, mr->rkey + 1), 0);
	expect(0, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(qp[0]->state, IBV_QPS_ERR);
	close_ends();
}

/* An RC QP as the peer may not do more than a UC QP. */
static void test_peer_that_reads(void **state)
{
	(void)state;
	open_ends(IBV_QPT_RC);
	connect_to(qp[0], qp[1]->qp_num);
	connect_uc(1);
	assert_int_equal(post(IBV_WR_RDMA_WRITE, 1, mr->rkey), 0);
	expect(0, 1, IBV_WC_SUCCESS);
	assert_int_equal(post(IBV_WR_RDMA_READ, 2, mr->rkey), 0);
	expect(0, 2, IBV_WC_REM_ACCESS_ERR);
	close_ends();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_refused_requests),
		cmocka_unit_test(test_refused_operations),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_receives_that_come_late),
		cmocka_unit_test(test_srq),
		cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_peer_that_reads),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
