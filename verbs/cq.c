/*
 * Completion queues. A leg has one ring for all its QPs. Completions that are
 * taken from it are sorted into the CQs of the program by QPN.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

enum { YIELD = 16 }; /* polls without a completion */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int comp_vector)
{
	struct verbs_root *root = verbs_root_of(context);
	struct verbs_channel *c = (struct verbs_channel *)channel;
	struct verbs_cq *cq;

	if (cqe < 1 || cqe > VERBS_CQE_MAX || comp_vector)
		return verbs_null(EINVAL);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return verbs_null(ENOMEM);
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cqe;
	cq->overrun.event.element.cq = &cq->ibv;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	if (c) {
		pthread_mutex_lock(&root->lock);
		c->ibv.refcnt++;
		cq->channel_next = c->cqs;
		c->cqs = cq;
		pthread_mutex_unlock(&root->lock);
	}
	return &cq->ibv;
}

static void leave_channel(struct verbs_cq *cq)
{
	struct verbs_channel *c = (struct verbs_channel *)cq->ibv.channel;
	struct verbs_cq **at;

	if (!c)
		return;
	c->ibv.refcnt--;
	at = &c->cqs;
	while (*at != cq)
		at = &(*at)->channel_next;
	*at = cq->channel_next;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct verbs_cq *cq = (struct verbs_cq *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	unsigned users;

	pthread_mutex_lock(&root->lock);
	users = cq->users;
	if (!users) {
		verbs_channel_forget(cq);
		leave_channel(cq);
		verbs_event_drop(root, &cq->overrun);
	}
	pthread_mutex_unlock(&root->lock);
	if (users)
		return verbs_result(EBUSY);
	verbs_acks_wait(&(struct verbs_acks){ &ibv->mutex, &ibv->cond,
					      &ibv->comp_events_completed },
			cq->events);
	verbs_acks_wait(&(struct verbs_acks){ &ibv->mutex, &ibv->cond,
					      &ibv->async_events_completed },
			cq->reported);
	pthread_mutex_destroy(&cq->ibv.mutex);
	pthread_cond_destroy(&cq->ibv.cond);
	verbs_poll_free(cq->poll);
	free(cq->cqes);
	free(cq);
	return 0;
}

/* --- the queue --------------------------------------------------------------------- */

static struct verbs_cqe *place(const struct verbs_cq *cq, uint32_t i)
{
	return &cq->cqes[(cq->head + i) % cq->room];
}

/* Room for this many completions. 0 or ENOMEM. */
static int grow(struct verbs_cq *cq, uint32_t room)
{
	struct verbs_cqe *cqes;

	if (room <= cq->room)
		return 0;
	cqes = calloc(room, sizeof(*cqes));
	if (!cqes)
		return ENOMEM;
	for (uint32_t i = 0; i < cq->count; i++)
		cqes[i] = *place(cq, i);
	free(cq->cqes);
	cq->cqes = cqes;
	cq->room = room;
	cq->head = 0;
	return 0;
}

int verbs_cq_join(struct verbs_cq *cq, uint32_t depth)
{
	const uint32_t queues = cq->queues + depth;
	const uint32_t cqe = (uint32_t)cq->ibv.cqe;

	if (grow(cq, queues > cqe ? queues : cqe))
		return ENOMEM;
	cq->queues = queues;
	return 0;
}

/* Room is never given back. */
int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct verbs_cq *cq = (struct verbs_cq *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err = EINVAL;

	pthread_mutex_lock(&root->lock);
	if (cqe >= 1 && cqe <= VERBS_CQE_MAX &&
	    (uint32_t)cqe >= cq->count + verbs_ud_due(cq))
		err = grow(cq, (uint32_t)cqe);
	if (!err)
		ibv->cqe = cqe;
	pthread_mutex_unlock(&root->lock);
	return verbs_result(err);
}

void verbs_cq_drop(struct verbs_cq *cq, uint32_t qp_num)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < cq->count; i++)
		if (place(cq, i)->wc.qp_num != qp_num)
			*place(cq, kept++) = *place(cq, i);
	cq->count = kept;
}

void verbs_cq_leave(struct verbs_cq *cq, uint32_t depth, uint32_t qp_num)
{
	verbs_cq_drop(cq, qp_num);
	cq->queues -= depth;
}

void verbs_cq_put(struct verbs_cq *cq, const struct ibv_wc *wc)
{
	struct verbs_cqe *e;

	if (cq->count == cq->room) {
		verbs_event_put(verbs_root_of(cq->ibv.context), &cq->overrun,
				IBV_EVENT_CQ_ERR);
		return;
	}
	e = place(cq, cq->count++);
	e->wc = *wc;
	if (cq->stamped)
		e->stamp = (struct verbs_stamp){
			.raw = verbs_clock_ns(CLOCK_MONOTONIC),
			.wall = verbs_clock_ns(CLOCK_REALTIME),
		};
	verbs_channel_note(cq, wc);
}

/* --- taking completions -------------------------------------------------------------- */

static struct ibv_wc converted(const struct srdma_wc *from)
{
	struct ibv_wc wc = {
		.wr_id = from->wr_id,
		.status = (enum ibv_wc_status)from->status,
		.opcode = (enum ibv_wc_opcode)from->opcode,
		.vendor_err = from->vendor_err,
		.byte_len = from->byte_len,
		.qp_num = from->qp_num,
	};

	if (from->wc_flags & SRDMA_WC_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = htonl(from->imm_data);
	}
	return wc;
}

static void sort(struct verbs_root *root, const struct srdma_wc *from)
{
	struct verbs_qp *qp = verbs_qp_find(root, from->qp_num);
	struct ibv_wc wc = converted(from);

	if (!qp || qp->ud) {
		verbs_ud_record(root, from);
		return;
	}
	if (from->opcode == SRDMA_WC_QP_EVENT)
		verbs_loss_event(qp, from->vendor_err);
	else
		verbs_loss_sort(qp, &wc);
}

/* A poll that finds completions ends the request for a wake-up, so it is repeated
 * as long as a CQ is armed. */
void verbs_collect_leg(struct verbs_root *root, struct srdma_pd *pd)
{
	struct srdma_wc wc[VERBS_BATCH];
	int n;

	do {
		n = srdma_poll_cq(pd, VERBS_BATCH, wc);
		for (int i = 0; i < n; i++)
			sort(root, &wc[i]);
		if (n && root->armed)
			srdma_req_notify_cq(pd);
	} while (n == VERBS_BATCH || (n && root->armed));
}

void verbs_collect(struct verbs_root *root)
{
	for (struct verbs_pd *pd = root->pds; pd; pd = pd->next) {
		if (pd->users)
			verbs_collect_leg(root, pd->pd);
		if (pd->pd->gone)
			verbs_worker_gone(root);
	}
	verbs_connect_look(root);
	verbs_ud_progress(root);
}

int verbs_cq_poll(struct verbs_cq *cq, int n, struct ibv_wc *wc,
		  struct verbs_stamp *stamp)
{
	struct verbs_root *root = verbs_root_of(cq->ibv.context);
	int got = 0, yields;

	if (n < 0)
		return -1;
	pthread_mutex_lock(&root->lock);
	if (cq->count < (uint32_t)n)
		verbs_collect(root);
	for (; got < n && cq->count; got++) {
		const struct verbs_cqe *e = place(cq, 0);

		wc[got] = e->wc;
		if (stamp)
			*stamp = e->stamp;
		cq->head = (cq->head + 1) % cq->room;
		cq->count--;
	}
	root->idle = got ? 0 : root->idle + 1;
	yields = root->idle % YIELD == YIELD - 1;
	pthread_mutex_unlock(&root->lock);
	if (yields)
		sched_yield(); /* the worker may need this core */
	return got;
}

int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return verbs_cq_poll((struct verbs_cq *)cq, n, wc, NULL);
}
