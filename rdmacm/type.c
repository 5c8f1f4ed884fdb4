/* The differences between ids of RC and of UD (docs/run.md 5.1). */
#include <errno.h>

#include "rdmacm/objects.h"

static const struct cm_type connected = {
	.request = CM_REQUEST,
	.reply = CM_REPLY,
	.request_private = CM_REQUEST_PRIVATE,
	.reply_private = CM_REPLY_PRIVATE,
	.reject_private = CM_REJECT_PRIVATE,
	.rejected = RDMA_CM_EVENT_REJECTED,
	.no_service = CM_NO_SERVICE,
	.by_consumer = CM_BY_CONSUMER,
};

static const struct cm_type datagram = {
	.request = CM_UD_REQUEST,
	.reply = CM_UD_REPLY,
	.request_private = CM_UD_REQUEST_PRIVATE,
	.reply_private = CM_UD_REPLY_PRIVATE,
	.reject_private = CM_UD_REPLY_PRIVATE,
	.rejected = RDMA_CM_EVENT_UNREACHABLE,
	.no_service = CM_UD_NO_SERVICE,
	.by_consumer = CM_UD_BY_CONSUMER,
};

int cm_is_ud(const struct cm_id *id)
{
	return id->rdma.qp_type == IBV_QPT_UD;
}

const struct cm_type *cm_type_of(const struct cm_id *id)
{
	return cm_is_ud(id) ? &datagram : &connected;
}

int cm_type_check(enum ibv_qp_type type, enum rdma_port_space ps)
{
	const int has_rc = ps == RDMA_PS_TCP || ps == RDMA_PS_IB;
	const int has_ud = ps == RDMA_PS_UDP || ps == RDMA_PS_IB;
	const int legal =
		type == IBV_QPT_UD ? has_ud : has_rc && type == IBV_QPT_RC;

	return legal ? 0 : EOPNOTSUPP;
}

enum ibv_qp_type cm_type_usual(enum rdma_port_space ps)
{
	return ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
}
