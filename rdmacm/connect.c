/* Calls and answers of programs. */
#include <errno.h>
#include <string.h>

#include "base/addr.h"
#include "rdmacm/objects.h"
#include "wire/wire.h"

/* --- messages -------------------------------------------------------------------- */

/* RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH stand for what is possible. */
static uint8_t depth(uint8_t wish, uint8_t most)
{
	return wish == RDMA_MAX_INIT_DEPTH || wish > most ? most : wish;
}

static uint8_t retries(uint8_t wish)
{
	return wish > CM_RETRY_MAX ? CM_RETRY_MAX : wish;
}

/* 1: the QP is one of the id, or the program names another one. */
static int has_qp(const struct cm_id *id, const struct rdma_conn_param *p)
{
	return id->rdma.qp || (p && p->qp_num && p->qp_num <= SRDMA_MAX_QPN);
}

static int check_depths(const struct rdma_conn_param *p)
{
	const int legal = (p->responder_resources == RDMA_MAX_RESP_RES ||
			   p->responder_resources <= CM_DEPTH_MAX) &&
			  (p->initiator_depth == RDMA_MAX_INIT_DEPTH ||
			   p->initiator_depth <= CM_DEPTH_MAX);

	return legal ? 0 : EINVAL;
}

static int check_param(const struct cm_id *id, const struct rdma_conn_param *p,
		       size_t private_max)
{
	if (!p)
		return 0;
	if (p->private_data_len > private_max ||
	    (p->private_data_len && !p->private_data))
		return EINVAL;
	return cm_is_ud(id) ? 0 : check_depths(p);
}

/* A request of UD names no QP. */
static int check_request(const struct cm_id *id,
			 const struct rdma_conn_param *p)
{
	if (id->state != CM_ROUTED || (!cm_is_ud(id) && !has_qp(id, p)))
		return EINVAL;
	return check_param(id, p, cm_type_of(id)->request_private);
}

static int check_reply(const struct cm_id *id, const struct rdma_conn_param *p)
{
	if (id->state != CM_REQUESTED || !has_qp(id, p))
		return EINVAL;
	return check_param(id, p, cm_type_of(id)->reply_private);
}

static void add_private(struct cm_message *m, const void *data, uint8_t len)
{
	m->private_len = len;
	if (len)
		memcpy(m->private_data, data, len);
}

static void compose_ud(struct cm_id *id, enum cm_kind kind,
		       const struct rdma_conn_param *p)
{
	id->own = (struct cm_message){ .kind = kind };
	if (kind == CM_UD_REPLY) {
		id->own.qp_num = id->rdma.qp ? id->qp_num : p->qp_num;
		id->own.qkey = RDMA_UDP_QKEY;
	}
	if (p)
		add_private(&id->own, p->private_data, p->private_data_len);
}

/* p: NULL stands for as much as is possible. */
static void compose_connected(struct cm_id *id, enum cm_kind kind,
			      const struct rdma_conn_param *p)
{
	static const struct rdma_conn_param defaults = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = CM_RETRY_MAX,
		.rnr_retry_count = CM_RETRY_MAX,
	};
	const struct cm_message *peer = &id->theirs;
	const int answers = kind == CM_REPLY;
	struct cm_message *m = &id->own;

	if (!p)
		p = &defaults;
	if (!id->rdma.qp)
		id->qp_num = p->qp_num;
	*m = (struct cm_message){
		.kind = kind,
		.qp_num = id->qp_num,
		.responder_resources =
			depth(p->responder_resources,
			      answers ? peer->initiator_depth : CM_DEPTH_MAX),
		.initiator_depth = depth(p->initiator_depth,
					 answers ? peer->responder_resources
						 : CM_DEPTH_MAX),
		.flow_control = p->flow_control,
		.retry_count = retries(p->retry_count),
		.rnr_retry_count = retries(p->rnr_retry_count),
		.srq = id->rdma.qp ? id->rdma.qp->srq != NULL : p->srq != 0,
	};
	add_private(m, p->private_data, p->private_data_len);
}

/* The own message of an id. p may be NULL. */
static void compose(struct cm_id *id, enum cm_kind kind,
		    const struct rdma_conn_param *p)
{
	if (cm_is_ud(id))
		compose_ud(id, kind, p);
	else
		compose_connected(id, kind, p);
}

int cm_say(const struct cm_id *id, const struct cm_message *m)
{
	uint8_t bytes[CM_MESSAGE_MAX];
	const struct srdma_talk_data data = { bytes, cm_wire_write(bytes, m) };

	return srdma_talk_say(id->talk, &data);
}

static void watched(struct cm_id *id, enum cm_state state, int64_t ms)
{
	id->state = state;
	id->deadline = cm_loop_now() + ms;
	cm_loop_wake();
}

/* --- the caller ------------------------------------------------------------------------ */

/* 0 or ENOMEM. */
static int call(struct cm_id *id)
{
	const char *patterns[VERBS_PATTERNS];
	const struct srdma_talk_peer peer = {
		.gid = id->gid,
		.port = srdma_addr_port(&id->rdma.route.addr.dst_addr),
		.own = srdma_addr_port(&id->rdma.route.addr.src_addr),
	};
	uint8_t bytes[CM_MESSAGE_MAX];
	const struct srdma_talk_data data = { bytes,
					      cm_wire_write(bytes, &id->own) };
	struct srdma_talk_self self;
	struct srdma_channel *talk;
	int r;

	cm_self(&self, id->peer, patterns);
	r = srdma_talk_call(&talk, &self, &peer, &data);
	if (!r)
		r = cm_id_set_talk(id, talk);
	if (!r) {
		watched(id, CM_CALLING, CM_ANSWER_MS);
		return 0;
	}
	/* No agent. It is an event, as all that can be wrong with the network:
	 * programs may not expect that the call fails. */
	cm_id_end_talk(id);
	cm_qp_fail(id);
	id->state = CM_OVER;
	return -cm_report(id, RDMA_CM_EVENT_CONNECT_ERROR, r, NULL);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct cm_id *own = cm_id_of(id);
	int err;

	if (cm_hold(own))
		return -1;
	err = check_request(own, conn_param);
	if (!err) {
		compose(own, cm_type_of(own)->request, conn_param);
		err = call(own);
	}
	return cm_done(own, err) ? -1 : cm_complete(own);
}

int rdma_establish(struct rdma_cm_id *id)
{
	const struct cm_message m = { .kind = CM_CONFIRM };
	struct cm_id *own = cm_id_of(id);
	int r = -EINVAL;

	if (cm_hold(own))
		return -1;
	if (own->state == CM_RESPONDED) {
		r = cm_say(own, &m);
		if (!r)
			own->state = CM_CONNECTED;
	}
	return cm_done(own, -r);
}

/* --- the other end ----------------------------------------------------------------------- */

static int wait_serving(struct cm_id *id)
{
	const int64_t deadline =
		srdma_socket_deadline(SRDMA_CHANNEL_TIMEOUT_MS);
	struct srdma_agent_event e;
	int r;

	do
		r = srdma_lasting_next(id->service, &e, deadline);
	while (r == -EINTR);
	if (!r && !strcmp(e.event, "error"))
		r = srdma_channel_error(&e);
	else if (!r && (strcmp(e.event, "serving") || !e.port))
		r = srdma_channel_illegal();
	if (!r)
		srdma_addr_set_port(&id->rdma.route.addr.src_storage, e.port);
	return r;
}

static int serve(struct cm_id *id)
{
	const struct sockaddr *own = &id->rdma.route.addr.src_addr;
	struct srdma_talk_port port = {
		.number = id->any_port ? 0 : srdma_addr_port(own),
	};
	const char *patterns[VERBS_PATTERNS];
	struct srdma_talk_self self;
	int r;

	cm_self(&self, NULL, patterns);
	r = srdma_talk_serve(&id->service, &self, &port);
	if (r)
		return -r;
	r = wait_serving(id);
	port.number = srdma_addr_port(own);
	if (!r)
		r = srdma_talk_keep(id->service, &self, &port);
	if (!r)
		r = cm_loop_watch(id, srdma_lasting_fd(id->service));
	if (!r) {
		id->state = CM_LISTENING;
		return 0;
	}
	srdma_lasting_close(id->service);
	id->service = NULL;
	return -r;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct cm_id *own = cm_id_of(id);
	int err = EINVAL;

	if (cm_hold(own))
		return -1;
	if (own->state == CM_IDLE) { /* as the kernel: at any port */
		cm_address_of(&id->route.addr.src_storage, own->gid, 0);
		own->state = CM_BOUND;
	}
	if (own->state == CM_BOUND) {
		own->backlog = backlog > 0 && backlog < CM_BACKLOG
				       ? (unsigned)backlog
				       : CM_BACKLOG;
		err = serve(own);
	}
	return cm_done(own, err);
}

/* Says the own message to a caller. */
static int answer(const struct cm_id *id)
{
	return id->talk ? -cm_say(id, &id->own)
			: ECONNRESET; /* the caller has left */
}

/* Says the own reply. */
static int accept_connected(struct cm_id *id)
{
	int err = id->rdma.qp ? cm_qp_connect(id) : 0;

	if (!err)
		err = answer(id);
	if (!err)
		watched(id, CM_ACCEPTED, CM_ANSWER_MS);
	return err;
}

/* Says it, and the talk is over. */
static int accept_ud(struct cm_id *id)
{
	int err = answer(id);

	if (err)
		return err;
	cm_id_end_talk(id);
	id->state = CM_OVER;
	return 0;
}

static int accept_request(struct cm_id *id, const struct rdma_conn_param *p)
{
	int err = check_reply(id, p);

	if (err)
		return err;
	compose(id, cm_type_of(id)->reply, p);
	return cm_is_ud(id) ? accept_ud(id) : accept_connected(id);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own) || cm_done(own, accept_request(own, conn_param)))
		return -1;
	if (!cm_is_ud(own))
		return cm_complete(own);
	cm_release_event(id); /* of the request; there is no further one */
	return 0;
}

static int reject(struct cm_id *id, const void *data, uint8_t len)
{
	const struct cm_type *type = cm_type_of(id);
	int err;

	if (id->state != CM_REQUESTED || len > type->reject_private)
		return EINVAL;
	id->own = (struct cm_message){ .kind = CM_REJECT,
				       .reason = type->by_consumer };
	add_private(&id->own, data, len);
	err = answer(id);
	cm_id_end_talk(id);
	id->state = CM_OVER;
	return err;
}

void cm_refuse(struct cm_id *id)
{
	reject(id, NULL, 0);
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data,
		uint8_t private_data_len)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own))
		return -1;
	return cm_done(own, reject(own, private_data, private_data_len));
}

/* --- the end --------------------------------------------------------------------------------- */

/* 1: the peer is told that the program leaves, and leaves too. Then the program
 * gets DISCONNECTED. */
static int depart(struct cm_id *id)
{
	const struct cm_message m = { .kind = CM_DEPART };

	if (id->state != CM_CONNECTED || id->parted || !id->talk ||
	    cm_say(id, &m))
		return 0;
	watched(id, CM_DEPARTED, CM_ANSWER_MS);
	return 1;
}

/* The program gets DISCONNECTED once, whichever end began. An id of UD gets none. */
static int disconnect(struct cm_id *id)
{
	int r = 0;

	cm_qp_error(id); /* in each state: programs wait for its completions */
	if (id->left || id->state < CM_CALLING || id->state == CM_REQUESTED)
		return EINVAL;
	id->left = 1;
	if (depart(id))
		return 0;
	cm_id_end_talk(id);
	id->state = CM_OVER;
	id->deadline = INT64_MAX;
	if (!id->parted && !cm_is_ud(id))
		r = cm_report(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	id->parted = 1;
	return -r;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own) || cm_done(own, disconnect(own)))
		return -1;
	return cm_is_ud(own) ? 0 : cm_complete(own);
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)id;
	(void)event; /* a QP has keys before data arrives: there is no such event */
	return 0;
}
