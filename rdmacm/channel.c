/* Event channels, and the events in them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rdmacm/event_fd.h"
#include "rdmacm/objects.h"
#include "verbs/group_gid.h"

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->generation = cm_generation();
	c->rdma.fd = cm_event_fd_open();
	if (c->rdma.fd >= 0)
		return &c->rdma;
	free(c);
	return NULL;
}

int cm_check_channel(const struct rdma_event_channel *channel)
{
	return cm_check_own(((const struct cm_channel *)channel)->generation);
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
}

/* --- the queue ------------------------------------------------------------------- */

static void append(struct cm_channel *c, struct cm_event *e)
{
	if (c->last)
		c->last->next = e;
	else
		c->first = e;
	c->last = e;
}

static void put(struct cm_channel *c, struct cm_event *e)
{
	append(c, e);
	cm_event_fd_add(c->rdma.fd);
}

static struct cm_event *pop(struct cm_channel *c)
{
	struct cm_event *e = c->first;

	if (!e)
		return NULL;
	c->first = e->next;
	if (!c->first)
		c->last = NULL;
	e->next = NULL;
	return e;
}

/* --- reports ------------------------------------------------------------------------ */

static void fill_ud(struct cm_event *e, const struct cm_message *m)
{
	struct rdma_ud_param *p = &e->rdma.param.ud;

	*p = (struct rdma_ud_param){
		.private_data = m->private_len ? e->private_data : NULL,
		.private_data_len = m->private_len,
		.qp_num = m->qp_num,
		.qkey = m->qkey,
	};
	if (m->kind == CM_UD_REPLY)
		cm_qp_address(&p->ah_attr, e->holder->gid);
}

/* The depths that the peer has are the ones that this end may use
 * (rdma_get_cm_event(3)). */
static void fill_connected(struct cm_event *e, const struct cm_message *m)
{
	struct rdma_conn_param *p = &e->rdma.param.conn;

	*p = (struct rdma_conn_param){
		.private_data = m->private_len ? e->private_data : NULL,
		.private_data_len = m->private_len,
		.responder_resources = m->initiator_depth,
		.initiator_depth = m->responder_resources,
		.flow_control = m->flow_control,
		.retry_count = m->retry_count,
		.rnr_retry_count = m->rnr_retry_count,
		.srq = m->srq,
		.qp_num = m->qp_num,
	};
}

/* The parameters of an event. */
static void fill(struct cm_event *e, const struct cm_message *m)
{
	memcpy(e->private_data, m->private_data, m->private_len);
	if (cm_is_ud(e->holder))
		fill_ud(e, m);
	else
		fill_connected(e, m);
}

/* NULL: no memory. */
static struct cm_event *make(struct cm_id *holder,
			     const struct rdma_cm_event *what,
			     const struct cm_message *message)
{
	struct cm_event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->rdma = *what;
	e->holder = holder;
	if (message)
		fill(e, message);
	return e;
}

/* e: NULL: there was no memory. */
static int report(const struct cm_id *id, struct cm_event *e)
{
	if (!e)
		return -ENOMEM;
	cm_lock();
	put((struct cm_channel *)id->rdma.channel, e);
	cm_unlock();
	return 0;
}

int cm_report(struct cm_id *id, enum rdma_cm_event_type type, int status,
	      const struct cm_message *message)
{
	const struct rdma_cm_event what = { .id = &id->rdma,
					    .event = type,
					    .status = status };

	return report(id, make(id, &what, message));
}

/* As librdmacm: the private data are the context of the join. */
int cm_report_group(struct cm_id *id, const struct cm_group *g, int status)
{
	struct rdma_cm_event what = {
		.id = &id->rdma,
		.event = status ? RDMA_CM_EVENT_MULTICAST_ERROR
				: RDMA_CM_EVENT_MULTICAST_JOIN,
		.status = status,
		.param.ud = { .private_data = g->context,
			      .qp_num = VERBS_GROUP_QPN,
			      .qkey = RDMA_UDP_QKEY },
	};

	cm_qp_address(&what.param.ud.ah_attr, g->gid);
	return report(id, make(id, &what, NULL));
}

/* The event of a request of this listener whose caller has left. */
static int is_left(const struct cm_event *e, const struct cm_id *listener)
{
	return e->rdma.listen_id == &listener->rdma &&
	       !cm_id_of(e->rdma.id)->talk;
}

/* Drops one such event. The program may have seen that its channel is readable,
 * and read it without O_NONBLOCK: only an event that follows at once may take
 * its place. */
static void drop_left(const struct cm_id *listener)
{
	struct cm_channel *c = (struct cm_channel *)listener->rdma.channel;
	struct cm_event *e = c->first, *before = NULL;

	while (e && !is_left(e, listener)) {
		before = e;
		e = e->next;
	}
	if (!e)
		return;
	*(before ? &before->next : &c->first) = e->next;
	if (c->last == e)
		c->last = before;
	cm_event_fd_take_back(c->rdma.fd);
	cm_id_forget(cm_id_of(e->rdma.id));
	free(e);
}

int cm_report_request(struct cm_id *id)
{
	const struct rdma_cm_event what = {
		.id = &id->rdma,
		.listen_id = &id->listener->rdma,
		.event = RDMA_CM_EVENT_CONNECT_REQUEST,
	};
	struct cm_event *e = make(id->listener, &what, &id->theirs);

	if (!e)
		return -ENOMEM;
	cm_lock();
	put((struct cm_channel *)id->listener->rdma.channel, e);
	drop_left(id->listener);
	cm_unlock();
	return 0;
}

/* Moves the events of an id from its channel to another. to: NULL drops them. The
 * descriptor counts no event that stays again: a reader may have read its count and
 * wait for the lock. */
static void move_events(const struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *from = (struct cm_channel *)id->rdma.channel;
	struct cm_event *e, *all = from->first;

	from->first = from->last = NULL;
	while ((e = all)) {
		all = e->next;
		e->next = NULL;
		if (e->holder != id) {
			append(from, e);
			continue;
		}
		cm_event_fd_take_back(from->rdma.fd);
		if (to)
			put(to, e);
		else
			free(e);
	}
}

void cm_drop_events(const struct cm_id *id)
{
	move_events(id, NULL);
}

void cm_await_acknowledged(struct cm_id *id)
{
	while (id->unacknowledged || id->held)
		cm_wait();
}

/* --- interface ------------------------------------------------------------------------- */

/* The program has the event, and the id of a request. */
static void take(struct cm_event *e)
{
	e->holder->unacknowledged++;
	if (e->rdma.listen_id)
		cm_id_of(e->rdma.id)->listener = NULL;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	struct cm_event *e = NULL;
	uint64_t n;

	if (!event)
		return cm_fail(EINVAL);
	if (cm_check_channel(channel))
		return -1;
	while (!e) {
		if (read(channel->fd, &n, sizeof(n)) < 0)
			return -1;
		cm_lock();
		e = pop((struct cm_channel *)channel);
		if (e)
			take(e);
		cm_unlock();
	}
	*event = &e->rdma;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *e = (struct cm_event *)event;

	if (!event)
		return cm_fail(EINVAL);
	cm_lock();
	e->holder->unacknowledged--;
	cm_changed();
	cm_unlock();
	free(e);
	return 0;
}

void cm_release_event(struct rdma_cm_id *id)
{
	if (!id->event)
		return;
	rdma_ack_cm_event(id->event);
	id->event = NULL;
}

/* Moves an id to another channel, with its events and the requests that the
 * program has not got: the program may destroy the former channel. */
static void migrate(struct cm_id *id, struct cm_channel *to)
{
	move_events(id, to);
	for (struct cm_id *request = cm_ids; request; request = request->next)
		if (request->listener == id)
			request->rdma.channel = &to->rdma;
	id->rdma.channel = &to->rdma;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct cm_id *own = cm_id_of(id);
	struct rdma_event_channel *from = id->channel;
	const int sync = !channel;

	if (cm_check_own(own->generation) ||
	    (channel && cm_check_channel(channel)))
		return -1;
	if (!channel)
		channel = rdma_create_event_channel();
	if (!channel)
		return -1;
	cm_release_event(id);
	cm_lock();
	cm_await_acknowledged(own);
	migrate(own, (struct cm_channel *)channel);
	cm_unlock();
	if (own->sync)
		rdma_destroy_event_channel(from);
	own->sync = sync;
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] =
			"RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] =
			"RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] =
			"RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	return (unsigned)event < sizeof(names) / sizeof(*names)
		       ? names[event]
		       : "UNKNOWN EVENT";
}
