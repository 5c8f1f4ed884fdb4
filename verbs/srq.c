/*
 * Shared receive queues. The receives of an SRQ are those of a QP of the worker
 * that is not connected; the QPs of the SRQ take them when messages come
 * (docs/local-interface.md 3.6, SHARE). Before the first of these QPs they are in the
 * library, where UD QPs take them.
 */
#include <errno.h>
#include <stdlib.h>

#include "verbs/objects.h"
#include "verbs/recvs.h"
#include "verbs/verbs.h"

static int check(const struct ibv_srq_attr *attr)
{
	return attr->max_wr < 1 || attr->max_wr > SRDMA_DEPTH_MAX ||
			       attr->max_sge > SRDMA_SGE_MAX
		       ? EINVAL
		       : 0;
}

static void free_recvs(struct verbs_srq *srq)
{
	if (srq->recvs)
		verbs_recvs_destroy(srq->recvs);
	free(srq->recvs);
	srq->recvs = NULL;
}

static int make(struct verbs_srq *srq)
{
	struct verbs_pd *pd = (struct verbs_pd *)srq->ibv.pd;
	struct verbs_root *root = verbs_root_of(srq->ibv.context);
	int r;

	srq->recvs = calloc(1, sizeof(*srq->recvs));
	if (!srq->recvs ||
	    verbs_recvs_create(srq->recvs, srq->attr.max_wr, srq->attr.max_sge))
		return ENOMEM;
	pthread_mutex_lock(&root->lock);
	r = srdma_shared_queue_create(&srq->holder, pd->pd, srq->attr.max_wr);
	pd->users += !r;
	pthread_mutex_unlock(&root->lock);
	return verbs_error(r);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *init)
{
	struct verbs_srq *srq;
	int err = check(&init->attr);

	if (err)
		return verbs_null(err);
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return verbs_null(ENOMEM);
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = init->srq_context;
	srq->ibv.pd = pd;
	srq->attr.max_wr = init->attr.max_wr;
	srq->attr.max_sge = init->attr.max_sge ? init->attr.max_sge : 1;
	srq->limit.event.element.srq = &srq->ibv;
	err = make(srq);
	if (err) {
		free_recvs(srq);
		free(srq);
		return verbs_null(err);
	}
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	init->attr = srq->attr;
	return &srq->ibv;
}

struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	struct ibv_srq_init_attr init = { attr->srq_context, attr->attr };
	struct ibv_srq *srq;

	(void)context;
	if ((attr->comp_mask & ~known) ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE &&
	     attr->srq_type != IBV_SRQT_BASIC))
		return verbs_null(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		return verbs_null(EINVAL);
	srq = ibv_create_srq(attr->pd, &init);
	if (srq)
		attr->attr = init.attr;
	return srq;
}

/* Ends the holder. 0 or errno. */
static int end(struct verbs_srq *srq)
{
	struct verbs_root *root = verbs_root_of(srq->ibv.context);
	int err;

	pthread_mutex_lock(&root->lock);
	err = srq->users ? EBUSY : verbs_error(srdma_destroy_qp(srq->holder));
	if (!err) {
		((struct verbs_pd *)srq->ibv.pd)->users--;
		verbs_event_drop(root, &srq->limit);
	}
	pthread_mutex_unlock(&root->lock);
	return err;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct verbs_srq *srq = (struct verbs_srq *)ibv;
	int err = end(srq);

	if (err)
		return verbs_result(err);
	verbs_acks_wait(&(struct verbs_acks){ &ibv->mutex, &ibv->cond,
					      &ibv->events_completed },
			srq->reported);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free_recvs(srq);
	free(srq);
	return 0;
}

/* --- attributes ------------------------------------------------------------------ */

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr,
		   int srq_attr_mask)
{
	struct verbs_srq *srq = (struct verbs_srq *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);

	if (srq_attr_mask & ~IBV_SRQ_LIMIT)
		return verbs_result(EOPNOTSUPP); /* the size stays */
	if (srq_attr_mask && attr->srq_limit > srq->attr.max_wr)
		return verbs_result(EINVAL);
	pthread_mutex_lock(&root->lock);
	if (srq_attr_mask)
		srq->attr.srq_limit = attr->srq_limit;
	pthread_mutex_unlock(&root->lock);
	return 0;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct verbs_root *root = verbs_root_of(ibv->context);

	pthread_mutex_lock(&root->lock);
	*attr = ((const struct verbs_srq *)ibv)->attr;
	pthread_mutex_unlock(&root->lock);
	return 0;
}

/* --- receives -------------------------------------------------------------------- */

/* The limit is reported once for each ibv_modify_srq(). */
void verbs_srq_done(struct verbs_srq *srq)
{
	const uint32_t posted =
		srq->recvs ? srq->recvs->ring.count
			   : srdma_shared_queue_posted(srq->holder);

	if (posted >= srq->attr.srq_limit)
		return;
	srq->attr.srq_limit = 0;
	verbs_event_put(verbs_root_of(srq->ibv.context), &srq->limit,
			IBV_EVENT_SRQ_LIMIT_REACHED);
}

/* The receives go to the worker, in their order. */
static int move(struct verbs_srq *srq)
{
	struct verbs_recvs *q = srq->recvs;
	int err = srq->users ? EOPNOTSUPP : 0; /* they are UD QPs */

	while (q->ring.count && !err) {
		err = verbs_post_one_recv(srq->holder, verbs_recvs_first(q),
					  srq->attr.max_sge);
		if (!err)
			ud_ring_pop(&q->ring);
	}
	if (!err)
		free_recvs(srq);
	return err;
}

int verbs_srq_join(struct verbs_srq *srq, struct srdma_qp *qp)
{
	int err = srq->recvs ? move(srq) : 0;

	return err ? err
		   : verbs_error(srdma_shared_queue_join(qp, srq->holder));
}

static int post_one(struct verbs_srq *srq, const struct ibv_recv_wr *wr)
{
	return srq->recvs ? verbs_recvs_put(srq->recvs, wr)
			  : verbs_post_one_recv(srq->holder, wr,
						srq->attr.max_sge);
}

int verbs_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr)
{
	struct verbs_srq *srq = (struct verbs_srq *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err = 0;

	pthread_mutex_lock(&root->lock);
	for (; wr && !err; wr = err ? wr : wr->next)
		err = post_one(srq, wr);
	pthread_mutex_unlock(&root->lock);
	if (err && bad_wr)
		*bad_wr = wr;
	return err;
}
