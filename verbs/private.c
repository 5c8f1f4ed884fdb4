#include "verbs/private.h"

#include <errno.h>

#include "verbs/objects.h"
#include "verbs/ud.h"

void srdma_private_self(struct ibv_context *context,
			struct srdma_private_self *self)
{
	const struct verbs_root *root = verbs_root_of(context);

	self->policy = root->policy;
	self->agent = &root->device->agent;
}

int srdma_private_use_group(struct ibv_qp *qp, const uint8_t gid[SRDMA_GID_LEN],
			    int attach)
{
	struct verbs_root *root = verbs_root_of(qp->context);
	int err;

	pthread_mutex_lock(&root->lock);
	err = ud_group_use((struct verbs_qp *)qp, gid, attach);
	pthread_mutex_unlock(&root->lock);
	return err;
}

void srdma_private_leave_group(struct ibv_qp *qp,
			       const uint8_t gid[SRDMA_GID_LEN])
{
	struct verbs_root *root = verbs_root_of(qp->context);

	pthread_mutex_lock(&root->lock);
	ud_group_leave((struct verbs_qp *)qp, gid);
	pthread_mutex_unlock(&root->lock);
}

static int link_of(const struct verbs_qp *qp)
{
	if (!qp)
		return -ENOENT;
	if (!qp->connection)
		return -ENOLINK;
	if (qp->keyless || qp->peer_gone || qp->ibv.state == IBV_QPS_ERR)
		return -ENOTCONN;
	return !qp->connecting;
}

int srdma_private_link(struct ibv_context *context, uint32_t qp_num)
{
	struct verbs_root *root = verbs_root_of(context);
	int link;

	pthread_mutex_lock(&root->lock);
	verbs_collect(root);
	link = link_of(verbs_qp_find(root, qp_num));
	pthread_mutex_unlock(&root->lock);
	return link;
}
