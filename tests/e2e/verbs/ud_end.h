/* Ends with UD QPs, for the programs of this folder. */
#ifndef TESTS_E2E_VERBS_UD_END_H
#define TESTS_E2E_VERBS_UD_END_H

#include "device.h"

#include <stdlib.h>

enum { DEPTH = 16, GRH = 40, QKEY = 0x11111111 };

static void to(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state,
				    .port_num = 1,
				    .qkey = QKEY };

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask), 0);
}

static void to_rts(struct ibv_qp *qp)
{
	to(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	to(qp, IBV_QPS_RTR, 0);
	to(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

/* An end without a QP. */
static void open_memory(struct end *e, size_t length)
{
	e->memory = calloc(1, length);
	assert_non_null(e->memory);
	e->mr = ibv_reg_mr(pd, e->memory, length, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
	e->cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
	assert_non_null(e->cq);
}

static void close_end(const struct end *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	free(e->memory);
}

#endif
