/* Events of the agent, and the time that passes, become events of ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "rdmacm/objects.h"

enum {
	KEYS_LOOK_MS = 2,
	PARTED_LOOK_MS = 1000, /* at QPs whose talk was lost */
};

/* --- ends ------------------------------------------------------------------------ */

/* An event that cannot be made for lack of memory is lost, and the program sees
 * the end of its QP only. */
static void finish(struct cm_id *id, enum rdma_cm_event_type type, int status,
		   const struct cm_message *message)
{
	cm_id_end_talk(id);
	id->state = CM_OVER;
	id->deadline = INT64_MAX;
	cm_report(id, type, status, message);
}

/* There is no connection: the QP fails with what the program has posted. */
static void fail(struct cm_id *id, enum rdma_cm_event_type type, int status,
		 const struct cm_message *message)
{
	cm_qp_fail(id);
	finish(id, type, status, message);
}

static void disconnected(struct cm_id *id)
{
	const int parted = id->parted;

	id->parted = 1;
	cm_id_end_talk(id);
	id->state = CM_OVER;
	id->deadline = INT64_MAX;
	if (!parted)
		cm_report(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
}

static void established(struct cm_id *id)
{
	id->state = CM_CONNECTED;
	id->deadline = INT64_MAX;
	cm_report(id, RDMA_CM_EVENT_ESTABLISHED, 0, &id->theirs);
}

/* The event of an error before the connection is established. */
static void failed(struct cm_id *id, const char *code, int rc)
{
	static const char *const unreachable[] = { "unreachable", "name",
						   "timeout", "lost", "busy" };
	const struct cm_type *type = cm_type_of(id);

	if (!strcmp(code, "closed") && id->state == CM_CALLING) {
		fail(id, type->rejected, type->no_service, NULL);
		return;
	}
	for (size_t i = 0; i < sizeof(unreachable) / sizeof(*unreachable); i++)
		if (!strcmp(code, unreachable[i])) {
			fail(id, RDMA_CM_EVENT_UNREACHABLE, rc, NULL);
			return;
		}
	fail(id, RDMA_CM_EVENT_CONNECT_ERROR, rc, NULL);
}

/* The talk has ended with an error. */
static void broken(struct cm_id *id, const char *code, int rc)
{
	/* The QPs go on (docs/agent.md 13): cm_tick() looks at them. A caller
	 * that has left is noticed by rdma_accept(). */
	if (id->state == CM_DEPARTED || id->parted)
		disconnected(id);
	else if (id->state == CM_CONNECTED || id->state == CM_REQUESTED ||
		 id->confirmed)
		cm_id_end_talk(id);
	else
		failed(id, code, rc);
}

/* The peer has ended the talk. It may do so before this end has looked at the
 * keys, which both ends have when the caller confirms. */
static void closed(struct cm_id *id)
{
	const struct cm_type *type = cm_type_of(id);

	if (id->state == CM_ACCEPTED && id->confirmed)
		established(id);
	switch (id->state) {
	case CM_CONNECTED:
	case CM_DEPARTED:
		disconnected(id);
		break;
	case CM_REQUESTED:
		cm_id_end_talk(id);
		break;
	case CM_CALLING:
		fail(id, type->rejected, type->by_consumer, NULL);
		break;
	default:
		fail(id, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, NULL);
		break;
	}
}

/* --- messages of the peer ------------------------------------------------------------ */

static void replied(struct cm_id *id)
{
	int err;

	if (cm_is_ud(id)) {
		finish(id, RDMA_CM_EVENT_ESTABLISHED, 0, &id->theirs);
		return;
	}
	if (!id->rdma.qp) {
		id->state = CM_RESPONDED;
		id->deadline = INT64_MAX;
		cm_report(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &id->theirs);
		return;
	}
	err = cm_qp_connect(id);
	if (err) {
		fail(id, RDMA_CM_EVENT_CONNECT_ERROR, -err, NULL);
		return;
	}
	id->state = CM_KEYING;
	id->deadline = cm_loop_now() + CM_KEYS_MS;
}

static void answered(struct cm_id *id, const struct cm_message *m)
{
	const struct cm_type *type = cm_type_of(id);

	if (m->kind == type->reply) {
		id->theirs = *m;
		replied(id);
	} else if (m->kind == CM_REJECT) {
		/* Programs take the status 0 for success. */
		fail(id, type->rejected,
		     m->reason ? m->reason : type->by_consumer, m);
	} else {
		failed(id, "format", -EPROTO);
	}
}

/* The peer has left the connection; the program may leave it later. 0: there is
 * none. */
static int departed(struct cm_id *id)
{
	if (id->state == CM_ACCEPTED && id->confirmed)
		established(id);
	if (id->state == CM_DEPARTED) {
		disconnected(id);
		return 1;
	}
	if (id->state != CM_CONNECTED || id->parted)
		return 0;
	id->parted = 1;
	cm_report(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	return 1;
}

static void heard(struct cm_id *id, const struct srdma_agent_event *e)
{
	struct cm_message m;

	if (cm_wire_read(&m, e->peer.data, e->peer.data_len)) {
		broken(id, "format", -EPROTO);
		return;
	}
	if (id->state == CM_CALLING)
		answered(id, &m);
	else if (id->state == CM_ACCEPTED && m.kind == CM_CONFIRM)
		id->confirmed = 1;
	else if (m.kind != CM_DEPART || !departed(id))
		broken(id, "format", -EPROTO);
}

static void said(struct cm_id *id, const struct srdma_agent_event *e)
{
	if (!strcmp(e->event, "heard"))
		heard(id, e);
	else if (!strcmp(e->event, "closed"))
		closed(id);
	else if (!strcmp(e->event, "error"))
		broken(id, e->code, srdma_channel_error(e));
}

static void progress_talk(struct cm_id *id)
{
	struct srdma_agent_event e;
	int r = 0;

	while (!r && id->talk) {
		r = srdma_channel_next(id->talk, &e, 0);
		if (!r)
			said(id, &e);
		else if (r != -ETIMEDOUT && r != -EINTR)
			broken(id, "lost", r);
	}
}

/* --- calls of peers ---------------------------------------------------------------------- */

/* Takes the talk, which can only be refused then. The agent checks once more
 * whether the caller may have the identity that run.toml gives to its GID. */
static int take(struct cm_id *id, uint64_t talk)
{
	const char *patterns[VERBS_PATTERNS];
	struct srdma_talk_self self;
	struct srdma_channel *channel;
	int r;

	id->peer = cm_policy_peer(id->gid);
	cm_self(&self, id->peer, patterns);
	r = srdma_talk_answer(&channel, &self, talk);
	if (!r)
		r = cm_id_set_talk(id, channel);
	return r || id->peer ? r : -EACCES;
}

static void set_addresses(struct cm_id *id, const struct cm_id *listener,
			  uint16_t port)
{
	struct rdma_addr *a = &id->rdma.route.addr;

	cm_address_of(&a->dst_storage, id->gid, port);
	memcpy(a->addr.ibaddr.dgid.raw, id->gid, SRDMA_GID_LEN);
	srdma_addr_set_port(
		&a->src_storage,
		srdma_addr_port(&listener->rdma.route.addr.src_addr));
}

/* A request that is over is freed. Returns 0. */
static int forget(struct cm_id *id)
{
	cm_lock();
	cm_id_forget(id);
	cm_changed();
	cm_unlock();
	return 0;
}

/* A request that is not legal, that run.toml does not permit, or that is one too
 * many ends with its talk. The loop holds the listener too. */
static void called(struct cm_id *listener, const struct srdma_agent_event *e)
{
	const struct rdma_cm_id *l = &listener->rdma;
	struct cm_id *id = cm_id_create((struct cm_channel *)l->channel,
					l->context, l->ps, 1);

	if (!id)
		return;
	id->state = CM_ARRIVING;
	id->rdma.qp_type = l->qp_type;
	cm_lock();
	id->listener = listener;
	cm_unlock();
	memcpy(id->gid, e->gid, SRDMA_GID_LEN);
	set_addresses(id, listener, e->port);
	if (take(id, e->talk) || cm_id_waiting(listener) > listener->backlog ||
	    cm_id_attach(id) ||
	    cm_wire_read(&id->theirs, e->peer.data, e->peer.data_len) ||
	    id->theirs.kind != cm_type_of(id)->request)
		forget(id);
	else
		cm_done(id, 0);
}

/* The agent has given the talk to this program, or the caller has left. Returns 0
 * if the id is no more. */
static int arrived(struct cm_id *id, const struct srdma_agent_event *e)
{
	if (!strcmp(e->event, "talking") && !cm_report_request(id)) {
		id->state = CM_REQUESTED;
		return 1;
	}
	return forget(id);
}

/* As arrived(). */
static int progress_arriving(struct cm_id *id)
{
	struct srdma_agent_event e;
	int r = srdma_channel_next(id->talk, &e, 0);

	if (r == -ETIMEDOUT || r == -EINTR)
		return 1;
	if (r)
		return forget(id);
	if (!arrived(id, &e))
		return 0;
	progress_talk(id);
	return 1;
}

static void progress_service(struct cm_id *id)
{
	struct srdma_agent_event e;
	int r = 0;

	while (!r) {
		r = srdma_lasting_next(id->service, &e, 0);
		if (!r && !strcmp(e.event, "called") && e.has_talk)
			called(id, &e);
	}
	if (!srdma_lasting_over(id->service))
		return;
	r = srdma_lasting_over(id->service);
	cm_loop_unwatch(srdma_lasting_fd(id->service));
	srdma_lasting_close(id->service);
	id->service = NULL;
	finish(id, RDMA_CM_EVENT_DEVICE_REMOVAL, r, NULL);
}

int cm_progress(struct cm_id *id)
{
	if (id->state == CM_ARRIVING)
		return progress_arriving(id);
	if (id->service)
		progress_service(id);
	else
		progress_talk(id);
	return 1;
}

/* --- keys and times ------------------------------------------------------------------------ */

/* The QP has keys. */
static void keyed(struct cm_id *id)
{
	const struct cm_message m = { .kind = CM_CONFIRM };
	int r = id->state == CM_KEYING ? cm_say(id, &m) : 0;

	if (r)
		failed(id, "lost", r);
	else
		established(id);
}

/* The state of the id's QP: 1: connected; 0: it has no keys yet; -errno. A QPN of
 * the program may be that of no connected QP: then the talk is the connection. */
static int link_of(const struct cm_id *id)
{
	const int link = srdma_private_link(id->rdma.verbs, id->qp_num);

	if (link == -ENOENT || link == -ENOLINK)
		return id->rdma.qp ? -ENOTCONN : 1;
	return link;
}

static int64_t await_keys(struct cm_id *id)
{
	const int link = link_of(id);

	if (link > 0) {
		keyed(id);
	} else if (link == -ENOTCONN && id->confirmed) {
		/* Both ends had keys, and the caller has left already. */
		established(id);
		disconnected(id);
	} else if (link < 0) {
		fail(id, RDMA_CM_EVENT_CONNECT_ERROR, link, NULL);
	}
	return link ? INT64_MAX : KEYS_LOOK_MS;
}

/* A talk was lost: its peer may be there still. */
static int64_t await_end(struct cm_id *id)
{
	if (link_of(id) >= 0)
		return PARTED_LOOK_MS;
	disconnected(id);
	return INT64_MAX;
}

int cm_ticks(const struct cm_id *id)
{
	return id->deadline != INT64_MAX ||
	       (id->state == CM_CONNECTED && !id->talk);
}

int64_t cm_tick(struct cm_id *id)
{
	const int64_t now = cm_loop_now();
	int64_t next;

	if (now >= id->deadline) {
		if (id->state == CM_DEPARTED)
			disconnected(id);
		else
			fail(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
		return INT64_MAX;
	}
	if (id->state == CM_KEYING ||
	    (id->state == CM_ACCEPTED && id->confirmed)) {
		next = await_keys(id);
		if (id->state != CM_CONNECTED)
			return next;
	}
	if (id->state == CM_CONNECTED && !id->talk)
		return await_end(id);
	return id->deadline == INT64_MAX ? INT64_MAX : id->deadline - now;
}
