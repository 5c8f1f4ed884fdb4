/* A QP of the programs of this folder, and its states. */
#ifndef TESTS_E2E_VERBS_OPEN_H
#define TESTS_E2E_VERBS_OPEN_H

#include "device.h"

enum { DEPTH = 4, LENGTH = 4096 };

static char memory[LENGTH];

static inline int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags =
					    IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_ATOMIC };

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

static inline int to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* To RTS, with a QP of the same worker. */
static inline void connect_to(struct ibv_qp *qp, uint32_t qp_num)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = qp_num,
		.path_mtu = IBV_MTU_4096,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	assert_int_equal(ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV |
					       IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER),
			 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

#endif
