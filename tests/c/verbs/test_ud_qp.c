/* The life of UD QPs (verbs/ud.c, verbs/qp.c), with a worker and an agent of the test. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "host/connecting.h"
#include "host/talk.h"
#include "support/shifted_clock.h"
#include "verbs/ud.h"
#include "verbs/verbs.h"
#include "wire/reason.h"

enum { DEPTH = 4, TEXT = 4096 };

/* Requests to the worker, to the agent and to the rest of the library. */
enum step {
	CREATE,
	ALLOC,
	OFFER,
	DESTROY,
	WATCH,
	JOIN,
	END_SESSIONS,
	SERVE,
	STEPS,
};

static int answers[STEPS];    /* -errno: the step fails */
static unsigned after[STEPS]; /* so many that succeed before */
static unsigned asked[STEPS];
static int qps, regions, services, joined; /* that live */
static int watched; /* 1: the thread watches the service */
static unsigned collected, cleared, arrivals, sent, flushed, completed;
static unsigned group_looks, paused, members_forgotten, groups_dropped;
static unsigned
	moves_at; /* this verbs_collect() brings all messages to their end */
static int over;  /* 1: the service has ended */
static const char *said;       /* an event of the service */
static struct srdma_qp *lives; /* on: its DESTROY was not answered */
static uint32_t number;	       /* QPN of the last QP of the worker */

static struct subject {
	struct verbs_root root;
	struct verbs_policy policy;
	struct srdma_device device;
	struct srdma_pd leg;
	struct verbs_pd pd;
	struct verbs_cq cq;
	struct ud_session session;
} s;

static int step(enum step step)
{
	return asked[step]++ < after[step] ? 0 : answers[step];
}

/* --- the worker -------------------------------------------------------------------- */

int srdma_shared_queue_create(struct srdma_qp **qp, struct srdma_pd *pd,
			      uint32_t depth)
{
	int r = step(CREATE);

	(void)pd;
	assert_int_equal(depth, UD_RECVS);
	*qp = NULL;
	if (r)
		return r;
	*qp = calloc(1, sizeof(**qp));
	assert_non_null(*qp);
	(*qp)->made.qp.qpn = ++number;
	(*qp)->status = SRDMA_QP_STATUS_INIT;
	qps++;
	return 0;
}

void srdma_query_qp(const struct srdma_qp *qp, struct srdma_qp_query *query)
{
	*query = (struct srdma_qp_query){ .qp_num = qp->made.qp.qpn };
}

int srdma_destroy_qp(struct srdma_qp *qp)
{
	int r = qp ? step(DESTROY) : 0;

	lives = r ? qp : NULL;
	if (qp && !r) {
		qps--;
		free(qp);
	}
	return r;
}

int srdma_alloc_mr(struct srdma_mr **mr, struct srdma_pd *pd,
		   const struct srdma_mr_attr *attr)
{
	int r = step(ALLOC);

	(void)pd;
	assert_int_equal(attr->length, (size_t)UD_RECVS * UD_SLOT);
	*mr = r ? NULL : malloc(1);
	regions += !r;
	return r;
}

int srdma_dereg_mr(struct srdma_mr *mr)
{
	regions -= mr != NULL;
	free(mr);
	return 0;
}

void srdma_query_mr(const struct srdma_mr *mr, struct srdma_mr_info *info)
{
	(void)mr;
	*info = (struct srdma_mr_info){ .key = 1 };
}

int srdma_cq_fd(const struct srdma_pd *pd)
{
	(void)pd;
	return 3;
}

/* --- functions for RC QPs only ---------------------------------------------------------- */

int srdma_create_qp(struct srdma_qp **qp, struct srdma_pd *pd,
		    const struct srdma_qp_attr *attr)
{
	(void)qp;
	(void)pd;
	(void)attr;
	fail();
	return 0;
}

int srdma_shared_queue_join(struct srdma_qp *qp, struct srdma_qp *holder)
{
	(void)qp;
	(void)holder;
	fail();
	return 0;
}

int verbs_srq_join(struct verbs_srq *srq, struct srdma_qp *qp)
{
	(void)srq;
	(void)qp;
	fail();
	return 0;
}

int srdma_qp_flush(struct srdma_qp *qp, uint32_t reason)
{
	(void)qp;
	(void)reason;
	fail();
	return 0;
}

int srdma_qp_reinit(struct srdma_qp *qp)
{
	(void)qp;
	fail();
	return 0;
}

int srdma_connection_end(struct srdma_connection *c)
{
	(void)c;
	fail();
	return 0;
}

int verbs_connect(struct verbs_qp *qp)
{
	(void)qp;
	fail();
	return 0;
}

void verbs_loss_known(struct verbs_qp *qp)
{
	(void)qp;
	fail();
}

void srdma_disconnect(struct srdma_connection *c)
{
	assert_null(c);
}

/* --- the agent --------------------------------------------------------------------- */

int srdma_talk_serve_qp(struct srdma_lasting_channel **out,
			const struct srdma_talk_self *self, uint32_t qp_num,
			const uint8_t *token)
{
	int r = step(SERVE);

	(void)self;
	(void)token;
	assert_int_equal(qp_num, number);
	*out = r ? NULL : malloc(1);
	services += !r;
	return r;
}

int srdma_lasting_next(struct srdma_lasting_channel *l,
		       struct srdma_agent_event *e, int64_t deadline)
{
	assert_non_null(l);
	assert_int_equal(deadline, 0);
	if (!said)
		return -ETIMEDOUT;
	*e = (struct srdma_agent_event){ .has_talk = 1 };
	strcpy(e->event, said);
	said = NULL;
	return 0;
}

int srdma_lasting_over(const struct srdma_lasting_channel *l)
{
	assert_non_null(l);
	return over;
}

int srdma_lasting_fd(const struct srdma_lasting_channel *l)
{
	assert_non_null(l);
	return 4;
}

int srdma_lasting_close(struct srdma_lasting_channel *l)
{
	assert_false(watched);
	services -= l != NULL;
	free(l);
	return 1;
}

/* --- the rest of the library --------------------------------------------------------- */

int verbs_loop_start(struct verbs_root *root)
{
	(void)root;
	return 0;
}

int verbs_loop_watch(const struct verbs_root *root, int fd)
{
	(void)root;
	assert_int_equal(fd, 4);
	watched = 1;
	return 0;
}

void verbs_loop_unwatch(const struct verbs_root *root, int fd)
{
	(void)root;
	assert_int_equal(fd, 4);
	watched = 0;
}

int ud_session_end_all(struct verbs_ud *ud)
{
	int r = step(END_SESSIONS);

	if (!r)
		ud->sessions = NULL;
	return r;
}

void ud_group_look(struct verbs_ud *ud)
{
	assert_true(ud->ready);
	group_looks++;
}

void ud_group_pause(struct verbs_qp *qp)
{
	assert_false(qp->ud->ready);
	paused++;
}

void ud_group_forget(struct verbs_qp *qp)
{
	assert_false(qp->ud->ready);
	members_forgotten++;
}

void ud_group_drop_all(struct verbs_qp *qp)
{
	assert_null(qp->ud);
	groups_dropped++;
}

void ud_session_called(struct verbs_ud *ud, const struct srdma_agent_event *e)
{
	(void)ud;
	(void)e;
	arrivals++;
}

void ud_session_look(struct ud_session *session)
{
	assert_ptr_equal(session, &s.session);
}

struct ud_session *ud_session_find(struct verbs_ud *ud, uint32_t qp_num)
{
	return ud->sessions && qp_num == s.session.qp_num ? ud->sessions : NULL;
}

int ud_recv_offer(struct verbs_ud *ud, uint32_t i)
{
	(void)ud;
	assert_int_equal(i, asked[OFFER] % UD_RECVS);
	return step(OFFER);
}

void ud_recv_arrived(struct verbs_ud *ud, struct ud_session *session,
		     const struct srdma_wc *wc)
{
	(void)ud;
	(void)wc;
	assert_ptr_equal(session, &s.session);
	arrivals++;
}

void ud_recv_clear(struct verbs_ud *ud)
{
	(void)ud;
	cleared++;
}

void ud_recv_flush(struct verbs_ud *ud)
{
	(void)ud;
	flushed++;
}

void ud_recv_deliver(struct verbs_ud *ud)
{
	(void)ud;
}

void ud_send_done(struct ud_session *session, const struct srdma_wc *wc)
{
	(void)wc;
	assert_ptr_equal(session, &s.session);
	sent++;
}

void ud_send_flush(struct ud_session *session)
{
	assert_ptr_equal(session, &s.session);
}

void ud_send_complete(struct verbs_ud *ud)
{
	(void)ud;
	completed++;
}

void verbs_collect(struct verbs_root *root)
{
	(void)root;
	if (++collected == moves_at)
		s.session.done = s.session.put;
}

int verbs_channel_watch(const struct verbs_cq *cq, int fd)
{
	assert_ptr_equal(cq, &s.cq);
	(void)fd;
	return -step(WATCH);
}

int verbs_cq_join(struct verbs_cq *cq, uint32_t depth)
{
	int r = step(JOIN);

	(void)cq;
	(void)depth;
	joined += !r;
	return -r;
}

void verbs_cq_leave(struct verbs_cq *cq, uint32_t depth, uint32_t qp_num)
{
	(void)cq;
	(void)depth;
	(void)qp_num;
	joined--;
}

void verbs_cq_drop(struct verbs_cq *cq, uint32_t qp_num)
{
	(void)cq;
	(void)qp_num;
}

void verbs_event_put(struct verbs_root *root, struct verbs_event *e,
		     enum ibv_event_type type)
{
	(void)root;
	(void)e;
	(void)type;
	fail();
}

void verbs_event_drop(struct verbs_root *root, struct verbs_event *e)
{
	(void)root;
	(void)e;
}

void *verbs_domain_alloc(struct verbs_pd *pd, size_t len, int *of_program)
{
	(void)pd;
	*of_program = 0;
	return malloc(len);
}

void verbs_domain_free(struct verbs_pd *pd, void *memory, int of_program)
{
	(void)pd;
	(void)of_program;
	free(memory);
}

void verbs_acks_wait(const struct verbs_acks *a, uint32_t reported)
{
	(void)a;
	assert_int_equal(reported, 0);
}

void verbs_batch_free(struct verbs_batch *b)
{
	assert_null(b);
}

int verbs_attr_tell(struct verbs_qp *qp, const struct ibv_qp_attr *attr,
		    int mask)
{
	(void)qp;
	(void)attr;
	(void)mask;
	return 0;
}

void verbs_attr_keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *from,
		     int mask)
{
	(void)mask;
	*to = *from;
}

void *verbs_null(int err)
{
	errno = err;
	return NULL;
}

/* --- a QP ---------------------------------------------------------------------------- */

static int begin(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	memset(answers, 0, sizeof(answers));
	memset(after, 0, sizeof(after));
	memset(asked, 0, sizeof(asked));
	shift_clock(0);
	collected = cleared = arrivals = sent = flushed = completed = 0;
	moves_at = 0;
	over = 0;
	said = NULL;
	pthread_mutex_init(&s.root.lock, NULL);
	s.root.policy = &s.policy;
	s.leg.device = &s.device;
	s.pd.pd = &s.leg;
	s.pd.ibv.context = &s.root.ctx.context;
	return 0;
}

static struct ibv_qp *create_deep(uint32_t sends)
{
	struct ibv_qp_init_attr init = { .send_cq = &s.cq.ibv,
					 .recv_cq = &s.cq.ibv,
					 .cap = { sends, DEPTH, 1, 1, 0 },
					 .qp_type = IBV_QPT_UD };

	return ibv_create_qp(&s.pd.ibv, &init);
}

static struct ibv_qp *create(void)
{
	return create_deep(DEPTH);
}

static int to(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static struct verbs_ud *to_rtr(struct ibv_qp *qp)
{
	assert_non_null(qp);
	assert_int_equal(to(qp, IBV_QPS_INIT,
			    IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
			 0);
	assert_int_equal(to(qp, IBV_QPS_RTR, 0), 0);
	return ((struct verbs_qp *)qp)->ud;
}

/* The QP has a session whose messages have not arrived. */
static void send(struct ibv_qp *qp)
{
	struct verbs_ud *ud = ((struct verbs_qp *)qp)->ud;

	s.session = (struct ud_session){
		.ud = ud, .state = UD_UP, .qp_num = 1000, .put = 2, .done = 1
	};
	ud->sessions = &s.session;
}

static void nothing_lives(void)
{
	assert_null(s.root.uds);
	assert_int_equal(qps, 0);
	assert_int_equal(regions, 0);
	assert_int_equal(services, 0);
	assert_int_equal(joined, 0);
	assert_int_equal(s.pd.users, 0);
	assert_int_equal(s.cq.users, 0);
}

static void destroy(struct ibv_qp *qp)
{
	assert_int_equal(ibv_destroy_qp(qp), 0);
	nothing_lives();
}

/* The function returns the text that the library writes to stderr meanwhile. */
static const char *written(void (*act)(void *), void *arg)
{
	static char text[TEXT];
	FILE *own = stderr, *file = tmpfile();
	size_t n;

	assert_non_null(file);
	stderr = file;
	act(arg);
	stderr = own;
	rewind(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = 0;
	fclose(file);
	return text;
}

/* --- QPs that cannot be made ------------------------------------------------------------- */

static void test_qp_that_cannot_be_made(void **state)
{
	static const struct {
		enum step step;
		unsigned after;
	} cases[] = { { CREATE, 0 }, { ALLOC, 0 },
		      { OFFER, 0 },  { OFFER, UD_RECVS - 1 },
		      { WATCH, 0 },  { WATCH, 1 },
		      { JOIN, 0 },   { JOIN, 1 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin(state);
		answers[cases[i].step] = -EDQUOT;
		after[cases[i].step] = cases[i].after;
		assert_null(create());
		assert_int_equal(errno, EDQUOT);
		nothing_lives();
	}
}

/* A session has a place for each request of the send queue, within limits. */
static void test_places_of_a_session(void **state)
{
	static const struct {
		uint32_t sends, places;
	} cases[] = { { 1, 128 },
		      { 128, 128 },
		      { 129, 256 },
		      { 1024, 1024 },
		      { 4096, 1024 } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ibv_qp *qp = create_deep(cases[i].sends);

		assert_non_null(qp);
		assert_int_equal(((struct verbs_qp *)qp)->ud->places,
				 cases[i].places);
		destroy(qp);
	}
}

/* The QP of the worker may live on. The context has the UD QP no more. */
static void test_qp_that_cannot_be_made_and_a_worker_that_hangs(void **state)
{
	(void)state;
	answers[JOIN] = -ENOMEM;
	answers[DESTROY] = -ETIMEDOUT;
	assert_null(create());
	assert_int_equal(errno, ENOMEM);
	assert_null(s.root.uds);
	assert_int_equal(verbs_ud_look(&s.root), 0);
	answers[DESTROY] = 0;
	srdma_destroy_qp(lives);
	nothing_lives();
}

/* The agent knows groups of a QP in RTR and RTS only. They end with the QP. */
static void test_groups(void **state)
{
	struct ibv_qp *qp = create();

	(void)state;
	group_looks = paused = members_forgotten = groups_dropped = 0;
	verbs_ud_look(&s.root);
	assert_int_equal(group_looks, 0);
	to_rtr(qp);
	verbs_ud_look(&s.root);
	assert_int_equal(group_looks, 1);
	assert_int_equal(to(qp, IBV_QPS_RESET, 0), 0);
	assert_int_equal(paused, 1);
	assert_int_equal(members_forgotten, 1);
	to_rtr(qp);
	verbs_ud_error((struct verbs_qp *)qp);
	assert_int_equal(paused, 2);
	assert_int_equal(members_forgotten, 1); /* a message may go to them */
	verbs_ud_look(&s.root);
	assert_int_equal(group_looks, 1);
	assert_int_equal(groups_dropped, 0);
	destroy(qp);
	assert_int_equal(groups_dropped, 1);
}

/* --- the end, and RESET -------------------------------------------------------------------- */

static void test_end_waits_for_messages(void **state)
{
	struct ibv_qp *qp = create();

	(void)state;
	to_rtr(qp);
	send(qp);
	moves_at = 3;
	destroy(qp);
	assert_int_equal(collected, 3);
}

static void test_end_does_not_wait_for_a_session_that_failed(void **state)
{
	struct ibv_qp *qp = create();

	(void)state;
	send(qp);
	s.session.state = UD_FAILED;
	destroy(qp);
	assert_int_equal(collected, 0);
	qp = create();
	send(qp);
	s.session.lost = 1;
	destroy(qp);
	assert_int_equal(collected, 0);
}

/* Messages that do not arrive delay the end for 1 s. */
static void test_end_without_arrival(void **state)
{
	struct ibv_qp *qp = create();
	const int64_t then = ud_now();

	(void)state;
	send(qp);
	destroy(qp);
	assert_true(ud_now() - then >= 1000);
	assert_true(collected > 0);
}

/* The worker does not answer: the QP lives on, and may be ended again. */
static void test_end_that_the_worker_does_not_answer(void **state)
{
	struct ibv_qp *qp = create();
	struct verbs_ud *ud = to_rtr(qp);

	(void)state;
	answers[END_SESSIONS] = -ETIMEDOUT;
	assert_int_equal(ibv_destroy_qp(qp), ETIMEDOUT);
	assert_int_equal(asked[DESTROY], 0);
	answers[END_SESSIONS] = 0;
	answers[DESTROY] = -ETIMEDOUT;
	assert_int_equal(ibv_destroy_qp(qp), ETIMEDOUT);
	assert_ptr_equal(s.root.uds, ud);
	assert_int_equal(s.pd.users, 1);
	answers[DESTROY] = 0;
	destroy(qp);
}

static void test_reset_that_the_worker_does_not_answer(void **state)
{
	struct ibv_qp *qp = create();
	struct verbs_ud *ud = to_rtr(qp);
	const uint32_t before = qp->qp_num;

	(void)state;
	ud->sends.count = 2;
	answers[END_SESSIONS] = -ETIMEDOUT;
	assert_int_equal(to(qp, IBV_QPS_RESET, 0), ETIMEDOUT);
	assert_int_equal(qp->state, IBV_QPS_RTR);
	assert_false(ud->ready);
	assert_int_equal(cleared, 0);
	answers[END_SESSIONS] = 0;
	assert_int_equal(to(qp, IBV_QPS_RESET, 0), 0);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_int_equal(cleared, 1);
	assert_int_equal(ud->sends.count, 0);
	assert_int_equal(qp->qp_num, before);
	assert_int_equal(services, 1); /* it stays */
	assert_ptr_equal(to_rtr(qp), ud);
	assert_true(ud->ready);
	destroy(qp);
}

/* The QP of the worker has ended: RESET makes another one. */
static void test_reset_after_the_end_of_the_qp(void **state)
{
	struct ibv_qp *qp = create();
	const struct srdma_wc wc = { .opcode = SRDMA_WC_QP_EVENT,
				     .qp_num = qp->qp_num };
	const uint32_t before = qp->qp_num;

	(void)state;
	to_rtr(qp);
	verbs_ud_record(&s.root, &wc);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	assert_int_equal(flushed, 1);
	assert_int_equal(completed, 1);
	((struct verbs_qp *)qp)->qp->status = SRDMA_QP_STATUS_ERROR;
	assert_int_equal(to(qp, IBV_QPS_RESET, 0), 0);
	assert_int_not_equal(qp->qp_num, before);
	assert_int_equal(qps, 1);
	assert_int_equal(services, 0);
	to_rtr(qp);
	assert_int_equal(services, 1);
	destroy(qp);
}

/* --- records, and peers that call ------------------------------------------------------------ */

static void record(unsigned opcode, uint32_t qp_num)
{
	const struct srdma_wc wc = { .opcode = (enum srdma_wc_opcode)opcode,
				     .qp_num = qp_num };

	verbs_ud_record(&s.root, &wc);
}

static void test_records_of_a_session(void **state)
{
	struct ibv_qp *other = create(), *qp = create();

	(void)state;
	send(qp);
	record(SRDMA_WC_SEND, 1000);
	assert_int_equal(sent, 1);
	record(SRDMA_WC_RECV, 1000);
	assert_int_equal(arrivals, 1);
	record(SRDMA_WC_SEND, 1001); /* of no session */
	assert_int_equal(sent, 1);
	assert_false(s.session.lost);
	record(SRDMA_WC_QP_EVENT, 1000);
	assert_true(s.session.lost);
	assert_int_equal(other->state, IBV_QPS_RESET);
	assert_int_equal(ibv_destroy_qp(other), 0);
	destroy(qp);
}

/* Without the agent no peer may call. The library tries to serve each second. */
static void test_agent_that_does_not_serve(void **state)
{
	struct ibv_qp *qp = create();

	(void)state;
	answers[SERVE] = -ECONNREFUSED;
	to_rtr(qp);
	assert_int_equal(asked[SERVE], 1);
	assert_int_equal(verbs_ud_look(&s.root), 1);
	assert_int_equal(asked[SERVE], 1);
	answers[SERVE] = 0;
	shift_clock(1);
	verbs_ud_look(&s.root);
	assert_int_equal(services, 1);
	said = "called";
	verbs_ud_look(&s.root);
	assert_int_equal(arrivals, 1);
	over = 1; /* the agent ended, or refuses */
	verbs_ud_look(&s.root);
	assert_int_equal(services, 0);
	over = 0;
	shift_clock(2);
	verbs_ud_look(&s.root);
	assert_int_equal(services, 1);
	destroy(qp);
}

/* --- dropped messages ------------------------------------------------------------------------ */

static void drop_of_each_cause(void *arg)
{
	for (int i = 0; i < UD_DROPS; i++) {
		ud_drop(arg, (enum ud_drop)i, 0, NULL);
		ud_drop(arg, (enum ud_drop)i, 1, i ? NULL : "it refuses");
		ud_drop(arg, (enum ud_drop)i, (uint32_t)i, "no second line");
	}
}

static void destroy_qp(void *arg)
{
	destroy(arg);
}

/* One line for the first message of a cause, and one for all at the end. */
static void test_lines_of_dropped_messages(void **state)
{
	struct ibv_qp *qp;

	(void)state;
	number = 0xab;
	qp = create();
	assert_string_equal(
		written(drop_of_each_cause, ((struct verbs_qp *)qp)->ud),
#define DROPS "srdma: UD QP 0x0000ac drops messages: "
		DROPS
		"no session with the peer: it refuses\n" DROPS
		"a peer takes no more messages\n" DROPS
		"a session ended before they arrived\n" DROPS
		"messages of a peer are malformed\n" DROPS
		"messages of a peer have another Q_Key\n" DROPS
		"receives are too short\n" DROPS
		"peers send too much before their keys are confirmed\n" DROPS
		"the members of a group are not known\n" DROPS
		"a group has more members than copies are sent\n" DROPS
		"peers send to a group without this QP\n");
	assert_string_equal(
		written(destroy_qp, qp),
#define DROPPED "srdma: UD QP 0x0000ac dropped "
		DROPPED
		"2 messages: a peer takes no more messages\n" DROPPED
		"3 messages: a session ended before they arrived\n" DROPPED
		"4 messages: messages of a peer are malformed\n" DROPPED
		"5 messages: messages of a peer have another Q_Key\n" DROPPED
		"6 messages: receives are too short\n" DROPPED
		"7 messages: peers send too much before their keys "
		"are confirmed\n" DROPPED
		"8 messages: the members of a group are not known\n" DROPPED
		"9 messages: a group has more members than copies are sent\n" DROPPED
		"10 messages: peers send to a group without this QP\n");
}

#define TEST(NAME) cmocka_unit_test_setup(NAME, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_qp_that_cannot_be_made),
		TEST(test_places_of_a_session),
		TEST(test_qp_that_cannot_be_made_and_a_worker_that_hangs),
		TEST(test_groups),
		TEST(test_end_waits_for_messages),
		TEST(test_end_does_not_wait_for_a_session_that_failed),
		TEST(test_end_without_arrival),
		TEST(test_end_that_the_worker_does_not_answer),
		TEST(test_reset_that_the_worker_does_not_answer),
		TEST(test_reset_after_the_end_of_the_qp),
		TEST(test_records_of_a_session),
		TEST(test_agent_that_does_not_serve),
		TEST(test_lines_of_dropped_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
