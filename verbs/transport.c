#include "verbs/transport.h"

#include <stddef.h>

#define BIT(OPCODE) (1u << IBV_WR_##OPCODE)

enum {
	SEND_OPCODES = BIT(SEND) | BIT(SEND_WITH_IMM),
	WRITE_OPCODES = BIT(RDMA_WRITE) | BIT(RDMA_WRITE_WITH_IMM),
	SENDS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	WRITES = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	RETRIES = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
};

static const struct verbs_transport transports[] = {
	[IBV_QPT_RC] = {
		.opcodes = SEND_OPCODES | WRITE_OPCODES | BIT(RDMA_READ) |
			   BIT(ATOMIC_CMP_AND_SWP) | BIT(ATOMIC_FETCH_AND_ADD) |
			   BIT(ATOMIC_WRITE),
		.operations = SENDS | WRITES | IBV_QP_EX_WITH_RDMA_READ |
			      IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
			      IBV_QP_EX_WITH_ATOMIC_WRITE,
		.rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC,
		.limits = RETRIES,
	},
	/* Its peer may be an RC QP, which must not READ here. */
	[IBV_QPT_UC] = {
		.opcodes = SEND_OPCODES | WRITE_OPCODES,
		.operations = SENDS | WRITES,
		.rights = IBV_ACCESS_REMOTE_WRITE,
		.absent = RETRIES | IBV_QP_MIN_RNR_TIMER |
			  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
		.limits = IBV_QP_SQ_PSN, /* which RTS needs */
	},
	[IBV_QPT_UD] = { .opcodes = SEND_OPCODES, .operations = SENDS },
};

const struct verbs_transport *verbs_transport_of(enum ibv_qp_type type)
{
	return type < sizeof(transports) / sizeof(*transports) &&
			       transports[type].opcodes
		       ? &transports[type]
		       : NULL;
}
