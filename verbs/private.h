/* Functions of libibverbs.so.1 for librdmacm.so.1 of srdma. */
#ifndef VERBS_PRIVATE_H
#define VERBS_PRIVATE_H

#include <infiniband/verbs.h>

#include "host/channel.h"
#include "verbs/policy.h"

/* READs and atomics that a QP of the device has at once, of each end. */
enum { SRDMA_PRIVATE_RD_ATOMIC = 16 };

/* Both live as long as the context. */
struct srdma_private_self {
	const struct verbs_policy *policy;
	const struct srdma_agent_place *agent;
};

void srdma_private_self(struct ibv_context *context,
			struct srdma_private_self *self);

/* The state of the connection of a QP that is in RTR or RTS. 1: it has keys;
 * 0: they are being made; -ENOENT: no such QP; -ENOLINK: it has no connection;
 * -ENOTCONN: it had one that ended. */
int srdma_private_link(struct ibv_context *context, uint32_t qp_num);

/* A UD QP sends to a multicast group, and receives from it if `attach`. Waits until
 * the agent has asked for the members. 0 or errno. */
int srdma_private_use_group(struct ibv_qp *qp, const uint8_t gid[SRDMA_GID_LEN],
			    int attach);
/* The QP does not send to the group any more, unless it is attached. */
void srdma_private_leave_group(struct ibv_qp *qp,
			       const uint8_t gid[SRDMA_GID_LEN]);

#endif
