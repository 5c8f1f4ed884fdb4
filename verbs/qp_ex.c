/* ibv_create_qp_ex(), and QPs with the functions ibv_wr_*() (batch.c). */
#include <errno.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

enum {
	KNOWN = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
		IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
};

/* Flags of a QP. */
static uint32_t flags_of(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS
		       ? attr->create_flags
		       : 0;
}

static int check(const struct ibv_qp_init_attr_ex *attr)
{
	const struct verbs_transport *t = verbs_transport_of(attr->qp_type);
	const uint32_t mask = attr->comp_mask;
	const uint32_t flags = attr->qp_type == IBV_QPT_UD
				       ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
				       : 0;

	if (!t || (mask & ~(uint32_t)KNOWN) || flags_of(attr) & ~flags ||
	    (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	     attr->send_ops_flags & ~t->operations))
		return EOPNOTSUPP;
	return mask & IBV_QP_INIT_ATTR_PD && attr->pd ? 0 : EINVAL;
}

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr init = { .qp_context = attr->qp_context,
					 .send_cq = attr->send_cq,
					 .recv_cq = attr->recv_cq,
					 .srq = attr->srq,
					 .cap = attr->cap,
					 .qp_type = attr->qp_type,
					 .sq_sig_all = attr->sq_sig_all };
	struct ibv_qp *qp;
	int err = check(attr);

	(void)context;
	if (err)
		return verbs_null(err);
	qp = ibv_create_qp(attr->pd, &init);
	if (!qp)
		return NULL;
	attr->cap = init.cap;
	((struct verbs_qp *)qp)->no_loop = flags_of(attr) != 0;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		err = verbs_batch_create((struct verbs_qp *)qp);
	if (!err)
		return qp;
	ibv_destroy_qp(qp);
	return verbs_null(err);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct verbs_qp *qp = (struct verbs_qp *)ibv;

	return qp->batch ? &qp->ex : verbs_null(EOPNOTSUPP);
}
