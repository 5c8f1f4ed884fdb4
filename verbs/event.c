/*
 * Asynchronous events that wait to be read, and the acknowledgements for which the
 * end of an object waits.
 */
#include <unistd.h>

#include "verbs/objects.h"

void verbs_event_put(struct verbs_root *root, struct verbs_event *e,
		     enum ibv_event_type type)
{
	const uint64_t one = 1;

	if (e->waits)
		return;
	e->event.event_type = type;
	e->waits = 1;
	e->next = NULL;
	*root->events_end = e;
	root->events_end = &e->next;
	/* The counter of an eventfd does not overflow: a write cannot fail. */
	(void)!write(root->ctx.context.async_fd, &one, sizeof(one));
}

void verbs_event_drop(struct verbs_root *root, struct verbs_event *e)
{
	struct verbs_event **at = &root->events;

	if (!e->waits)
		return;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	if (!e->next)
		root->events_end = at;
	e->waits = 0;
}

void verbs_event_worker_gone(struct verbs_root *root)
{
	if (root->gone)
		return;
	root->gone = 1;
	verbs_event_put(root, &root->fatal, IBV_EVENT_DEVICE_FATAL);
}

/* --- reading ------------------------------------------------------------------- */

/* Counts an event that was read and must be acknowledged. */
static void count(const struct ibv_async_event *e)
{
	if (e->event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
		((struct verbs_qp *)e->element.qp)->reported++;
	else if (e->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
		((struct verbs_srq *)e->element.srq)->reported++;
	else if (e->event_type == IBV_EVENT_CQ_ERR)
		((struct verbs_cq *)e->element.cq)->reported++;
}

int verbs_event_take(struct verbs_root *root, struct ibv_async_event *event)
{
	struct verbs_event *e;

	pthread_mutex_lock(&root->lock);
	e = root->events;
	if (e) {
		*event = e->event;
		count(event);
		verbs_event_drop(root, e);
	}
	pthread_mutex_unlock(&root->lock);
	return e != NULL;
}

/* --- acknowledging ------------------------------------------------------------- */

void verbs_acks_add(const struct verbs_acks *a, uint32_t n)
{
	pthread_mutex_lock(a->mutex);
	*a->completed += n;
	pthread_cond_signal(a->cond);
	pthread_mutex_unlock(a->mutex);
}

void verbs_acks_wait(const struct verbs_acks *a, uint32_t reported)
{
	pthread_mutex_lock(a->mutex);
	while (*a->completed != reported)
		pthread_cond_wait(a->cond, a->mutex);
	pthread_mutex_unlock(a->mutex);
}

void verbs_event_ack(const struct ibv_async_event *event)
{
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;
	struct ibv_cq *cq = event->element.cq;

	if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
		verbs_acks_add(&(struct verbs_acks){ &qp->mutex, &qp->cond,
						     &qp->events_completed },
			       1);
	else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
		verbs_acks_add(&(struct verbs_acks){ &srq->mutex, &srq->cond,
						     &srq->events_completed },
			       1);
	else if (event->event_type == IBV_EVENT_CQ_ERR)
		verbs_acks_add(
			&(struct verbs_acks){ &cq->mutex, &cq->cond,
					      &cq->async_events_completed },
			1);
}
