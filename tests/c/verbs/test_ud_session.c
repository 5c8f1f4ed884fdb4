/* Sessions of UD QPs (verbs/ud_session.c), with a worker and an agent of the test. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "host/connecting.h"
#include "host/error.h"
#include "host/talk.h"
#include "ud_subject.h"
#include "wire/reason.h"

enum {
	PEER = 9,
	THEIRS = 77,
	TALK = 5,
	AGAIN_MS = 1000,
	AGAIN_MOST_MS = 60000, /* a member of a group */
	IN_USE_MS = 10000,     /* a session, after a message */
	KEYS_MS = 30000,
};

/* Requests to the worker, to the agent and to the thread. */
enum step {
	CREATE,
	JOIN,
	MODIFY,
	CALL,
	ANSWER,
	WATCH,
	SAY,
	BEGIN,
	ADVANCE,
	FLUSH,
	STEPS,
};

static int answers[STEPS]; /* -errno: the step fails */
static unsigned asked[STEPS];
static unsigned collected, forgotten, unwatched, checked;
static int keys_watched;	    /* 1: the thread watches the connection */
static int qps, talks, connections; /* that live */
static int permitted;		    /* 1: run.toml has the GID */
static struct srdma_agent_event event; /* that the agent says next */
static struct ud_hello told;	       /* the last message of this end */
static uint32_t connected_to;
static const char *why;

static int step(enum step step)
{
	asked[step]++;
	return answers[step] < 0 ? srdma_error_set(answers[step], "told")
				 : answers[step];
}

/* --- the worker -------------------------------------------------------------------- */

int srdma_create_qp(struct srdma_qp **qp, struct srdma_pd *pd,
		    const struct srdma_qp_attr *attr)
{
	static uint32_t number;
	int r = step(CREATE);

	assert_ptr_equal(pd, &s.leg);
	assert_int_equal(attr->sq, UD_SENDS);
	if (r)
		return r;
	*qp = calloc(1, sizeof(**qp));
	assert_non_null(*qp);
	(*qp)->made.qp.qpn = ++number;
	qps++;
	return 0;
}

void srdma_query_qp(const struct srdma_qp *qp, struct srdma_qp_query *query)
{
	*query = (struct srdma_qp_query){ .qp_num = qp->made.qp.qpn };
}

int srdma_shared_queue_join(struct srdma_qp *qp, struct srdma_qp *holder)
{
	(void)qp;
	assert_ptr_equal(holder, s.qp.qp);
	return step(JOIN);
}

/* The peer may SEND, and has no other right. */
int srdma_modify_qp(struct srdma_qp *qp, const struct srdma_qp_mod *mod,
		    unsigned mask)
{
	(void)qp;
	assert_int_equal(mod->access, 0);
	assert_int_equal(mod->timeout_ms, 5000);
	assert_int_equal(mask, SRDMA_QP_MASK_ACCESS | SRDMA_QP_MASK_TIMEOUT);
	return step(MODIFY);
}

int srdma_qp_flush(struct srdma_qp *qp, uint32_t reason)
{
	assert_non_null(qp);
	assert_int_equal(reason, SRDMA_REASON_FLUSHED);
	return step(FLUSH);
}

int srdma_destroy_qp(struct srdma_qp *qp)
{
	qps -= qp != NULL;
	free(qp);
	return 0;
}

int srdma_dereg_mr(struct srdma_mr *mr)
{
	assert_null(mr);
	return 0;
}

/* --- the agent --------------------------------------------------------------------- */

const struct verbs_peer *verbs_policy_peer(const struct verbs_policy *p,
					   const uint8_t gid[16])
{
	(void)gid;
	assert_ptr_equal(p, &s.policy);
	return permitted ? &s.policy.peers[0] : NULL;
}

static struct srdma_channel *new_talk(void)
{
	talks++;
	return malloc(1);
}

int srdma_talk_call(struct srdma_channel **out,
		    const struct srdma_talk_self *self,
		    const struct srdma_talk_peer *peer,
		    const struct srdma_talk_data *data)
{
	int r = step(CALL);

	(void)self;
	assert_int_equal(peer->port & SRDMA_TALK_QP, SRDMA_TALK_QP);
	assert_int_equal(ud_hello_read(&told, data->bytes, data->len), 0);
	if (!r)
		*out = new_talk();
	return r;
}

int srdma_talk_answer(struct srdma_channel **out,
		      const struct srdma_talk_self *self, uint64_t talk)
{
	int r = step(ANSWER);

	(void)self;
	assert_int_equal(talk, TALK);
	*out = r ? NULL : new_talk();
	return r;
}

int srdma_talk_say(struct srdma_channel *talk,
		   const struct srdma_talk_data *data)
{
	assert_non_null(talk);
	assert_int_equal(ud_hello_read(&told, data->bytes, data->len), 0);
	return step(SAY);
}

int srdma_channel_next(struct srdma_channel *c, struct srdma_agent_event *e,
		       int64_t deadline)
{
	assert_non_null(c);
	assert_int_equal(deadline, 0);
	if (!*event.event)
		return -ETIMEDOUT;
	*e = event;
	*event.event = 0;
	return strcmp(e->event, "end") == 0 ? -ECONNRESET : 0;
}

int srdma_channel_fd(const struct srdma_channel *c)
{
	(void)c;
	return 3;
}

void srdma_channel_drop(struct srdma_channel *c)
{
	talks -= c != NULL;
	free(c);
}

int srdma_connection_begin(struct srdma_connection **connection,
			   struct srdma_pd *pd,
			   const struct srdma_settings_peer *peer,
			   const struct srdma_connection_attr *attr)
{
	int r = step(BEGIN);

	(void)pd;
	assert_int_equal(attr->n_qps, 1);
	connected_to = peer->qp_num;
	if (!r) {
		*connection = malloc(1);
		connections++;
	}
	return r;
}

int srdma_connection_advance(struct srdma_connection *c)
{
	assert_non_null(c);
	return step(ADVANCE);
}

int srdma_check_connection(struct srdma_connection *c)
{
	assert_non_null(c);
	checked++;
	return 0;
}

int srdma_connection_fd(const struct srdma_connection *c)
{
	(void)c;
	return 4;
}

void srdma_disconnect(struct srdma_connection *c)
{
	assert_false(keys_watched);
	connections -= c != NULL;
	free(c);
}

/* --- the rest of the library --------------------------------------------------------- */

int verbs_loop_watch(const struct verbs_root *root, int fd)
{
	int r = step(WATCH);

	(void)root;
	keys_watched |= fd == 4 && !r;
	return -r;
}

void verbs_loop_unwatch(const struct verbs_root *root, int fd)
{
	(void)root;
	assert_int_equal(fd, 4);
	unwatched++;
	keys_watched = 0;
}

void verbs_loop_end(const struct verbs_root *root, struct srdma_channel *c)
{
	(void)root;
	srdma_channel_drop(c);
}

void verbs_collect_leg(struct verbs_root *root, struct srdma_pd *pd)
{
	(void)root;
	(void)pd;
	collected++;
}

void ud_send_forget(struct ud_session *session)
{
	session->put = session->posted = session->done = 0;
}

void ud_recv_forget(struct ud_session *session)
{
	(void)session;
	forgotten++;
}

/* --- a UD QP ----------------------------------------------------------------------- */

static int begin(void **state)
{
	static struct srdma_qp holder;

	(void)state;
	begin_subject(500);
	memset(answers, 0, sizeof(answers));
	memset(asked, 0, sizeof(asked));
	memset(&event, 0, sizeof(event));
	collected = forgotten = unwatched = checked = 0;
	keys_watched = 0;
	permitted = 1;
	why = NULL;
	s.qp.qp = &holder;
	s.ud.places = UD_PLACES;
	return 0;
}

/* The end of all sessions leaves no object, whatever a test did. */
static int end(void **state)
{
	(void)state;
	memset(answers, 0, sizeof(answers));
	return ud_session_end_all(&s.ud) || s.ud.sessions || qps || talks ||
	       connections;
}

static unsigned count_sessions(void)
{
	unsigned n = 0;

	for (const struct ud_session *x = s.ud.sessions; x; x = x->next)
		n++;
	return n;
}

/* The session for a message to a UD QP of this host. */
static struct ud_session *to(uint8_t host, uint32_t qp_num)
{
	const uint8_t gid[SRDMA_GID_LEN] = { host };
	const struct ud_name name = { .gid = gid, .qp_num = qp_num };

	now++;
	return ud_session_to(&s.ud, &name, &why);
}

/* The session for a copy for a member of a group. */
static struct ud_session *copy_to(uint8_t host, uint32_t qp_num,
				  struct ud_pause *pause)
{
	const uint8_t gid[SRDMA_GID_LEN] = { host };
	const struct ud_name name = { gid, qp_num, pause };

	now++;
	return ud_session_to(&s.ud, &name, &why);
}

static void hello_in(struct srdma_agent_event *e, const struct ud_hello *h)
{
	ud_hello_write(e->peer.data, h);
	e->peer.data_len = UD_HELLO;
}

static void call_of(uint8_t host, const struct ud_hello *h)
{
	struct srdma_agent_event e = { .talk = TALK, .gid = { host } };

	now++;
	hello_in(&e, h);
	ud_session_called(&s.ud, &e);
}

/* A UD QP of this host calls. */
static void called_by(uint8_t host, uint32_t qp_num)
{
	const struct ud_hello h = { UD_REQUEST, qp_num, THEIRS };

	call_of(host, &h);
}

static void say(struct ud_session *x, const char *name)
{
	strcpy(event.event, name);
	ud_session_look(x);
}

static void reply(struct ud_session *x)
{
	const struct ud_hello h = { UD_REPLY, 0, THEIRS };

	hello_in(&event, &h);
	say(x, "heard");
}

static void peer_is_ready(struct ud_session *x)
{
	const struct ud_hello h = { UD_READY, 0, THEIRS };

	hello_in(&event, &h);
	say(x, "heard");
}

/* The agent of this end confirms the keys. */
static void confirm(struct ud_session *x)
{
	answers[ADVANCE] = 1;
	ud_session_look(x);
}

static void make_ready(struct ud_session *x)
{
	assert_non_null(x);
	reply(x);
	confirm(x);
	peer_is_ready(x);
	assert_int_equal(x->state, UD_UP);
}

/* A session of this end that has keys. */
static struct ud_session *made(uint8_t host)
{
	struct ud_session *x = to(host, PEER);

	make_ready(x);
	return x;
}

/* The session has failed, and has nothing. Its messages were dropped. */
static void failed(const struct ud_session *x)
{
	assert_int_equal(x->state, UD_FAILED);
	assert_null(x->qp);
	assert_null(x->talk);
	assert_null(x->connection);
	assert_int_equal(x->put, 0);
}

/* --- how sessions begin -------------------------------------------------------------- */

static void test_session_of_this_end(void **state)
{
	struct ud_session *x = to(1, PEER);

	(void)state;
	assert_non_null(x);
	assert_int_equal(x->state, UD_CALLING);
	assert_int_equal(told.kind, UD_REQUEST);
	assert_int_equal(told.ud, 500);
	assert_int_equal(told.session, x->qp_num);
	ud_session_look(x);
	assert_int_equal(x->state, UD_CALLING);
	reply(x);
	assert_int_equal(x->state, UD_KEYING);
	assert_int_equal(connected_to, THEIRS);
	ud_session_look(x);
	assert_int_equal(x->state, UD_KEYING);
	assert_int_equal(asked[SAY], 0);
	confirm(x);
	assert_int_equal(x->state, UD_WAITING);
	assert_int_equal(unwatched, 1);
	assert_int_equal(told.kind, UD_READY);
	assert_int_equal(told.session, x->qp_num);
	ud_session_look(x);
	assert_int_equal(x->state, UD_WAITING);
	now += 7;
	peer_is_ready(x);
	assert_int_equal(x->state, UD_UP);
	assert_int_equal(x->moved, now);
	assert_int_equal(asked[SAY], 1);
	assert_int_equal(talks, 0);
	assert_ptr_equal(to(1, PEER), x);
	assert_ptr_equal(ud_session_find(&s.ud, x->qp_num), x);
	assert_null(ud_session_find(&s.ud, x->qp_num + 1));
	ud_session_look(x);
	ud_session_look(x);
	assert_int_equal(checked, 1); /* each second */
}

static void test_session_of_a_peer(void **state)
{
	struct ud_session *x;

	(void)state;
	called_by(1, PEER);
	x = s.ud.sessions;
	assert_non_null(x);
	assert_int_equal(x->state, UD_ARRIVING);
	assert_int_equal(asked[CALL], 0);
	assert_ptr_equal(to(1, PEER), x); /* both ends use it */
	say(x, "talking");
	assert_int_equal(told.kind, UD_REPLY);
	assert_int_equal(told.session, x->qp_num);
	assert_int_equal(x->state, UD_KEYING);
	assert_int_equal(connected_to, THEIRS);
	peer_is_ready(x); /* before this end */
	assert_int_equal(x->state, UD_KEYING);
	confirm(x);
	assert_int_equal(told.kind, UD_READY);
	assert_int_equal(x->state, UD_UP);
	assert_int_equal(talks, 0);
}

/* --- failures -------------------------------------------------------------------------- */

/* The next attempt is 1 s later at the earliest. */
static void fails_for_a_second(void)
{
	const unsigned before = asked[CREATE];

	assert_int_equal(drops[UD_DROP_LOST], 0);
	memset(answers, 0, sizeof(answers));
	assert_null(to(1, PEER));
	now += AGAIN_MS - 3; /* to() takes 1 ms */
	assert_null(to(1, PEER));
	assert_int_equal(asked[CREATE], before);
	assert_non_null(to(1, PEER));
	assert_int_equal(asked[CREATE], before + 1);
	assert_int_equal(count_sessions(), 1);
}

static void test_session_that_cannot_begin(void **state)
{
	static const enum step steps[] = { CREATE, JOIN, MODIFY, CALL, WATCH };

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		begin(state);
		answers[steps[i]] = -ENOMEM;
		assert_null(to(1, PEER));
		failed(s.ud.sessions);
		assert_string_equal(cause, "told");
		fails_for_a_second();
		assert_int_equal(end(state), 0);
	}
}

static void test_peer_that_run_toml_does_not_have(void **state)
{
	(void)state;
	permitted = 0;
	assert_null(to(1, PEER));
	failed(s.ud.sessions);
	assert_string_equal(cause, "no [[peer]] of run.toml has its GID");
	assert_int_equal(asked[CREATE], 0);
}

/* A session with three messages, of which one has arrived, fails by this. */
static void fails_by(void (*act)(struct ud_session *), const char *text)
{
	struct ud_session *x;

	begin(NULL);
	x = to(1, PEER);
	x->put = 3;
	x->done = 1;
	act(x);
	failed(x);
	assert_int_equal(drops[UD_DROP_NO_SESSION], 2);
	assert_string_equal(cause, text);
	fails_for_a_second();
	assert_int_equal(end(NULL), 0);
}

static void reply_of_another_kind(struct ud_session *x)
{
	const struct ud_hello h = { UD_REQUEST, 1, 2 };

	hello_in(&event, &h);
	say(x, "heard");
}

static void short_reply(struct ud_session *x)
{
	event.peer.data_len = UD_HELLO - 1;
	say(x, "heard");
}

static void early_talking(struct ud_session *x)
{
	say(x, "talking");
}

static void closed(struct ud_session *x)
{
	say(x, "closed");
}

static void error(struct ud_session *x)
{
	strcpy(event.text, "refused by policy");
	say(x, "error");
}

static void end_of_the_agent(struct ud_session *x)
{
	srdma_error_set(-ECONNRESET, "the agent ended");
	say(x, "end");
}

static void no_answer(struct ud_session *x)
{
	now += KEYS_MS - 1;
	ud_session_look(x);
	assert_int_equal(x->state, UD_CALLING);
	now++;
	ud_session_look(x);
}

static void no_keys(struct ud_session *x)
{
	reply(x);
	answers[ADVANCE] = -EACCES;
	ud_session_look(x);
}

static void keys_that_are_late(struct ud_session *x)
{
	reply(x);
	now += KEYS_MS;
	ud_session_look(x);
}

static void peer_that_is_never_ready(struct ud_session *x)
{
	reply(x);
	confirm(x);
	now += KEYS_MS;
	ud_session_look(x);
}

static void end_of_the_talk_before_ready(struct ud_session *x)
{
	reply(x);
	confirm(x);
	say(x, "closed");
}

static void peer_that_cannot_be_told(struct ud_session *x)
{
	reply(x);
	answers[SAY] = -ECONNRESET;
	confirm(x);
}

static void ready_before_the_reply(struct ud_session *x)
{
	peer_is_ready(x);
}

static void two_replies(struct ud_session *x)
{
	reply(x);
	reply(x);
}

static void ready_twice(struct ud_session *x)
{
	reply(x);
	peer_is_ready(x);
	peer_is_ready(x);
}

static void ready_of_another_session(struct ud_session *x)
{
	const struct ud_hello h = { UD_READY, 0, THEIRS + 1 };

	reply(x);
	hello_in(&event, &h);
	say(x, "heard");
}

static void no_exchange(struct ud_session *x)
{
	answers[BEGIN] = -ECONNREFUSED;
	reply(x);
}

static void no_watch_of_keys(struct ud_session *x)
{
	answers[WATCH] = -ENOSPC;
	reply(x);
}

static void test_session_that_fails(void **state)
{
	(void)state;
	fails_by(reply_of_another_kind, "its answer is malformed");
	fails_by(short_reply, "its answer is malformed");
	fails_by(early_talking, "it refuses");
	fails_by(closed, "it refuses");
	fails_by(error, "refused by policy");
	fails_by(end_of_the_agent, "the agent ended");
	fails_by(no_answer, "it does not answer");
	fails_by(no_keys, "told");
	fails_by(keys_that_are_late, "it does not answer");
	fails_by(peer_that_is_never_ready, "it does not answer");
	fails_by(end_of_the_talk_before_ready, "it refuses");
	fails_by(peer_that_cannot_be_told, "told");
	fails_by(ready_before_the_reply, "its answer is malformed");
	fails_by(two_replies, "its answer is malformed");
	fails_by(ready_twice, "its answer is malformed");
	fails_by(ready_of_another_session, "its answer is malformed");
	fails_by(no_exchange, "told");
	fails_by(no_watch_of_keys, "told");
}

/* A call that cannot be taken is answered by the end of the talk. */
static void test_call_that_cannot_be_taken(void **state)
{
	static const enum step steps[] = { CREATE, JOIN, MODIFY, ANSWER,
					   WATCH };

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		begin(state);
		answers[steps[i]] = -ENOMEM;
		called_by(1, PEER);
		assert_null(s.ud.sessions);
		assert_true(asked[ANSWER]);
		assert_int_equal(end(state), 0);
	}
}

static void test_call_of_a_peer_that_cannot_be_told(void **state)
{
	(void)state;
	called_by(1, PEER);
	answers[SAY] = -ECONNRESET;
	say(s.ud.sessions, "talking");
	failed(s.ud.sessions);
}

static void refuses(uint8_t host, const struct ud_hello *h)
{
	const unsigned before = asked[ANSWER];

	call_of(host, h);
	assert_null(s.ud.sessions);
	assert_int_equal(asked[ANSWER], before + 1);
	assert_int_equal(talks, 0);
	assert_int_equal(asked[CREATE], 0);
}

static void test_refused_calls(void **state)
{
	const struct ud_hello good = { UD_REQUEST, PEER, THEIRS };
	const struct ud_hello other = { UD_REPLY, 0, THEIRS };
	const struct ud_hello illegal = { UD_REQUEST, 0, THEIRS };

	(void)state;
	refuses(1, &other);
	refuses(1, &illegal);
	permitted = 0;
	refuses(1, &good);
	permitted = 1;
	s.ud.ready = 0;
	refuses(1, &good);
}

/* --- how sessions end -------------------------------------------------------------------- */

static void test_end_of_a_session(void **state)
{
	struct ud_session *x = made(1);

	(void)state;
	x->put = 3;
	x->done = 1;
	assert_int_equal(ud_session_end_all(&s.ud), 0);
	assert_null(s.ud.sessions);
	assert_int_equal(drops[UD_DROP_LOST], 2);
	assert_int_equal(forgotten, 1);
	assert_int_equal(collected,
			 1); /* receives that came before are taken */
}

/* The next message makes it again, without a pause. */
static void test_session_whose_qp_ends(void **state)
{
	struct ud_session *x = made(1);

	(void)state;
	x->put = 1;
	x->lost = 1;
	ud_session_look(x);
	failed(x);
	assert_int_equal(drops[UD_DROP_LOST], 1);
	x = to(1, PEER);
	assert_non_null(x);
	assert_int_equal(count_sessions(), 1);
	x->lost = 1; /* noticed by a message */
	assert_non_null(to(1, PEER));
	assert_int_equal(count_sessions(), 1);
}

/* The QP of the session lives on. Nothing else does, which the agent would have to keep
 * busy, and the end of the QP is tried again each second. */
static void test_worker_that_does_not_answer(void **state)
{
	struct ud_session *x = made(1);

	(void)state;
	x->put = 2;
	answers[FLUSH] = -ETIMEDOUT;
	assert_int_equal(ud_session_end_all(&s.ud), -ETIMEDOUT);
	assert_int_equal(x->state, UD_FAILED);
	assert_int_equal(qps, 1);
	assert_int_equal(connections, 0);
	assert_int_equal(forgotten, 1);
	assert_int_equal(collected, 0);
	assert_int_equal(drops[UD_DROP_LOST], 2);
	assert_ptr_equal(ud_session_find(&s.ud, x->qp_num), x);

	ud_session_look(x);
	assert_int_equal(asked[FLUSH], 2);
	ud_session_look(x); /* not yet */
	assert_int_equal(asked[FLUSH], 2);
	now += AGAIN_MS;
	assert_null(to(1, PEER));
	assert_string_equal(why, "no memory, or no answer of the worker");
	assert_int_equal(asked[FLUSH], 3);
	assert_int_equal(count_sessions(), 1);

	answers[FLUSH] = 0;
	now += AGAIN_MS;
	ud_session_look(x);
	failed(x);
	assert_int_equal(qps, 0);
	assert_int_equal(collected, 1);
	assert_int_equal(drops[UD_DROP_LOST], 2); /* once */
	assert_int_equal(ud_session_end_all(&s.ud), 0);
	assert_int_equal(count_sessions(), 0);
}

static void test_worker_that_does_not_answer_while_keys_are_made(void **state)
{
	struct ud_session *x = to(1, PEER);

	(void)state;
	answers[FLUSH] = -ETIMEDOUT;
	say(x, "closed");
	assert_int_equal(x->state, UD_FAILED);
	assert_int_equal(talks, 0);
	assert_int_equal(qps, 1);
}

/* --- limits ------------------------------------------------------------------------------ */

static void fill(void)
{
	for (uint32_t i = 1; i <= UD_SESSIONS; i++)
		assert_non_null(to(1, i));
	assert_int_equal(count_sessions(), UD_SESSIONS);
}

static int has(uint32_t peer, int incoming)
{
	for (const struct ud_session *x = s.ud.sessions; x; x = x->next)
		if (x->peer == peer && x->incoming == incoming)
			return 1;
	return 0;
}

/* The 65th ends the one that was used least recently. */
static void test_sessions_of_a_qp(void **state)
{
	(void)state;
	fill();
	to(1, 1)->used = ++now;
	assert_non_null(to(1, UD_SESSIONS + 1));
	assert_int_equal(count_sessions(), UD_SESSIONS);
	assert_true(has(1, 0));
	assert_false(has(2, 0));
	called_by(2, UD_SESSIONS + 2);
	assert_int_equal(count_sessions(), UD_SESSIONS);
	assert_false(has(3, 0));
	assert_int_equal(qps, UD_SESSIONS);
}

/* The 33rd that peers of a GID begin ends one of theirs. */
static void test_sessions_that_peers_of_a_gid_begin(void **state)
{
	(void)state;
	assert_non_null(to(1, 1000));
	called_by(2, 2000);
	for (uint32_t i = 1; i <= UD_SESSIONS_GID + 1; i++)
		called_by(1, i);
	assert_int_equal(count_sessions(), UD_SESSIONS_GID + 2);
	assert_true(has(1000, 0));
	assert_true(has(2000, 1));
	assert_false(has(1, 1));
	assert_true(has(2, 1));
}

/* --- members of groups ------------------------------------------------------------------- */

/* ms from the begin of one session to that of the next one, if each copy is due at once
 * and each session fails. */
static int64_t pause_of(struct ud_pause *pause)
{
	const unsigned before = asked[CREATE];
	const int64_t then = now;
	struct ud_session *x = NULL;

	while (!x && now < then + 2 * AGAIN_MOST_MS)
		x = copy_to(1, PEER, pause);
	assert_non_null(x);
	assert_int_equal(asked[CREATE], before + 1);
	say(x, "closed");
	failed(x);
	return now - then;
}

/* It is called again after pauses that grow, and others are not affected. */
static void test_member_that_does_not_answer(void **state)
{
	static const int seconds[] = { 0, 1, 2, 4, 8, 16, 32, 60, 60 };
	struct ud_pause pause = { 0 }, other = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(seconds) / sizeof(*seconds); i++)
		assert_in_range(pause_of(&pause), seconds[i] * 1000,
				seconds[i] * 1000 + 2);
	assert_non_null(copy_to(1, PEER + 1, &other));
	assert_null(copy_to(1, PEER, &pause));
	assert_null(why);
	now += AGAIN_MS;
	assert_non_null(to(1, PEER)); /* a message of the program itself */
}

/* The pauses begin again after a session that was ready for as long as the last one. */
static void test_member_that_answers_again(void **state)
{
	struct ud_pause pause = { 0 };
	struct ud_session *x;

	(void)state;
	pause_of(&pause);
	pause_of(&pause);
	now += 2 * AGAIN_MS;
	x = copy_to(1, PEER, &pause);
	make_ready(x);
	assert_ptr_equal(copy_to(1, PEER, &pause), x);
	x->lost = 1; /* too early */
	assert_null(copy_to(1, PEER, &pause));
	now += 4 * AGAIN_MS;
	copy_to(1, PEER, &pause)->lost = 1;
	now += 7 * AGAIN_MS;
	assert_null(copy_to(1, PEER, &pause));
	now += AGAIN_MS;
	x = copy_to(1, PEER, &pause);
	make_ready(x);
	now += 16 * AGAIN_MS;
	assert_ptr_equal(copy_to(1, PEER, &pause), x);
	x->lost = 1;
	assert_non_null(copy_to(1, PEER, &pause)); /* at once */
}

/* The members of a GID and its calls have the same places. */
static void test_members_of_a_gid(void **state)
{
	struct ud_pause pauses[UD_SESSIONS_GID + 1] = { 0 };

	(void)state;
	assert_non_null(to(1, 1000));
	called_by(2, 2000);
	for (uint32_t i = 0; i < UD_SESSIONS_GID; i++)
		assert_non_null(copy_to(1, 1 + i, &pauses[i]));
	assert_null(copy_to(1, 100, &pauses[UD_SESSIONS_GID]));
	assert_string_equal(why, "no place for a session");
	assert_int_equal(count_sessions(), UD_SESSIONS_GID + 2);
	called_by(1, 101);
	assert_int_equal(count_sessions(), UD_SESSIONS_GID + 2);
	assert_false(has(1, 0));
	assert_true(has(1000, 0));
	assert_true(has(2000, 1));
	assert_non_null(to(1, 2)); /* it is the program's from now on */
	assert_non_null(copy_to(1, 100, &pauses[UD_SESSIONS_GID]));
	assert_true(has(2, 0));
}

/* Sessions that are in use do not give way to those for copies. */
static void test_copies_at_the_limit(void **state)
{
	struct ud_pause pause = { 0 };

	(void)state;
	fill();
	now += IN_USE_MS - UD_SESSIONS - 1;
	assert_null(copy_to(2, 1000, &pause));
	assert_string_equal(why, "no place for a session");
	assert_int_equal(count_sessions(), UD_SESSIONS);
	assert_non_null(copy_to(2, 1000, &pause));
	assert_int_equal(count_sessions(), UD_SESSIONS);
	assert_false(has(1, 0));
	assert_true(has(2, 0));
}

/* Sessions that have failed or ended give way first. */
static void test_failed_sessions_give_way(void **state)
{
	struct ud_pause pauses[3] = { 0 };
	struct ud_session *x;

	(void)state;
	fill();
	x = to(1, UD_SESSIONS);
	say(x, "closed");
	failed(x);
	assert_non_null(copy_to(2, 1, &pauses[0]));
	assert_false(has(UD_SESSIONS, 0));
	to(1, UD_SESSIONS - 1)->lost = 1;
	assert_non_null(copy_to(2, 2, &pauses[1]));
	assert_false(has(UD_SESSIONS - 1, 0));
	assert_null(copy_to(2, 3, &pauses[2]));
	assert_int_equal(count_sessions(), UD_SESSIONS);
}

static void test_no_room_while_the_worker_does_not_answer(void **state)
{
	(void)state;
	fill();
	answers[FLUSH] = -ETIMEDOUT;
	assert_null(to(1, UD_SESSIONS + 1));
	assert_string_equal(why, "no memory, or no answer of the worker");
	called_by(2, UD_SESSIONS + 1);
	assert_int_equal(asked[ANSWER], 1);
	assert_int_equal(talks, UD_SESSIONS - 1);
	assert_int_equal(count_sessions(), UD_SESSIONS);
}

/* A peer that calls again replaces the session that it began, and no other. */
static void test_peer_that_calls_again(void **state)
{
	const struct ud_session *own = to(1, PEER);

	(void)state;
	called_by(1, PEER);
	called_by(1, PEER + 1);
	called_by(2, PEER);
	assert_int_equal(count_sessions(), 4);
	called_by(1, PEER);
	assert_int_equal(count_sessions(), 4);
	assert_int_equal(asked[FLUSH], 1);
	assert_int_equal(own->state, UD_CALLING);
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_session_of_this_end),
		TEST(test_session_of_a_peer),
		TEST(test_session_that_cannot_begin),
		TEST(test_peer_that_run_toml_does_not_have),
		TEST(test_session_that_fails),
		TEST(test_call_that_cannot_be_taken),
		TEST(test_call_of_a_peer_that_cannot_be_told),
		TEST(test_refused_calls),
		TEST(test_end_of_a_session),
		TEST(test_session_whose_qp_ends),
		TEST(test_worker_that_does_not_answer),
		TEST(test_worker_that_does_not_answer_while_keys_are_made),
		TEST(test_sessions_of_a_qp),
		TEST(test_sessions_that_peers_of_a_gid_begin),
		TEST(test_member_that_does_not_answer),
		TEST(test_member_that_answers_again),
		TEST(test_members_of_a_gid),
		TEST(test_copies_at_the_limit),
		TEST(test_failed_sessions_give_way),
		TEST(test_no_room_while_the_worker_does_not_answer),
		TEST(test_peer_that_calls_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
