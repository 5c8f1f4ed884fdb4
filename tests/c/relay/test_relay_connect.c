/*
 * The wire fails (docs/protocol.md 7): which end reconnects and when, path
 * validation, and attacks with connections of a third party.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"
#include "session/session_state.h"

#define MS UINT64_C(1000000)

enum { CALLS = 64, PIECE = 3000 };

/*
 * Controls the result of connects, records their times, and holds packets back.
 */
struct world {
	struct pair p;
	enum srdma_mem_call answer;
	int count; /* connects since reset */
	uint64_t at[CALLS];
	int hold_from; /* side whose next packet is held back, or -1 */
	uint32_t len;
	uint8_t held[SRDMA_MAX_PACKET];
};

static enum srdma_mem_call called(void *ctx, int side)
{
	struct world *w = ctx;

	assert_int_equal(side, 0);
	if (w->count < CALLS)
		w->at[w->count] = w->p.now;
	w->count++;
	return w->answer;
}

static enum srdma_mem_fate hold(void *ctx, struct srdma_mem_datagram *d)
{
	struct world *w = ctx;

	if (w->hold_from != d->side)
		return SRDMA_MEM_PASS;
	w->hold_from = -1;
	w->len = d->len;
	memcpy(w->held, d->data, d->len);
	return SRDMA_MEM_DROP;
}

static void begin_at(struct world *w, uint8_t level, int qps)
{
	memset(w, 0, sizeof(*w));
	w->hold_from = -1;
	pair_defaults(&w->p);
	w->p.level = level;
	w->p.allow_unprotected = 1;
	if (level == SRDMA_LEVEL_NONE)
		w->p.suite = w->p.tag_len = 0;
	w->p.now = 1000 * MS;
	w->p.ring = 4096;
	w->p.wire.ctx = w;
	w->p.wire.call = called;
	w->p.wire.fate = hold;
	pair_open(&w->p);
	for (int i = 0; i < qps; i++)
		pair_connect(&w->p, i);
	w->count = 0;
}

static void begin(struct world *w, int qps)
{
	begin_at(w, SRDMA_LEVEL_AEAD, qps);
}

static struct srdma_qp *qp_at(struct world *w, int side, int i)
{
	return srdma_relay_qp(w->p.side[side].relay, w->p.side[side].qp[i].qpn);
}

static const struct srdma_stats *stats(struct world *w, int side)
{
	return srdma_relay_stats(w->p.side[side].relay);
}

/* Runs like workers: sleeps until the next timer. */
static void pass(struct world *w, uint64_t ns)
{
	uint64_t end = w->p.now + ns;

	for (pair_run(&w->p, 2); w->p.now < end; pair_run(&w->p, 2)) {
		uint64_t next = end;

		for (int i = 0; i < 2; i++) {
			struct srdma_relay *r = w->p.side[i].relay;

			if (w->p.side[i].wire->ops->arm(w->p.side[i].wire))
				next = w->p.now;
			else if (srdma_relay_timer(r) < next)
				next = srdma_relay_timer(r);
		}
		if (next > w->p.now)
			w->p.now = next;
	}
}

static void cut(struct world *w)
{
	srdma_port_mem_cut(srdma_path_conn(qp_at(w, 0, 0)));
}

/* Holds the next packet (an ack) of QP 0 of a side back and keeps it. */
static void hold_an_ack(struct world *w, int side)
{
	srdma_qp_core(qp_at(w, side, 0))->scheduled |= SRDMA_SAY_ACK;
	srdma_qp_activate(qp_at(w, side, 0));
	w->hold_from = side;
	pair_run(&w->p, 2);
	assert_int_equal(w->hold_from, -1);
}

/*
 * Cuts the client's connection while an ack of the server is held back. Later
 * connects get this result.
 */
static void cut_holding_an_ack(struct world *w, enum srdma_mem_call answer)
{
	hold_an_ack(w, 1);
	w->answer = answer;
	cut(w);
	pass(w, 100 * MS);
}

static void post_write(struct world *w, int side, int i, uint64_t id)
{
	struct pair *p = &w->p;
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.qpn = p->side[side].qp[i].qpn,
				.id = id,
				.length = PIECE };

	memset(p->side[side].memory, (int)id, PIECE);
	d.local_addr = (uintptr_t)p->side[side].memory;
	d.remote_addr = (uintptr_t)p->side[!side].memory + PAIR_MEMORY / 2;
	pair_post(p, side, d, NULL);
}

static void expect_written(struct world *w, int side, uint64_t id)
{
	struct pair *p = &w->p;

	pair_expect(p, side, id, SRDMA_REASON_NONE);
	assert_memory_equal(p->side[!side].memory + PAIR_MEMORY / 2,
			    p->side[side].memory, PIECE);
}

static void expect_lost(struct world *w, int side, int i)
{
	uint32_t reason;

	assert_int_equal(pair_state(&w->p, side, i, &reason), SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_WIRE_LOST);
}

/* --- reconnecting --------------------------------------------------------- */

/*
 * Connects at once, 10 ms after the first failure, twice as long after each
 * further one, up to 1 s. After 15 s both ends report WIRE_LOST.
 */
static void check_back_off(enum srdma_mem_call answer)
{
	struct world w;
	uint64_t gone;

	begin(&w, 1);
	pass(&w, 100 * MS);
	w.answer = answer;
	cut(&w);
	post_write(&w, 0, 0, 7);
	post_write(&w, 1, 0, 8);
	gone = w.p.now;
	pass(&w, 14990 * MS);
	assert_in_range(w.at[0] - gone, 0, MS);
	for (int i = 1; i < w.count; i++) {
		uint64_t want = i > 7 ? 1000 : UINT64_C(10) << (i - 1);

		assert_in_range(w.at[i] - w.at[i - 1], want * MS,
				want * MS + MS);
	}
	assert_in_range(w.count, 20, 22);
	pair_expect_none(&w.p, 0);
	pair_expect_none(&w.p, 1);
	pass(&w, 20 * MS);
	pair_expect(&w.p, 0, 7, SRDMA_REASON_WIRE_LOST);
	pair_expect(&w.p, 1, 8, SRDMA_REASON_WIRE_LOST);
	expect_lost(&w, 0, 0);
	expect_lost(&w, 1, 0);
	gone = (uint64_t)w.count;
	pass(&w, 10000 * MS);
	assert_int_equal(w.count, gone);
	pair_close(&w.p);
}

static void test_refused_connect_backs_off(void **state)
{
	(void)state;
	check_back_off(SRDMA_MEM_REFUSED);
	check_back_off(SRDMA_MEM_IMPOSSIBLE);
}

/* A connect that stays silent, accepted or not, times out after 2 s. */
static void test_silent_connect_times_out(void **state)
{
	static const enum srdma_mem_call answers[] = { SRDMA_MEM_SILENT,
						       SRDMA_MEM_UNANSWERED };

	(void)state;
	for (int n = 0; n < 2; n++) {
		struct world w;

		begin(&w, 2); /* they share a connection */
		post_write(&w, 0, 0, 7);
		w.answer = answers[n];
		cut(&w);
		pass(&w, 5000 * MS);
		assert_int_equal(w.count, 3);
		assert_in_range(w.at[1] - w.at[0], 2010 * MS, 2011 * MS);
		assert_in_range(w.at[2] - w.at[1], 2020 * MS, 2021 * MS);
		pair_expect_none(&w.p, 0);
		w.answer = SRDMA_MEM_ANSWERED;
		pass(&w, 2000 * MS);
		expect_written(&w, 0, 7);
		for (int side = 0; side < 2; side++)
			for (int i = 0; i < 2; i++)
				assert_true(srdma_connect_validated(
					qp_at(&w, side, i)));
		assert_null(w.p.side[0].relay->env.paths->paths->next);
		pair_close(&w.p);
	}
}

/*
 * A validated path is reconnected at once, however long it was idle. Requests
 * that either end posts afterwards succeed.
 */
static void test_idle_path_reconnects_at_once(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1);
	pass(&w, 3600000 * MS);
	cut(&w);
	pass(&w, MS);
	assert_int_equal(w.count, 1);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(stats(&w, side)->wires_lost, 1);
		post_write(&w, side, 0, 9);
		pass(&w, MS);
		expect_written(&w, side, 9);
	}
	pair_close(&w.p);
}

/*
 * If each connection fails as soon as its path is validated, there are at most
 * 100 connects per second.
 */
static void test_failing_connections_limit_connect_rate(void **state)
{
	struct world w;
	uint64_t end;

	(void)state;
	begin(&w, 1);
	end = w.p.now + 1000 * MS;
	while (w.p.now < end) {
		if (srdma_connect_validated(qp_at(&w, 0, 0)))
			cut(&w);
		pass(&w, MS / 10);
	}
	assert_in_range(w.count, 90, 101);
	post_write(&w, 0, 0, 3);
	pass(&w, 20 * MS);
	expect_written(&w, 0, 3);
	pair_close(&w.p);
}

/*
 * The keys are installed but no connect succeeds: both ends give up after the
 * same time.
 */
static void test_never_connected_gives_up(void **state)
{
	struct srdma_qp_keys k;
	struct world w;

	(void)state;
	begin(&w, 0);
	w.answer = SRDMA_MEM_SILENT;
	pair_init_qp(&w.p, 0);
	for (int side = 1; side >= 0; side--) {
		pair_keys(&w.p, side, 0, &k);
		assert_int_equal(srdma_relay_qp_keys(w.p.side[side].relay,
						     w.p.side[side].leg, &k),
				 0);
	}
	pass(&w, 14990 * MS);
	assert_int_equal(pair_state(&w.p, 0, 0, NULL), SRDMA_QP_RTR);
	assert_int_equal(pair_state(&w.p, 1, 0, NULL), SRDMA_QP_RTR);
	pass(&w, 20 * MS);
	expect_lost(&w, 0, 0);
	expect_lost(&w, 1, 0);
	pair_close(&w.p);
}

/*
 * A deadline expires while there is no connection, and a QP can be destroyed
 * then.
 */
static void test_qp_ends_without_connection(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 2);
	srdma_qp_requester(qp_at(&w, 0, 0))->timeout = 500 * MS;
	post_write(&w, 0, 0, 5);
	w.answer = SRDMA_MEM_SILENT;
	cut(&w);
	pass(&w, 499 * MS);
	pair_expect_none(&w.p, 0);
	pass(&w, 2 * MS);
	pair_expect(&w.p, 0, 5, SRDMA_REASON_DEADLINE);
	pair_destroy_qp(&w.p, 1);
	pair_destroy_qp(&w.p, 0);
	assert_null(w.p.side[0].relay->env.paths->paths);
	assert_int_equal(w.p.side[1].relay->qp_count, 0);
	pair_close(&w.p);
}

/* The key exchange reports that the peer has gone: the QP ends at once. */
static void test_qp_end_call_fails_qp_at_once(void **state)
{
	struct srdma_qp_params init = { .sq = 1, .rq = 1 };
	struct srdma_qp_info young;
	struct side *s;
	struct world w;
	uint32_t reason;

	(void)state;
	begin(&w, 1);
	s = &w.p.side[0];
	w.answer = SRDMA_MEM_REFUSED;
	cut(&w);
	post_write(&w, 0, 0, 7);
	pass(&w, 50 * MS);
	pair_expect_none(&w.p, 0);
	assert_int_equal(srdma_relay_qp_end(s->relay, s->leg, s->qp[0].qpn,
					    SRDMA_REASON_WIRE_LOST),
			 0);
	pass(&w, MS);
	pair_expect(&w.p, 0, 7, SRDMA_REASON_WIRE_LOST);
	expect_lost(&w, 0, 0);
	assert_int_equal(srdma_relay_qp_init(s->relay, s->leg, &init, &young),
			 0);
	assert_int_equal(srdma_relay_qp_end(s->relay, s->leg, young.qpn,
					    SRDMA_REASON_PEER_CLOSED),
			 0);
	pass(&w, MS);
	assert_int_equal(
		srdma_relay_qp_state(s->relay, s->leg, young.qpn, &reason),
		SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_PEER_CLOSED);
	pair_close(&w.p);
}

/* --- connections of a third party ----------------------------------------- */

/*
 * Third parties repeatedly open more connections than the limit of unbound
 * ones. The client can still reconnect.
 */
static void test_flood_of_unbound_connections(void **state)
{
	struct srdma_conn *theirs;
	struct world w;

	(void)state;
	begin(&w, 1);
	post_write(&w, 0, 0, 4);
	w.answer = SRDMA_MEM_REFUSED;
	cut(&w);
	for (int i = 0; i < 200; i++) {
		if (i == 100)
			w.answer = SRDMA_MEM_ANSWERED;
		for (int n = 0; n < SRDMA_MAX_UNBOUND / 2; n++)
			assert_int_equal(srdma_port_mem_intrude(
						 w.p.side[1].wire, &theirs),
					 0);
		pass(&w, MS);
		assert_in_range(w.p.side[1].relay->env.paths->unbound_count, 0,
				SRDMA_MAX_UNBOUND);
	}
	expect_written(&w, 0, 4);
	assert_true(srdma_connect_validated(qp_at(&w, 1, 0)));
	pass(&w, 7500 * MS);
	assert_int_equal(w.p.side[1].relay->env.paths->unbound_count, 0);
	pair_close(&w.p);
}

/*
 * The unbound connections are at their limit, and the oldest of them is the
 * client's. It is bound to the QP, whose former connection becomes unbound in
 * its place.
 */
static void test_oldest_unbound_connection_is_accepted(void **state)
{
	struct srdma_conn *first, *theirs;
	struct world w;

	(void)state;
	begin(&w, 1);
	hold_an_ack(&w, 0);
	for (int i = 0; i < SRDMA_MAX_UNBOUND; i++) {
		assert_int_equal(
			srdma_port_mem_intrude(w.p.side[1].wire, &theirs), 0);
		first = i ? first : theirs;
		pair_run(&w.p, 1);
	}
	assert_int_equal(w.p.side[1].relay->env.paths->unbound_count,
			 SRDMA_MAX_UNBOUND);
	assert_int_equal(srdma_port_mem_inject(first, w.held, w.len), 0);
	pair_run(&w.p, 2);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), first);
	assert_int_equal(w.p.side[1].relay->env.paths->unbound_count,
			 SRDMA_MAX_UNBOUND);
	post_write(&w, 0, 0, 2);
	pass(&w, 10 * MS);
	expect_written(&w, 0, 2);
	pair_close(&w.p);
}

/*
 * Delivers the held packet to the other side on a connection of a third party,
 * who then sends nothing.
 */
static void divert(struct world *w, int from)
{
	struct srdma_conn *theirs;

	assert_int_equal(srdma_port_mem_intrude(w->p.side[!from].wire, &theirs),
			 0);
	assert_int_equal(srdma_port_mem_inject(theirs, w->held, w->len), 0);
	pair_run(&w->p, 4);
	assert_ptr_equal(srdma_path_conn(qp_at(w, !from, 0)), theirs);
}

/*
 * A third party diverted the path of a server's QP, and the client sends
 * nothing. The QP's probe times out and the QP returns to its former
 * connection.
 */
static void test_diverted_server_returns(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	expect_written(&w, 1, 6);
	assert_int_equal(w.count, 0);
	pair_close(&w.p);
}

/*
 * The same for a server that only waits for messages: its PINGs are the probes.
 */
static void test_diverted_idle_server_returns(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 1 };
	struct srdma_conn *before;
	struct world w;

	(void)state;
	begin(&w, 1);
	before = srdma_path_conn(qp_at(&w, 1, 0));
	pair_post(&w.p, 1, recv, NULL);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	pass(&w, 5500 * MS);
	assert_ptr_not_equal(srdma_path_conn(qp_at(&w, 1, 0)), before);
	pass(&w, 1000 * MS);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), before);
	assert_int_equal(w.count, 0);
	pair_close(&w.p);
}

/*
 * Makes QP i of the server a QP of another peer: it sends on a connection of a
 * third party, and its peer has another endpoint id.
 */
static void be_anothers(struct world *w, int i)
{
	struct srdma_qp *qp = qp_at(w, 1, i);
	const struct srdma_packet p = {
		.pn = srdma_session_highest(srdma_qp_session(qp)),
	};
	struct srdma_conn *theirs;

	assert_int_equal(srdma_port_mem_intrude(w->p.side[1].wire, &theirs), 0);
	pair_run(&w->p, 1);
	srdma_qp_session(qp)->rx.epochs.flow.sender.eid[0] ^= 1;
	srdma_path_follow(qp, &p, theirs);
	assert_ptr_equal(srdma_path_conn(qp), theirs);
}

/*
 * A diverted QP that waits for a RECV of the peer gets a response to each probe
 * and stays on its path. Otherwise each move would shorten its probe interval.
 */
static void test_diverted_qp_waiting_for_recv_stays(void **state)
{
	struct srdma_desc send = { .opcode = SRDMA_DESC_SEND, .id = 7 };
	const struct srdma_stats *stats;
	struct srdma_conn *before;
	struct world w;

	(void)state;
	begin(&w, 1);
	before = srdma_path_conn(qp_at(&w, 1, 0));
	stats = srdma_relay_stats(w.p.side[1].relay);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	expect_written(&w, 1, 6);
	pair_post(&w.p, 1, send, NULL);
	for (int i = 0; i < 1000; i++) {
		pass(&w, 1 * MS);
		assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), before);
	}
	assert_in_range(stats->rnr_received, 4, 40);
	pair_close(&w.p);
}

static struct srdma_path *remembered(struct world *w)
{
	return srdma_qp_path(qp_at(w, 1, 0))->remembered;
}

/* As if the peer had received something on the current path of the server. */
static void remember_current(struct world *w)
{
	struct srdma_qp_path *x = srdma_qp_path(qp_at(w, 1, 0));

	srdma_path_remember(x, srdma_path_of(x->conn));
}

/* Knowledge of QP 0 of the server about its former connection. */
enum known {
	LEFT_LAST,  /* QP 0 was the last to leave it */
	REMEMBERED, /* the peer received something there last */
	NOTHING,
};

/*
 * QP 0 of the server is diverted, as in test_diverted_server_returns. Here QP 1
 * still uses the former connection, so that it is not closed, and `others` QPs
 * use connections of other peers. QP 0's probe times out and QP 0 moves to the
 * connection of QP 1.
 */
static void led_away(uint8_t level, int others, enum known known)
{
	struct srdma_conn *shared;
	struct world w;

	begin_at(&w, level, 2 + others);
	shared = srdma_path_conn(qp_at(&w, 1, 1));
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), shared);
	for (int i = 0; i < others; i++)
		be_anothers(&w, 2 + i);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	if (known != REMEMBERED)
		remember_current(&w);
	if (known != LEFT_LAST)
		srdma_path_of(shared)->left_by = 1; /* another QP */
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	expect_written(&w, 1, 6);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), shared);
	pair_close(&w.p);
}

static void test_diverted_qp_joins_other_qp(void **state)
{
	(void)state;
	led_away(SRDMA_LEVEL_AEAD, 0, NOTHING);
	led_away(SRDMA_LEVEL_AEAD, 7, NOTHING);
}

/*
 * Without tags the QP cannot know which QPs have the same peer. It returns to
 * its former connection.
 */
static void test_diverted_qp_without_tags_returns(void **state)
{
	(void)state;
	led_away(SRDMA_LEVEL_NONE, 0, LEFT_LAST);
}

/*
 * Two QPs of different peers left the connection, and the other one was the last.
 */
static void test_diverted_qp_returns_to_the_path_it_remembers(void **state)
{
	(void)state;
	led_away(SRDMA_LEVEL_NONE, 0, REMEMBERED);
	led_away(SRDMA_LEVEL_AEAD, 12, REMEMBERED);
}

/*
 * A QP remembers the path on which the peer received something last: an ack of a
 * packet that left before the path was chosen shows nothing of it.
 */
static void test_remembered_path(void **state)
{
	struct srdma_path *before;
	struct srdma_qp *qp;
	struct world w;

	(void)state;
	begin(&w, 1);
	qp = qp_at(&w, 1, 0);
	before = srdma_path_of(srdma_path_conn(qp));
	assert_ptr_equal(remembered(&w), before);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	srdma_path_set_acked(qp,
			     srdma_session_next_pn(srdma_qp_session(qp)) - 1);
	assert_ptr_equal(remembered(&w), before);
	post_write(&w, 1, 0, 6);
	pass(&w, MS);
	srdma_path_set_acked(qp,
			     srdma_session_next_pn(srdma_qp_session(qp)) - 1);
	assert_ptr_equal(remembered(&w), srdma_path_of(srdma_path_conn(qp)));
	assert_ptr_not_equal(remembered(&w), before);
	pair_close(&w.p);
}

/*
 * The connection to which a QP of the server was diverted ends. Both ends of the QP
 * are idle, and the former connection stands, because another QP uses it.
 */
static void test_diverted_qp_returns_when_its_path_ends(void **state)
{
	struct srdma_path *before;
	struct world w;

	(void)state;
	begin(&w, 2);
	before = remembered(&w);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	srdma_port_mem_cut(srdma_path_conn(qp_at(&w, 1, 0)));
	pass(&w, 20000 * MS);
	assert_int_equal(pair_state(&w.p, 1, 0, NULL), SRDMA_QP_RTS);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), before->conn);
	post_write(&w, 1, 0, 6);
	pass(&w, 10 * MS);
	expect_written(&w, 1, 6);
	assert_int_equal(w.count, 0);
	pair_close(&w.p);
}

/* The QPs of a path that remember it are those that were not destroyed. */
static void test_destroyed_qp_remembers_no_path(void **state)
{
	const struct srdma_qp_path *other;
	const struct srdma_path *path;
	struct world w;

	(void)state;
	begin(&w, 2);
	path = remembered(&w);
	other = srdma_qp_path(qp_at(&w, 1, 1));
	assert_ptr_equal(other->remembered, path);
	pair_destroy_qp(&w.p, 0);
	pair_expect(&w.p, 1, 0, SRDMA_REASON_PEER_CLOSED);
	assert_ptr_equal(LIST_FIRST(&path->known_by), other);
	assert_null(LIST_NEXT(other, known_next));
	pair_close(&w.p);
}

/*
 * The path that a QP remembers ends while it is diverted, and the client connects
 * again: the QP remembers the new path.
 */
static void test_remembered_path_ends(void **state)
{
	struct srdma_path *before;
	struct world w;

	(void)state;
	begin(&w, 1);
	before = remembered(&w);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	assert_ptr_equal(remembered(&w), before);
	srdma_port_mem_cut(before->conn);
	pair_run(&w.p, 1);
	assert_null(remembered(&w));
	pass(&w, 100 * MS);
	assert_ptr_equal(remembered(&w),
			 srdma_path_of(srdma_path_conn(qp_at(&w, 1, 0))));
	pair_close(&w.p);
}

/*
 * A QP whose probe timed out examines only a few connections, so that a silent
 * peer with many QPs cannot occupy a worker. The next search resumes where the
 * last one ended.
 */
static void test_diverted_qp_examines_few_connections(void **state)
{
	const struct srdma_conn *shared;
	struct srdma_qp *qp;
	struct world w;

	(void)state;
	led_away(SRDMA_LEVEL_AEAD, 12, NOTHING);
	begin(&w, 14);
	qp = qp_at(&w, 1, 0);
	shared = srdma_path_conn(qp);
	for (int i = 2; i < 14; i++)
		be_anothers(&w, i);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	remember_current(&w);
	srdma_path_try_another(qp);
	assert_ptr_not_equal(srdma_path_conn(qp), shared);
	/* Close the connection at which the search would resume. */
	srdma_port_mem_cut(w.p.side[1].relay->env.paths->look->conn);
	pair_run(&w.p, 1);
	srdma_path_try_another(qp);
	assert_ptr_equal(srdma_path_conn(qp), shared);
	pair_close(&w.p);
}

/*
 * A diverted QP still finds its former connection after another QP of that
 * connection was destroyed.
 */
static void test_diverted_qp_returns_after_other_is_destroyed(void **state)
{
	struct srdma_conn *shared;
	struct world w;

	(void)state;
	begin_at(&w, SRDMA_LEVEL_NONE, 3);
	shared = srdma_path_conn(qp_at(&w, 1, 0));
	hold_an_ack(&w, 0);
	divert(&w, 0);
	pair_destroy_qp(&w.p, 1);
	pair_expect(&w.p, 1, 0, SRDMA_REASON_PEER_CLOSED);
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 1, 0)), shared);
	expect_written(&w, 1, 6);
	pair_close(&w.p);
}

/*
 * A client's QP: its probe times out and it returns to the connection that it
 * made.
 */
static void test_diverted_client_returns(void **state)
{
	struct srdma_conn *home;
	struct world w;

	(void)state;
	begin(&w, 1);
	home = srdma_qp_path(qp_at(&w, 0, 0))->own;
	hold_an_ack(&w, 1);
	divert(&w, 1);
	post_write(&w, 0, 0, 6);
	pass(&w, 250 * MS);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 0, 0)), home);
	expect_written(&w, 0, 6);
	assert_int_equal(w.count, 0);
	pair_close(&w.p);
}

/* The same for a client that only posted a RECV: its PING is the probe. */
static void test_diverted_idle_client_returns(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 1 };
	struct world w;

	(void)state;
	begin(&w, 1);
	pair_post(&w.p, 0, recv, NULL);
	hold_an_ack(&w, 1);
	divert(&w, 1);
	pass(&w, 16000 * MS);
	assert_int_equal(pair_state(&w.p, 0, 0, NULL), SRDMA_QP_RTS);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 0, 0)),
			 srdma_qp_path(qp_at(&w, 0, 0))->own);
	pair_close(&w.p);
}

/*
 * While a client reconnects, a third party delivers a packet of its peer. The
 * client continues to connect, and then uses its own connection.
 */
static void test_diverted_while_connecting_keeps_connecting(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 1);
	cut_holding_an_ack(&w, SRDMA_MEM_REFUSED);
	divert(&w, 1);
	post_write(&w, 0, 0, 6);
	pass(&w, 100 * MS);
	pair_expect_none(&w.p, 0);
	w.answer = SRDMA_MEM_ANSWERED;
	pass(&w, 1000 * MS);
	expect_written(&w, 0, 6);
	assert_ptr_equal(srdma_path_conn(qp_at(&w, 0, 0)),
			 srdma_qp_path(qp_at(&w, 0, 0))->own);
	pair_close(&w.p);
}

/*
 * Two QPs share a silent connection. A third party delivers a packet for one of
 * them on it. The other QP still gets a new connection.
 */
static void test_silent_shared_connection_is_replaced(void **state)
{
	struct srdma_conn *silent;
	struct world w;

	(void)state;
	begin(&w, 2);
	cut_holding_an_ack(&w, SRDMA_MEM_SILENT);
	silent = srdma_qp_path(qp_at(&w, 0, 0))->own;
	assert_ptr_equal(srdma_qp_path(qp_at(&w, 0, 1))->own, silent);
	assert_int_equal(srdma_port_mem_inject(silent, w.held, w.len), 0);
	pair_run(&w.p, 4);
	assert_true(srdma_connect_validated(qp_at(&w, 0, 0)));
	w.answer = SRDMA_MEM_ANSWERED;
	post_write(&w, 0, 1, 6);
	pass(&w, 4500 * MS);
	expect_written(&w, 0, 6);
	pair_close(&w.p);
}

/* --- limits --------------------------------------------------------------- */

/* Many QPs that connect at once are spread over several turns. */
static void test_connects_are_spread_over_turns(void **state)
{
	enum { QPS = 40 };
	struct srdma_qp_params qp = { .sq = 1, .rq = 1 };
	struct srdma_qp_info info[2][QPS];
	struct world w;

	(void)state;
	begin(&w, 0);
	for (int i = 0; i < QPS; i++) {
		struct srdma_qp_keys k;

		for (int s = 0; s < 2; s++)
			assert_int_equal(srdma_relay_qp_init(w.p.side[s].relay,
							     w.p.side[s].leg,
							     &qp, &info[s][i]),
					 0);
		for (int s = 1; s >= 0; s--) {
			w.p.side[s].qp[0] = info[s][i];
			w.p.side[!s].qp[0] = info[!s][i];
			pair_keys(&w.p, s, 0, &k);
			assert_int_equal(srdma_relay_qp_keys(w.p.side[s].relay,
							     w.p.side[s].leg,
							     &k),
					 0);
		}
	}
	pass(&w, 20 * MS);
	w.count = 0;
	w.answer = SRDMA_MEM_IMPOSSIBLE;
	cut(&w);
	w.p.now += 1000;
	srdma_relay_run(w.p.side[0].relay, w.p.now, 64);
	assert_in_range(w.count, 1, 20);
	pass(&w, 5 * MS);
	assert_in_range(w.count, QPS, QPS + 20);
	w.answer = SRDMA_MEM_ANSWERED;
	pass(&w, 100 * MS);
	for (int i = 0; i < QPS; i++)
		assert_true(srdma_connect_validated(
			srdma_relay_qp(w.p.side[1].relay, info[1][i].qpn)));
	pair_close(&w.p);
}

/*
 * The silence limit exceeds the ping interval and is at most an hour. 0 is the
 * default.
 */
static void test_ping_and_silence_limits(void **state)
{
	static const struct {
		uint32_t ping, silence;
		int good;
	} rows[] = {
		{ 0, 0, 1 },	{ 1, 2, 1 },	   { 0, 5001, 1 },
		{ 0, 5000, 0 }, { 15000, 0, 0 },   { 14999, 0, 1 },
		{ 7, 7, 0 },	{ 1, 3600000, 1 }, { 1, 3600001, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_relay_params rp = {
			.mtu = 4096,
			.window = 1,
			.reads = 1,
			.ping_ms = rows[i].ping,
			.silence_ms = rows[i].silence,
		};
		struct world w;
		struct srdma_relay *r;
		struct srdma_port *b;

		begin(&w, 0);
		rp.random = w.p.side[0].relay->params.random;
		rp.random_ctx = w.p.side[0].relay->params.random_ctx;
		assert_int_equal(srdma_port_mem_host(&rp.host, NULL), 0);
		assert_int_equal(srdma_port_mem_wire_pair(&rp.wire, &b, NULL),
				 0);
		assert_int_equal(srdma_relay_create(&r, &rp),
				 rows[i].good ? 0 : -22);
		if (rows[i].good)
			srdma_relay_destroy(r);
		b->ops->destroy(b);
		pair_close(&w.p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_connect_backs_off),
		cmocka_unit_test(test_silent_connect_times_out),
		cmocka_unit_test(test_idle_path_reconnects_at_once),
		cmocka_unit_test(test_failing_connections_limit_connect_rate),
		cmocka_unit_test(test_never_connected_gives_up),
		cmocka_unit_test(test_qp_ends_without_connection),
		cmocka_unit_test(test_qp_end_call_fails_qp_at_once),
		cmocka_unit_test(test_flood_of_unbound_connections),
		cmocka_unit_test(test_oldest_unbound_connection_is_accepted),
		cmocka_unit_test(test_diverted_server_returns),
		cmocka_unit_test(test_diverted_idle_server_returns),
		cmocka_unit_test(test_diverted_qp_waiting_for_recv_stays),
		cmocka_unit_test(test_diverted_qp_joins_other_qp),
		cmocka_unit_test(test_diverted_qp_without_tags_returns),
		cmocka_unit_test(
			test_diverted_qp_returns_to_the_path_it_remembers),
		cmocka_unit_test(test_remembered_path),
		cmocka_unit_test(test_diverted_qp_returns_when_its_path_ends),
		cmocka_unit_test(test_destroyed_qp_remembers_no_path),
		cmocka_unit_test(test_remembered_path_ends),
		cmocka_unit_test(test_diverted_qp_examines_few_connections),
		cmocka_unit_test(
			test_diverted_qp_returns_after_other_is_destroyed),
		cmocka_unit_test(test_diverted_client_returns),
		cmocka_unit_test(test_diverted_idle_client_returns),
		cmocka_unit_test(
			test_diverted_while_connecting_keeps_connecting),
		cmocka_unit_test(test_silent_shared_connection_is_replaced),
		cmocka_unit_test(test_connects_are_spread_over_turns),
		cmocka_unit_test(test_ping_and_silence_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
