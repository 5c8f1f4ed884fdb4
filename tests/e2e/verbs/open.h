/* A QP of the programs of this folder, and its states. */
#ifndef TESTS_E2E_VERBS_OPEN_H
#define TESTS_E2E_VERBS_OPEN_H

#include "connect.h"
#include "device.h"

enum { DEPTH = 4, LENGTH = 4096 };

static char memory[LENGTH] __attribute__((unused));

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
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	assert_int_equal(qp_to_rts(qp, &gid, qp_num), 0);
}

#endif
