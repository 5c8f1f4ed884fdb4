/*
 * Sessions of UD QPs (ud.h). The end that sends first calls the other UD QP in a
 * talk (ud_talk.c), in which both ends tell the QPN of their QP of the session; then
 * both ask their agents for keys, as for an RC QP. In the end they tell each other that
 * their agents have confirmed the keys, and the talk ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/channel.h"
#include "host/connecting.h"
#include "host/error.h"
#include "verbs/ud.h"
#include "wire/reason.h"

enum {
	KEYS_MS = 30000,       /* until both ends of a session have keys */
	AGAIN_MS = 1000,       /* after a failure, before the next attempt */
	AGAIN_MOST_MS = 60000, /* with a member of a group */
	LOOK_MS = 1000,	  /* at the connection of a session that has keys */
	ARRIVE_MS = 5000, /* the time limit of a message in the worker */
};

/* --- ends ---------------------------------------------------------------------------- */

/* Ends what the session has. Receives that its QP has completed are taken before,
 * so that their slots come back. 0 or -errno: its QP lives on. */
static int close_session(struct ud_session *s)
{
	int r = s->qp ? srdma_qp_flush(s->qp, SRDMA_REASON_FLUSHED) : 0;

	ud_send_forget(s);
	if (!r)
		verbs_collect_leg(s->ud->root, ud_leg(s->ud));
	ud_recv_forget(s);
	if (!r) {
		srdma_destroy_qp(s->qp);
		s->qp = NULL;
		srdma_dereg_mr(s->mr);
		s->mr = NULL;
	}
	if (s->connection)
		verbs_loop_unwatch(s->ud->root,
				   srdma_connection_fd(s->connection));
	srdma_disconnect(s->connection);
	verbs_loop_end(s->ud->root, s->talk);
	s->connection = NULL;
	s->talk = NULL;
	return r;
}

static void fail(struct ud_session *s, enum ud_drop reason, const char *why)
{
	ud_drop(s->ud, reason, s->put - s->done, why);
	close_session(s);
	s->state = UD_FAILED;
	s->lost = 0;
	s->deadline = ud_now() + (reason == UD_DROP_LOST ? 0 : AGAIN_MS);
}

/* 0 or -errno: the session has failed, and its QP lives on. */
static int end(struct ud_session *s)
{
	struct verbs_ud *ud = s->ud;
	struct ud_session **at = &ud->sessions;

	fail(s, UD_DROP_LOST, NULL);
	if (s->qp)
		return -ETIMEDOUT;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s->messages);
	free(s);
	return 0;
}

int ud_session_end_all(struct verbs_ud *ud)
{
	int r = 0;

	while (ud->sessions && !r)
		r = end(ud->sessions);
	return r;
}

/* --- sessions of a UD QP ------------------------------------------------------------- */

struct ud_session *ud_session_find(struct verbs_ud *ud, uint32_t qp_num)
{
	struct ud_session *s = ud->sessions;

	while (s && (!s->qp || s->qp_num != qp_num))
		s = s->next;
	return s;
}

static int is_of(const struct ud_session *s, const struct ud_name *peer)
{
	return s->peer == peer->qp_num &&
	       !memcmp(s->gid, peer->gid, sizeof(s->gid));
}

/* The session with a UD QP; of several, one that has not failed. */
static struct ud_session *find(const struct verbs_ud *ud,
			       const struct ud_name *peer)
{
	struct ud_session *found = NULL;

	for (struct ud_session *s = ud->sessions; s; s = s->next)
		if (is_of(s, peer) && (!found || found->state == UD_FAILED))
			found = s;
	return found;
}

/* 0 or -errno. */
static int make_room(const struct verbs_ud *ud, const struct ud_name *peer,
		     int incoming)
{
	struct ud_session *s;
	int r = ud_room_for(ud, peer, incoming, &s);

	return r || !s ? r : end(s);
}

/* Makes the QP of the session, whose peer may SEND and nothing else. 0 or
 * -errno. */
static int make_qp(struct ud_session *s)
{
	const struct srdma_qp_attr attr = { .sq = UD_SENDS,
					    .rq = SRDMA_SHARED_TAKEN };
	const struct srdma_qp_mod mod = { .access = 0,
					  .timeout_ms = ARRIVE_MS };
	struct srdma_qp_query query;
	int r = srdma_create_qp(&s->qp, ud_leg(s->ud), &attr);

	if (r)
		return r;
	srdma_query_qp(s->qp, &query);
	s->qp_num = query.qp_num;
	r = srdma_shared_queue_join(s->qp, s->ud->qp->qp);
	return r ? r
		 : srdma_modify_qp(s->qp, &mod,
				   SRDMA_QP_MASK_ACCESS |
					   SRDMA_QP_MASK_TIMEOUT);
}

/* NULL: no room, or no memory. */
static struct ud_session *add(struct verbs_ud *ud, const struct ud_name *peer,
			      int incoming)
{
	struct ud_session *s;

	if (make_room(ud, peer, incoming))
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->messages = calloc(ud->places, sizeof(*s->messages));
	if (!s->messages) {
		free(s);
		return NULL;
	}
	s->ud = ud;
	s->incoming = incoming;
	s->copies = peer->pause != NULL;
	s->peer = peer->qp_num;
	memcpy(s->gid, peer->gid, sizeof(s->gid));
	s->used = ud_now();
	s->next = ud->sessions;
	ud->sessions = s;
	return s;
}

/* --- the call ------------------------------------------------------------------------------ */

static void begin_state(struct ud_session *s, enum ud_state state)
{
	s->state = state;
	s->deadline = ud_now() + KEYS_MS;
	s->ud->root->look_at = 0;
}

static void begin(struct ud_session *s)
{
	const struct verbs_peer *policy =
		verbs_policy_peer(s->ud->root->policy, s->gid);
	int r = policy ? make_qp(s) : -EACCES;

	if (!r)
		r = ud_talk_call(s, policy);
	if (!r)
		begin_state(s, UD_CALLING);
	else
		fail(s, UD_DROP_NO_SESSION,
		     policy ? srdma_error_text()
			    : "no [[peer]] of run.toml has its GID");
}

/* A member that is called again, until a session with it was ready for long enough. */
static void lengthen(struct ud_pause *p)
{
	p->ms = p->ms ? 2 * p->ms : AGAIN_MS;
	if (p->ms > AGAIN_MOST_MS)
		p->ms = AGAIN_MOST_MS;
	p->again = ud_now() + p->ms;
}

/* A message goes over a session. */
static void note_use(struct ud_session *s, struct ud_pause *p)
{
	if (!p)
		s->copies = 0;
	else if (s->state == UD_UP && ud_now() >= p->again)
		p->ms = 0;
}

static int may_begin(const struct ud_session *former, const struct ud_pause *p)
{
	return (!former || ud_now() >= former->deadline) &&
	       (!p || ud_now() >= p->again);
}

struct ud_session *ud_session_to(struct verbs_ud *ud, const struct ud_name *to,
				 const char **why)
{
	struct ud_session *s = find(ud, to);

	*why = NULL;
	if (s && s->lost)
		fail(s, UD_DROP_LOST, NULL);
	if (s && s->state != UD_FAILED) {
		note_use(s, to->pause);
		return s;
	}
	if (!may_begin(s, to->pause))
		return NULL;
	s = s && end(s) ? NULL : add(ud, to, 0);
	if (!s) {
		*why = to->pause ? "no place for a session"
				 : "no memory, or no answer of the worker";
		return NULL;
	}
	if (to->pause)
		lengthen(to->pause);
	begin(s);
	return s->state == UD_FAILED ? NULL : s;
}

/* --- keys -------------------------------------------------------------------------------- */

static void connect_to_peer(struct ud_session *s)
{
	const struct verbs_peer *policy =
		verbs_policy_peer(s->ud->root->policy, s->gid);
	const struct srdma_settings_peer to = {
		.role = SRDMA_SETTINGS_RENDEZVOUS,
		.gid = s->gid,
		.qp_num = s->theirs,
	};
	const struct srdma_connection_attr attr = {
		.identity = s->ud->root->policy->identity,
		.peers = policy->allowed,
		.n_peers = policy->n,
		.qps = &s->qp,
		.n_qps = 1,
	};
	int r = srdma_connection_begin(&s->connection, ud_leg(s->ud), &to,
				       &attr);

	if (!r)
		r = -verbs_loop_watch(s->ud->root,
				      srdma_connection_fd(s->connection));
	if (r)
		fail(s, UD_DROP_NO_SESSION, srdma_error_text());
	else
		begin_state(s, UD_KEYING);
}

/* 0 or -errno: the session has failed. */
static int say(struct ud_session *s, enum ud_hello_kind kind)
{
	int r = ud_talk_say(s, kind);

	if (r)
		fail(s, UD_DROP_NO_SESSION, srdma_error_text());
	return r;
}

/* Both ends are ready. */
static void open_session(struct ud_session *s)
{
	verbs_loop_end(s->ud->root, s->talk);
	s->talk = NULL;
	s->state = UD_UP;
	s->moved = s->deadline = ud_now();
}

/* The agent has confirmed the keys. */
static void confirmed(struct ud_session *s)
{
	if (say(s, UD_READY))
		return;
	s->state = UD_WAITING;
	if (s->heard)
		open_session(s);
}

static void heard_ready(struct ud_session *s)
{
	s->heard = 1;
	if (s->state == UD_WAITING)
		open_session(s);
}

static void heard(struct ud_session *s, const struct srdma_agent_event *e)
{
	struct ud_hello h;

	if (ud_hello_read(&h, e->peer.data, e->peer.data_len))
		h.kind = 0;
	if (s->state == UD_CALLING && h.kind == UD_REPLY) {
		s->theirs = h.session;
		connect_to_peer(s);
	} else if (s->state >= UD_KEYING && h.kind == UD_READY && !s->heard &&
		   h.session == s->theirs) {
		heard_ready(s);
	} else {
		fail(s, UD_DROP_NO_SESSION, "its answer is malformed");
	}
}

/* --- peers that call --------------------------------------------------------------------- */

/* Takes the talk. The agent checks once more whether the caller may have the
 * identity that run.toml gives to its GID. */
static void accept_call(struct ud_session *s, uint64_t talk,
			const struct verbs_peer *policy)
{
	int r = make_qp(s);

	if (!r)
		r = ud_talk_answer(s, talk, policy);
	if (!r) {
		begin_state(s, UD_ARRIVING);
		return;
	}
	if (!s->talk)
		ud_talk_refuse(s->ud, talk);
	end(s);
}

/* A call of a UD QP replaces the session that it began before. */
static void forget_former(struct verbs_ud *ud, const struct ud_name *peer)
{
	for (struct ud_session *s = ud->sessions, *next; s; s = next) {
		next = s->next;
		if (s->incoming && is_of(s, peer))
			end(s);
	}
}

void ud_session_called(struct verbs_ud *ud, const struct srdma_agent_event *e)
{
	const struct verbs_peer *policy =
		verbs_policy_peer(ud->root->policy, e->gid);
	struct ud_session *s = NULL;
	struct ud_name peer = { .gid = e->gid };
	struct ud_hello h;

	if (policy && ud->ready &&
	    !ud_hello_read(&h, e->peer.data, e->peer.data_len) &&
	    h.kind == UD_REQUEST) {
		peer.qp_num = h.ud;
		forget_former(ud, &peer);
		s = add(ud, &peer, 1);
	}
	if (!s) {
		ud_talk_refuse(ud, e->talk);
		return;
	}
	s->theirs = h.session;
	accept_call(s, e->talk, policy);
}

/* The agent has given the talk to this process. */
static void talking(struct ud_session *s)
{
	if (!say(s, UD_REPLY))
		connect_to_peer(s);
}

/* --- time ---------------------------------------------------------------------------------- */

static void said(struct ud_session *s, const struct srdma_agent_event *e)
{
	if (s->state != UD_ARRIVING && !strcmp(e->event, "heard"))
		heard(s, e);
	else if (s->state == UD_ARRIVING && !strcmp(e->event, "talking"))
		talking(s);
	else if (!strcmp(e->event, "error"))
		fail(s, UD_DROP_NO_SESSION, e->text);
	else
		fail(s, UD_DROP_NO_SESSION, "it refuses");
}

static void look_at_talk(struct ud_session *s)
{
	struct srdma_agent_event e;
	int r = srdma_channel_next(s->talk, &e, 0);

	if (!r)
		said(s, &e);
	else if (r != -ETIMEDOUT && r != -EINTR)
		fail(s, UD_DROP_NO_SESSION, srdma_error_text());
}

static void look_at_keys(struct ud_session *s)
{
	int r = srdma_connection_advance(s->connection);

	if (r > 0) {
		verbs_loop_unwatch(s->ud->root,
				   srdma_connection_fd(s->connection));
		confirmed(s);
	} else if (r < 0) {
		fail(s, UD_DROP_NO_SESSION, srdma_error_text());
	}
}

/* Events of the agent, which may have been started again. */
static void look_at_connection(struct ud_session *s)
{
	if (ud_now() < s->deadline)
		return;
	s->deadline = ud_now() + LOOK_MS;
	srdma_check_connection(s->connection);
}

void ud_session_look(struct ud_session *s)
{
	if (s->lost) {
		fail(s, UD_DROP_LOST, NULL);
		return;
	}
	if (s->state == UD_FAILED && s->qp && ud_now() >= s->deadline)
		fail(s, UD_DROP_NO_SESSION, NULL);
	if (s->talk)
		look_at_talk(s);
	if (s->state == UD_KEYING)
		look_at_keys(s);
	else if (s->state == UD_UP)
		look_at_connection(s);
	if (s->state < UD_UP && ud_now() >= s->deadline)
		fail(s, UD_DROP_NO_SESSION, "it does not answer");
}
