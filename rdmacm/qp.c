/* The QP of an id, and the attributes that take it from state to state. */
#include <errno.h>
#include <string.h>

#include "rdmacm/objects.h"

enum { RNR_TIMER = 12, HOPS = 64 };

/* --- attributes ------------------------------------------------------------------ */

static int to_init(struct ibv_qp_attr *a, const struct cm_id *id)
{
	a->pkey_index = 0;
	a->port_num = 1;
	if (cm_is_ud(id)) {
		a->qkey = RDMA_UDP_QKEY;
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       IBV_QP_QKEY;
	}
	a->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       IBV_QP_ACCESS_FLAGS;
}

void cm_qp_address(struct ibv_ah_attr *a, const uint8_t gid[SRDMA_GID_LEN])
{
	*a = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = { .hop_limit = HOPS },
	};
	memcpy(a->grh.dgid.raw, gid, SRDMA_GID_LEN);
}

/* The mask, or 0: the peer is not known yet. */
static int to_rtr(struct ibv_qp_attr *a, const struct cm_id *id)
{
	if (cm_is_ud(id))
		return IBV_QP_STATE;
	if (!id->theirs.qp_num)
		return 0;
	cm_qp_address(&a->ah_attr, id->gid);
	a->path_mtu = IBV_MTU_4096;
	a->dest_qp_num = id->theirs.qp_num;
	a->rq_psn = 0;
	a->max_dest_rd_atomic = id->own.responder_resources;
	a->min_rnr_timer = RNR_TIMER;
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

/* As to_rtr(). */
static int to_rts(struct ibv_qp_attr *a, const struct cm_id *id)
{
	a->sq_psn = 0;
	if (cm_is_ud(id))
		return IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (!id->theirs.qp_num)
		return 0;
	a->timeout = id->timeout;
	a->retry_cnt = CM_RETRY_MAX;
	a->rnr_retry = id->theirs.rnr_retry_count;
	a->max_rd_atomic = id->own.initiator_depth;
	return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* The mask, or 0: there is no such transition, or the peer is not known yet. */
static int attributes(struct ibv_qp_attr *a, const struct cm_id *id)
{
	switch (a->qp_state) {
	case IBV_QPS_INIT:
		return id->rdma.verbs ? to_init(a, id) : 0;
	case IBV_QPS_RTR:
		return to_rtr(a, id);
	case IBV_QPS_RTS:
		return to_rts(a, id);
	default:
		return 0;
	}
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr,
		      int *qp_attr_mask)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own))
		return -1;
	*qp_attr_mask = attributes(qp_attr, own);
	return cm_done(own, *qp_attr_mask ? 0 : EINVAL);
}

/* --- states ------------------------------------------------------------------------- */

/* Takes a QP of the id through the states from one to the other. 0 or errno. */
static int move(const struct cm_id *id, struct ibv_qp *qp,
		enum ibv_qp_state from, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = { .qp_state = from };
	int err;

	do {
		err = ibv_modify_qp(qp, &a, attributes(&a, id));
		a.qp_state++;
	} while (!err && a.qp_state <= to);
	return err;
}

int cm_qp_connect(struct cm_id *id)
{
	return move(id, id->rdma.qp, IBV_QPS_RTR, IBV_QPS_RTS);
}

void cm_qp_error(struct cm_id *id)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	/* A program may have destroyed it without rdma_destroy_qp(). */
	if (id->rdma.qp &&
	    srdma_private_link(id->rdma.verbs, id->qp_num) != -ENOENT)
		ibv_modify_qp(id->rdma.qp, &a, IBV_QP_STATE);
}

void cm_qp_fail(struct cm_id *id)
{
	if (!cm_is_ud(id))
		cm_qp_error(id);
}

/* --- life ------------------------------------------------------------------------------ */

static struct ibv_cq *make_cq(struct rdma_cm_id *id, uint32_t depth,
			      struct ibv_comp_channel **channel)
{
	struct ibv_cq *cq;

	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return NULL;
	cq = ibv_create_cq(id->verbs, depth ? (int)depth : 1, id, *channel, 0);
	if (cq)
		return cq;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return NULL;
}

/* The objects that rdma_create_qp() made for an id. */
struct made {
	struct ibv_qp *qp;
	struct ibv_cq *cq[2];
	struct ibv_comp_channel *channel[2];
};

/* Takes it from the id, which has none of it afterwards. */
static struct made take_made(struct rdma_cm_id *id)
{
	const struct made m = {
		.qp = id->qp,
		.cq = { id->send_cq, id->recv_cq },
		.channel = { id->send_cq_channel, id->recv_cq_channel },
	};

	id->qp = NULL;
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
	return m;
}

static void destroy_made(const struct made *m)
{
	if (m->qp)
		ibv_destroy_qp(m->qp);
	for (int i = 0; i < 2; i++)
		if (m->cq[i])
			ibv_destroy_cq(m->cq[i]);
	for (int i = 0; i < 2; i++)
		if (m->channel[i])
			ibv_destroy_comp_channel(m->channel[i]);
}

/* CQs of the library, where the program gives none. */
static int make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (!a->send_cq) {
		id->send_cq =
			make_cq(id, a->cap.max_send_wr, &id->send_cq_channel);
		a->send_cq = id->send_cq;
	}
	if (!a->recv_cq) {
		id->recv_cq =
			make_cq(id, a->cap.max_recv_wr, &id->recv_cq_channel);
		a->recv_cq = id->recv_cq;
	}
	return a->send_cq && a->recv_cq ? 0 : -1;
}

static int take_pd(const struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = id->pd;
	}
	return a->pd->context == id->verbs ? 0 : cm_fail(EINVAL);
}

/* A QP in INIT, or of UD in RTS. 0 or errno. */
static int make_qp(struct ibv_qp **out, struct cm_id *id,
		   struct ibv_qp_init_attr_ex *attr)
{
	const enum ibv_qp_state last =
		cm_is_ud(id) ? IBV_QPS_RTS : IBV_QPS_INIT;
	int err;

	if (make_cqs(&id->rdma, attr))
		return errno;
	*out = ibv_create_qp_ex(id->rdma.verbs, attr);
	if (!*out)
		return errno;
	err = move(id, *out, IBV_QPS_INIT, last);
	if (err)
		ibv_destroy_qp(*out);
	return err;
}

static int create_qp(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *rdma = &id->rdma;
	struct made made;
	struct ibv_qp *qp;
	int err;

	if (rdma->qp || !rdma->verbs || attr->qp_type != rdma->qp_type ||
	    take_pd(rdma, attr))
		return EINVAL;
	if (!attr->srq)
		attr->srq = rdma->srq;
	err = make_qp(&qp, id, attr);
	if (err) {
		made = take_made(rdma);
		destroy_made(&made);
		return err;
	}
	rdma->qp = qp;
	rdma->pd = attr->pd;
	id->qp_num = qp->qp_num;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id,
		      struct ibv_qp_init_attr_ex *qp_init_attr)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own))
		return -1;
	return cm_done(own, create_qp(own, qp_init_attr));
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_context = qp_init_attr->qp_context,
		.send_cq = qp_init_attr->send_cq,
		.recv_cq = qp_init_attr->recv_cq,
		.srq = qp_init_attr->srq,
		.cap = qp_init_attr->cap,
		.qp_type = qp_init_attr->qp_type,
		.sq_sig_all = qp_init_attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	int r = rdma_create_qp_ex(id, &a);

	qp_init_attr->cap = a.cap;
	if (!r) { /* as librdmacm: the program sees what was chosen */
		qp_init_attr->send_cq = a.send_cq;
		qp_init_attr->recv_cq = a.recv_cq;
		qp_init_attr->srq = a.srq;
	}
	return r;
}

/* The calls wait for acknowledgements of events (ibv_destroy_qp(3)) without the id: a
 * thread that has read an event may call with the id before it acknowledges. */
void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id_of(id);
	struct made made;

	if (cm_hold(own))
		return;
	made = take_made(id);
	cm_done(own, 0);
	destroy_made(&made);
}
