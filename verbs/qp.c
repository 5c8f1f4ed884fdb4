/*
 * Queue pairs. The QP of the worker is made with the QP of the program, because
 * a program tells its peer the QPN before it connects. The states RESET, INIT,
 * RTR and RTS are the program's; the worker has its own, and holds requests
 * until it has keys (docs/protocol.md 7.1).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/hash.h"
#include "host/connecting.h"
#include "verbs/objects.h"
#include "verbs/ud.h"
#include "verbs/verbs.h"
#include "wire/reason.h"

static unsigned bucket_of(uint32_t qp_num)
{
	return srdma_hash_bucket(qp_num, VERBS_QP_BUCKETS - 1);
}

struct verbs_qp *verbs_qp_find(const struct verbs_root *root, uint32_t qp_num)
{
	struct verbs_qp *qp = root->qps[bucket_of(qp_num)];

	while (qp && qp->ibv.qp_num != qp_num)
		qp = qp->next;
	return qp;
}

/* --- life ----------------------------------------------------------------------------- */

/* A PD and its parent domains have one leg. */
static const struct srdma_pd *leg_of(const struct ibv_pd *pd)
{
	return ((const struct verbs_pd *)pd)->pd;
}

static int check(const struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *cap = &a->cap;
	const uint32_t recvs =
		a->qp_type == IBV_QPT_UD ? VERBS_UD_RECVS : SRDMA_DEPTH_MAX;

	if (!verbs_transport_of(a->qp_type))
		return EOPNOTSUPP;
	if (!a->send_cq || !a->recv_cq || cap->max_send_wr > SRDMA_DEPTH_MAX ||
	    cap->max_recv_wr > recvs || cap->max_send_sge > SRDMA_SGE_MAX ||
	    cap->max_recv_sge > SRDMA_SGE_MAX ||
	    cap->max_inline_data > SRDMA_INLINE_MAX)
		return EINVAL;
	return a->srq && leg_of(a->srq->pd) != leg_of(pd) ? EINVAL : 0;
}

static int join(struct verbs_qp *qp)
{
	struct verbs_cq *send = (struct verbs_cq *)qp->ibv.send_cq;
	struct verbs_cq *recv = (struct verbs_cq *)qp->ibv.recv_cq;
	int fd = srdma_cq_fd(((struct verbs_pd *)qp->ibv.pd)->pd);
	int err = verbs_channel_watch(send, fd);

	if (!err)
		err = verbs_channel_watch(recv, fd);
	if (!err)
		err = verbs_cq_join(send, qp->sq);
	if (err)
		return err;
	err = verbs_cq_join(recv, qp->recv_room);
	if (err)
		verbs_cq_leave(send, qp->sq, qp->ibv.qp_num);
	return err;
}

/* The QP takes the receives of its SRQ, if it has one. 0 or errno. */
static int share(const struct verbs_qp *qp)
{
	struct verbs_srq *srq = (struct verbs_srq *)qp->ibv.srq;

	return srq && !qp->ud ? verbs_srq_join(srq, qp->qp) : 0;
}

/* The depths of the queues. */
static void set_depths(struct verbs_qp *qp, struct ibv_qp_cap *cap)
{
	const struct verbs_srq *srq = (const struct verbs_srq *)qp->ibv.srq;

	qp->sq = cap->max_send_wr ? cap->max_send_wr : 1;
	if (srq) {
		cap->max_recv_wr = cap->max_recv_sge = 0;
		qp->rq = SRDMA_SHARED_TAKEN;
		qp->recv_room = srq->attr.max_wr;
	} else {
		qp->rq = cap->max_recv_wr ? cap->max_recv_wr : 1;
		qp->recv_room = qp->rq;
	}
}

static int make_at_worker(struct verbs_qp *qp)
{
	const struct srdma_qp_attr attr = { .sq = qp->sq, .rq = qp->rq };

	return qp->ibv.qp_type == IBV_QPT_UD
		       ? verbs_ud_create(qp)
		       : srdma_create_qp(&qp->qp,
					 ((struct verbs_pd *)qp->ibv.pd)->pd,
					 &attr);
}

/* 0 or -errno. */
static int end_at_worker(struct verbs_qp *qp)
{
	int r = qp->ud ? verbs_ud_stop(qp->ud) : 0;

	if (!r)
		r = srdma_destroy_qp(qp->qp);
	if (!r && qp->ud)
		verbs_ud_destroy(qp);
	return r;
}

/* Makes the QP of the worker. 0 or errno. */
static int make(struct verbs_qp *qp)
{
	struct verbs_root *root = verbs_root_of(qp->ibv.context);
	struct srdma_qp_query query;
	int r = make_at_worker(qp), err;

	if (r)
		return verbs_error(r);
	srdma_query_qp(qp->qp, &query);
	qp->ibv.qp_num = query.qp_num;
	err = share(qp);
	if (!err)
		err = join(qp);
	if (err) {
		if (end_at_worker(qp) && qp->ud)
			verbs_ud_destroy(qp);
		qp->qp = NULL;
		return err;
	}
	qp->next = root->qps[bucket_of(query.qp_num)];
	root->qps[bucket_of(query.qp_num)] = qp;
	return 0;
}

/* The receives of an SRQ that the QP has completed are taken from the leg, so that
 * the SRQ has room for others. The QP makes no completions afterwards. */
static int settle_shared(struct verbs_qp *qp)
{
	int r = srdma_qp_flush(qp->qp, SRDMA_REASON_FLUSHED);

	if (r)
		return r;
	verbs_collect(verbs_root_of(qp->ibv.context));
	verbs_loss_known(qp);
	return 0;
}

/* Ends the QP of the worker, if there is one, with all its completions. 0 or
 * errno. */
static int end(struct verbs_qp *qp)
{
	struct verbs_root *root = verbs_root_of(qp->ibv.context);
	struct verbs_qp **at = &root->qps[bucket_of(qp->ibv.qp_num)];
	int r;

	if (!qp->qp)
		return 0;
	r = qp->ibv.srq && !qp->ud ? settle_shared(qp) : 0;
	if (!r)
		r = end_at_worker(qp);
	if (r)
		return verbs_error(r);
	/* After the QP, so that the peer gets all that was sent. */
	srdma_disconnect(qp->connection);
	qp->connection = NULL;
	qp->qp = NULL;
	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	verbs_cq_leave((struct verbs_cq *)qp->ibv.send_cq, qp->sq,
		       qp->ibv.qp_num);
	verbs_cq_leave((struct verbs_cq *)qp->ibv.recv_cq, qp->recv_room,
		       qp->ibv.qp_num);
	verbs_event_drop(root, &qp->last_wqe);
	return 0;
}

/* The PD, the CQs and the SRQ are in use until the QP of the program ends, also while
 * the worker has no QP for it. n: 1, or -1 at its end. */
static void hold(const struct verbs_qp *qp, int n)
{
	((struct verbs_pd *)qp->ibv.pd)->users += (unsigned)n;
	((struct verbs_cq *)qp->ibv.send_cq)->users += (unsigned)n;
	((struct verbs_cq *)qp->ibv.recv_cq)->users += (unsigned)n;
	if (qp->ibv.srq)
		((struct verbs_srq *)qp->ibv.srq)->users += (unsigned)n;
}

#undef ibv_create_qp
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct verbs_root *root = verbs_root_of(pd->context);
	struct verbs_qp *qp;
	int err = check(pd, init);

	if (err)
		return verbs_null(err);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return verbs_null(ENOMEM);
	qp->ibv = (struct ibv_qp){ .context = pd->context,
				   .qp_context = init->qp_context,
				   .pd = pd,
				   .send_cq = init->send_cq,
				   .recv_cq = init->recv_cq,
				   .srq = init->srq,
				   .state = IBV_QPS_RESET,
				   .qp_type = init->qp_type };
	qp->transport = verbs_transport_of(init->qp_type);
	set_depths(qp, &init->cap);
	qp->last_wqe.event.element.qp = &qp->ibv;
	qp->sq_sig_all = init->sq_sig_all;
	init->cap.max_inline_data = SRDMA_INLINE_MAX;
	if (!init->cap.max_send_sge)
		init->cap.max_send_sge = 1;
	if (!init->cap.max_recv_sge && !init->srq)
		init->cap.max_recv_sge = 1;
	qp->cap = init->cap;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	qp->flushed = verbs_domain_alloc((struct verbs_pd *)pd,
					 qp->rq * sizeof(*qp->flushed),
					 &qp->flushed_of_program);
	pthread_mutex_lock(&root->lock);
	err = qp->flushed ? make(qp) : ENOMEM;
	if (!err)
		hold(qp, 1);
	pthread_mutex_unlock(&root->lock);
	if (!err)
		return &qp->ibv;
	verbs_domain_free((struct verbs_pd *)pd, qp->flushed,
			  qp->flushed_of_program);
	free(qp);
	return verbs_null(err);
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct verbs_qp *qp = (struct verbs_qp *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err;

	pthread_mutex_lock(&root->lock);
	err = end(qp);
	if (!err) {
		hold(qp, -1);
		ud_group_drop_all(qp);
	}
	pthread_mutex_unlock(&root->lock);
	if (err)
		return verbs_result(err);
	verbs_acks_wait(&(struct verbs_acks){ &ibv->mutex, &ibv->cond,
					      &ibv->events_completed },
			qp->reported);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	verbs_batch_free(qp->batch);
	verbs_domain_free((struct verbs_pd *)ibv->pd, qp->flushed,
			  qp->flushed_of_program);
	free(qp);
	return 0;
}

/* --- states --------------------------------------------------------------------------- */

static int to_rtr(struct verbs_qp *qp)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;

	if (!ah->is_global || ah->grh.sgid_index || ah->port_num > 1)
		return EINVAL;
	return verbs_connect(qp);
}

/* The worker ends the QP, whose work requests complete. 0 or errno. */
static int flush(struct verbs_qp *qp)
{
	int r = srdma_qp_flush(qp->qp, SRDMA_REASON_FLUSHED);

	if (!r)
		verbs_loss_known(qp);
	return verbs_error(r);
}

static int to_error(struct verbs_qp *qp)
{
	if (!qp->ud)
		return flush(qp);
	verbs_ud_error(qp);
	return 0;
}

/* Drops the completions of the QP that the program has not polled. */
static void drop_completions(struct verbs_qp *qp)
{
	verbs_collect(verbs_root_of(qp->ibv.context));
	verbs_cq_drop((struct verbs_cq *)qp->ibv.send_cq, qp->ibv.qp_num);
	verbs_cq_drop((struct verbs_cq *)qp->ibv.recv_cq, qp->ibv.qp_num);
	verbs_event_drop(verbs_root_of(qp->ibv.context), &qp->last_wqe);
}

/* The worker makes the QP anew under its QPN, if the agent has released it
 * (docs/local-interface.md 3.6, REINIT). The QP of the worker of a UD QP
 * stays. 0, or errno: it has to be ended. */
static int again(struct verbs_qp *qp)
{
	int released;

	if (qp->ud)
		return qp->qp->status == SRDMA_QP_STATUS_INIT ? 0 : EAGAIN;
	released = srdma_connection_end(qp->connection);
	qp->connection = NULL;
	if (!released || srdma_qp_reinit(qp->qp))
		return EAGAIN;
	return share(qp);
}

/*
 * The worker has no state before INIT, so its QP is made anew, with its QPN if
 * that is possible. If no QP can be made, the QP is in RESET without one, and the
 * next change of the QP tries again.
 */
static int to_reset(struct verbs_qp *qp)
{
	int err = qp->ud ? verbs_error(verbs_ud_reset(qp)) : flush(qp);

	if (err)
		return err;
	drop_completions(qp);
	err = again(qp);
	if (err)
		err = end(qp);
	if (err)
		return err;
	qp->ibv.state = IBV_QPS_RESET;
	qp->attr = (struct ibv_qp_attr){ 0 };
	qp->connecting = qp->keyless = qp->peer_gone = 0;
	qp->recvs = qp->held = 0;
	return qp->qp ? 0 : make(qp);
}

static int nothing(struct verbs_qp *qp)
{
	(void)qp;
	return 0;
}

/* IBA 10.3.1: the transitions of RC that a program may request. */
static const struct transition {
	enum ibv_qp_state from, to;
	int needs; /* attributes, enum ibv_qp_attr_mask */
	int (*run)(struct verbs_qp *qp);
} transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, nothing },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, nothing },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  to_rtr },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  nothing },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, nothing },
	{ IBV_QPS_RESET, IBV_QPS_ERR, 0, to_error },
	{ IBV_QPS_INIT, IBV_QPS_ERR, 0, to_error },
	{ IBV_QPS_RTR, IBV_QPS_ERR, 0, to_error },
	{ IBV_QPS_RTS, IBV_QPS_ERR, 0, to_error },
	{ IBV_QPS_ERR, IBV_QPS_ERR, 0, nothing },
	{ IBV_QPS_RESET, IBV_QPS_RESET, 0, nothing },
	{ IBV_QPS_INIT, IBV_QPS_RESET, 0, to_reset },
	{ IBV_QPS_RTR, IBV_QPS_RESET, 0, to_reset },
	{ IBV_QPS_RTS, IBV_QPS_RESET, 0, to_reset },
	{ IBV_QPS_ERR, IBV_QPS_RESET, 0, to_reset },
};

/* UD QPs need other attributes. */
static const struct transition ud_transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, nothing },
	{ IBV_QPS_INIT, IBV_QPS_RTR, 0, verbs_ud_ready },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, nothing },
};

/* UC QPs need no attributes of retries and READs. */
static const struct transition uc_transitions[] = {
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	  to_rtr },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, nothing },
};

static const struct transition *find_in(const struct transition *t, size_t n,
					enum ibv_qp_state from,
					enum ibv_qp_state to)
{
	for (; n; n--, t++)
		if (t->from == from && t->to == to)
			return t;
	return NULL;
}

#define FIND_IN(TABLE, FROM, TO)                                               \
	find_in(TABLE, sizeof(TABLE) / sizeof(*(TABLE)), FROM, TO)

static const struct transition *find(const struct verbs_qp *qp,
				     enum ibv_qp_state to)
{
	const struct transition *t = NULL;

	if (qp->ibv.qp_type == IBV_QPT_UD)
		t = FIND_IN(ud_transitions, qp->ibv.state, to);
	if (qp->ibv.qp_type == IBV_QPT_UC)
		t = FIND_IN(uc_transitions, qp->ibv.state, to);
	return t ? t : FIND_IN(transitions, qp->ibv.state, to);
}

static int modify(struct verbs_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const enum ibv_qp_state from = qp->ibv.state;
	const enum ibv_qp_state to =
		mask & IBV_QP_STATE ? attr->qp_state : from;
	const struct transition *t = find(qp, to);
	struct ibv_qp_attr next = qp->attr;
	int err;

	if ((mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from) || !t ||
	    (mask & t->needs) != t->needs)
		return EINVAL;
	verbs_attr_keep(&next, attr, mask);
	err = qp->qp ? 0 : make(qp);
	if (!err && to != IBV_QPS_ERR && to != IBV_QPS_RESET)
		err = verbs_attr_tell(qp, &next, mask);
	if (err)
		return err;
	qp->attr = next;
	err = t->run(qp);
	if (!err)
		qp->ibv.state = to;
	return err;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask)
{
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err;

	pthread_mutex_lock(&root->lock);
	err = modify((struct verbs_qp *)ibv, attr, attr_mask);
	pthread_mutex_unlock(&root->lock);
	return verbs_result(err);
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
{
	const struct verbs_qp *qp = (const struct verbs_qp *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);

	(void)attr_mask; /* all attributes are known */
	pthread_mutex_lock(&root->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibv->state;
	attr->cap = qp->cap;
	*init_attr = (struct ibv_qp_init_attr){ .qp_context = ibv->qp_context,
						.send_cq = ibv->send_cq,
						.recv_cq = ibv->recv_cq,
						.srq = ibv->srq,
						.cap = qp->cap,
						.qp_type = ibv->qp_type,
						.sq_sig_all = qp->sq_sig_all };
	pthread_mutex_unlock(&root->lock);
	return 0;
}
