/* Address handles: where a UD QP sends to (docs/run.md 4.1). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/group_gid.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"

/* 0, or errno: an address of this device has a GRH, with the GID of a peer that the
 * policy has, or of a multicast group. */
static int check(const struct verbs_root *root, const struct ibv_ah_attr *a)
{
	if (!a->is_global || a->grh.sgid_index || a->port_num != 1)
		return EINVAL;
	return verbs_gid_is_group(a->grh.dgid.raw) ||
			       verbs_policy_peer(root->policy, a->grh.dgid.raw)
		       ? 0
		       : EACCES;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct verbs_root *root = verbs_root_of(pd->context);
	int err = check(root, attr);
	struct verbs_ah *ah;

	if (err)
		return verbs_null(err);
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return verbs_null(ENOMEM);
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	ah->gid = attr->grh.dgid;
	pthread_mutex_lock(&root->lock);
	((struct verbs_pd *)pd)->users++;
	pthread_mutex_unlock(&root->lock);
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct verbs_root *root = verbs_root_of(ah->context);

	pthread_mutex_lock(&root->lock);
	((struct verbs_pd *)ah->pd)->users--;
	pthread_mutex_unlock(&root->lock);
	free(ah);
	return 0;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
			struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *ah_attr)
{
	(void)context;
	if (port_num != 1 || !(wc->wc_flags & IBV_WC_GRH)) {
		errno = EINVAL;
		return -1;
	}
	*ah_attr = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = port_num,
		.dlid = wc->slid,
		.sl = wc->sl,
		.grh = { .dgid = grh->sgid, .hop_limit = UINT8_MAX },
	};
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
				     struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
