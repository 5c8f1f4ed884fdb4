/* The SRQ of an id. A QP of the id takes its receives (qp.c). */
#include <errno.h>

#include "rdmacm/objects.h"

static int create_srq(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || id->srq ||
	    !id->verbs)
		return EINVAL;
	if (cm_id_of(id)->srq_ends) /* it may have to stay */
		return EBUSY;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (attr->pd->context != id->verbs)
		return EINVAL;
	id->srq = ibv_create_srq_ex(id->verbs, attr);
	return id->srq ? 0 : errno;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own))
		return -1;
	return cm_done(own, create_srq(id, attr));
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex a = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	int r = rdma_create_srq_ex(id, &a);

	attr->attr = a.attr;
	return r;
}

/* A SRQ that a QP uses stays. The call waits for acknowledgements of events
 * (ibv_destroy_srq(3)) without the id: a thread may call with the id before its own. */
void rdma_destroy_srq(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id_of(id);
	struct ibv_srq *srq;
	int failed;

	if (cm_hold(own))
		return;
	srq = id->srq;
	id->srq = NULL;
	own->srq_ends |= srq != NULL;
	cm_done(own, 0);
	if (!srq)
		return;
	failed = ibv_destroy_srq(srq);
	if (cm_hold(own))
		return;
	own->srq_ends = 0;
	if (failed)
		id->srq = srq;
	cm_done(own, 0);
}
