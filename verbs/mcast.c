/* Attaching UD QPs to multicast groups (docs/run.md 4.1). */
#include <infiniband/verbs.h>

#include "verbs/group_gid.h"
#include "verbs/private.h"
#include "verbs/ud.h"
#include "verbs/verbs.h"

/* 0 or errno. */
static int check(const struct ibv_qp *qp, const union ibv_gid *gid)
{
	return qp->qp_type == IBV_QPT_UD && verbs_gid_is_group(gid->raw)
		       ? 0
		       : EINVAL;
}

/* The LID names no group on an Ethernet port. */
int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	int err = check(ibv, gid);

	(void)lid;
	return verbs_result(err ? err
				: srdma_private_use_group(ibv, gid->raw, 1));
}

int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err = check(ibv, gid);

	(void)lid;
	if (err)
		return verbs_result(err);
	pthread_mutex_lock(&root->lock);
	err = ud_group_detach((struct verbs_qp *)ibv, gid->raw);
	pthread_mutex_unlock(&root->lock);
	return verbs_result(err);
}
