/*
 * Asynchronous events that wait to be read, and the acknowledgements for which the
 * end of an object waits.
 */
#include <sys/eventfd.h>

#include "verbs/objects.h"

/* Where the object of an event counts those that were read and those that were
 * acknowledged: offsets. Other events need no acknowledgement. */
static const struct counts {
	enum ibv_event_type type;
	size_t reported, mutex, cond, completed;
} counts[] = {
#define COUNTS(TYPE, OBJECT, COMPLETED)                                        \
	{                                                                      \
		IBV_EVENT_##TYPE, offsetof(struct OBJECT, reported),           \
			offsetof(struct OBJECT, ibv.mutex),                    \
			offsetof(struct OBJECT, ibv.cond),                     \
			offsetof(struct OBJECT, ibv.COMPLETED)                 \
	}
	COUNTS(QP_LAST_WQE_REACHED, verbs_qp, events_completed),
	COUNTS(SRQ_LIMIT_REACHED, verbs_srq, events_completed),
	COUNTS(CQ_ERR, verbs_cq, async_events_completed),
#undef COUNTS
};

static const struct counts *counts_of(enum ibv_event_type type)
{
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		if (counts[i].type == type)
			return &counts[i];
	return NULL;
}

void verbs_event_put(struct verbs_root *root, struct verbs_event *e,
		     enum ibv_event_type type)
{
	if (e->waits)
		return;
	e->event.event_type = type;
	e->waits = 1;
	e->next = NULL;
	*root->events_end = e;
	root->events_end = &e->next;
	eventfd_write(root->events_fd, 1);
}

static void take_out(struct verbs_root *root, struct verbs_event *e)
{
	struct verbs_event **at = &root->events;
	eventfd_t n;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	if (!e->next)
		root->events_end = at;
	e->waits = 0;
	if (!root->events)
		eventfd_read(root->events_fd, &n);
}

void verbs_event_drop(struct verbs_root *root, struct verbs_event *e)
{
	if (e->waits)
		take_out(root, e);
}

/* --- reading ------------------------------------------------------------------- */

int verbs_event_take(struct verbs_root *root, struct ibv_async_event *event)
{
	struct verbs_event *e = root->events;
	const struct counts *c;

	if (!e)
		return 0;
	*event = e->event;
	c = counts_of(event->event_type);
	if (c)
		++*(uint32_t *)((char *)event->element.qp + c->reported);
	take_out(root, e);
	return 1;
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
	const struct counts *c = counts_of(event->event_type);
	char *object = (char *)event->element.qp; /* whatever it is */

	if (c)
		verbs_acks_add(
			&(struct verbs_acks){
				(pthread_mutex_t *)(object + c->mutex),
				(pthread_cond_t *)(object + c->cond),
				(uint32_t *)(object + c->completed) },
			1);
}
