/*
 * The wire dies (docs/protocol.md 7): who connects again and when, what
 * proves a wire, and what an attacker gains by wires of his own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "relay_impl.h"
#include "relay_pair.h"
#include "session/session_state.h"

#define MS UINT64_C(1000000)

enum { CALLS = 64, PIECE = 3000 };

/* What becomes of calls, when they came, and what was said of late. */
struct world {
	struct pair p;
	enum srdma_mem_call answer;
	int count; /* calls since reset */
	uint64_t at[CALLS];
	int hold_from; /* the next packet of this side is taken off; -1 */
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

/* As workers do: sleep until the next timer. */
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
	srdma_port_mem_cut(qp_at(w, 0, 0)->wire);
}

/* What QP 0 of a side sends next is taken off, and kept. */
static void hold_an_ack(struct world *w, int side)
{
	qp_at(w, side, 0)->ctl |= SRDMA_SAY_ACK;
	srdma_relay_activate(qp_at(w, side, 0));
	w->hold_from = side;
	pair_run(&w->p, 2);
	assert_int_equal(w->hold_from, -1);
}

/* The client's wire ends while the server's ack is on it; calls are answered
 * so. */
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

/* --- who connects, and when ------------------------------------------- */

/* At once, 10 ms after the first failure, twice that after each further one, 1 s
 * at most; then both ends are told, in time. */
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

static void refused(void **state)
{
	(void)state;
	check_back_off(SRDMA_MEM_REFUSED);
	check_back_off(SRDMA_MEM_IMPOSSIBLE);
}

/* Who accepts and is silent, or does not even accept, has 2 s each time. */
static void silent_candidates(void **state)
{
	static const enum srdma_mem_call answers[] = { SRDMA_MEM_SILENT,
						       SRDMA_MEM_UNANSWERED };

	(void)state;
	for (int n = 0; n < 2; n++) {
		struct world w;

		begin(&w, 2); /* they share their wire */
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
				assert_true(
					srdma_dial_settled(qp_at(&w, side, i)));
		assert_null(w.p.side[0].relay->links->next);
		pair_close(&w.p);
	}
}

/* A wire that stood is connected again at once, however long nothing was said
 * on it, and what is then posted, by either end, arrives. */
static void idle_wire(void **state)
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

/* Each one dies in the moment in which it proved good: 100 calls a second. */
static void wires_that_do_not_stand(void **state)
{
	struct world w;
	uint64_t end;

	(void)state;
	begin(&w, 1);
	end = w.p.now + 1000 * MS;
	while (w.p.now < end) {
		if (srdma_dial_settled(qp_at(&w, 0, 0)))
			cut(&w);
		pass(&w, MS / 10);
	}
	assert_in_range(w.count, 90, 101);
	post_write(&w, 0, 0, 3);
	pass(&w, 20 * MS);
	expect_written(&w, 0, 3);
	pair_close(&w.p);
}

/* Keys are here, the wire is not: the same time for both. */
static void never_connected(void **state)
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

/* A deadline does not wait for the wire; and who leaves waits for nobody. */
static void ends_without_a_wire(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 2);
	qp_at(&w, 0, 0)->timeout = 500 * MS;
	post_write(&w, 0, 0, 5);
	w.answer = SRDMA_MEM_SILENT;
	cut(&w);
	pass(&w, 499 * MS);
	pair_expect_none(&w.p, 0);
	pass(&w, 2 * MS);
	pair_expect(&w.p, 0, 5, SRDMA_REASON_DEADLINE);
	pair_destroy_qp(&w.p, 1);
	pair_destroy_qp(&w.p, 0);
	assert_null(w.p.side[0].relay->links);
	assert_int_equal(w.p.side[1].relay->qp_count, 0);
	pair_close(&w.p);
}

/* The key exchange knows that there is no peer: nobody waits for it. */
static void peer_known_to_be_gone(void **state)
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

/* --- what somebody gains by wires of his own --------------------------- */

/* More of them than are kept, again and again while the real one comes. */
static void flood(void **state)
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
		for (int n = 0; n < SRDMA_MAX_STRANGERS / 2; n++)
			assert_int_equal(srdma_port_mem_intrude(
						 w.p.side[1].wire, &theirs),
					 0);
		pass(&w, MS);
		assert_in_range(w.p.side[1].relay->stranger_count, 0,
				SRDMA_MAX_STRANGERS);
	}
	expect_written(&w, 0, 4);
	assert_true(srdma_dial_settled(qp_at(&w, 1, 0)));
	pass(&w, 7500 * MS);
	assert_int_equal(w.p.side[1].relay->stranger_count, 0);
	pair_close(&w.p);
}

/* All the strangers that there can be, and the oldest of them is the real one:
 * it takes the place of the wire that it leaves. */
static void oldest_stranger(void **state)
{
	struct srdma_conn *first, *theirs;
	struct world w;

	(void)state;
	begin(&w, 1);
	hold_an_ack(&w, 0);
	for (int i = 0; i < SRDMA_MAX_STRANGERS; i++) {
		assert_int_equal(
			srdma_port_mem_intrude(w.p.side[1].wire, &theirs), 0);
		first = i ? first : theirs;
		pair_run(&w.p, 1);
	}
	assert_int_equal(w.p.side[1].relay->stranger_count,
			 SRDMA_MAX_STRANGERS);
	assert_int_equal(srdma_port_mem_inject(first, w.held, w.len), 0);
	pair_run(&w.p, 2);
	assert_ptr_equal(qp_at(&w, 1, 0)->wire, first);
	assert_int_equal(w.p.side[1].relay->stranger_count,
			 SRDMA_MAX_STRANGERS);
	post_write(&w, 0, 0, 2);
	pass(&w, 10 * MS);
	expect_written(&w, 0, 2);
	pair_close(&w.p);
}

/* The newest packet of a side, which did not arrive, comes to the other on a
 * wire of somebody else, who is silent from then on. */
static void divert(struct world *w, int from)
{
	struct srdma_conn *theirs;

	assert_int_equal(srdma_port_mem_intrude(w->p.side[!from].wire, &theirs),
			 0);
	assert_int_equal(srdma_port_mem_inject(theirs, w->held, w->len), 0);
	pair_run(&w->p, 4);
	assert_ptr_equal(qp_at(w, !from, 0)->wire, theirs);
}

/* The server's QP: its client does not say a word, and its wire is a stranger's
 * until it is closed. It asks in vain, and then where it was. */
static void diverted_server(void **state)
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

/* With nothing to ask but to be told: by pings. */
static void diverted_listener(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 1 };
	struct srdma_conn *before;
	struct world w;

	(void)state;
	begin(&w, 1);
	before = qp_at(&w, 1, 0)->wire;
	pair_post(&w.p, 1, recv, NULL);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	pass(&w, 5500 * MS);
	assert_ptr_not_equal(qp_at(&w, 1, 0)->wire, before);
	pass(&w, 1000 * MS);
	assert_ptr_equal(qp_at(&w, 1, 0)->wire, before);
	assert_int_equal(w.count, 0);
	pair_close(&w.p);
}

/* QP i of the server sends on a wire of somebody else, and its peer is another
 * one, as far as the server knows. */
static void be_anothers(struct world *w, int i)
{
	struct srdma_qp *qp = qp_at(w, 1, i);
	const struct srdma_packet p = {
		.pn = srdma_session_highest(qp->session),
	};
	struct srdma_conn *theirs;

	assert_int_equal(srdma_port_mem_intrude(w->p.side[1].wire, &theirs), 0);
	pair_run(&w->p, 1);
	qp->session->rx.epochs.flow.sender.eid[0] ^= 1;
	srdma_link_follow(qp, &p, theirs);
	assert_ptr_equal(qp->wire, theirs);
}

/* It was led away once, and waits for a receive of the peer's: it is answered
 * each time it asks, and stays, or each move would have it ask faster again. */
static void diverted_before_a_wait(void **state)
{
	struct srdma_desc send = { .opcode = SRDMA_DESC_SEND, .id = 7 };
	const struct srdma_stats *stats;
	struct srdma_conn *before;
	struct world w;

	(void)state;
	begin(&w, 1);
	before = qp_at(&w, 1, 0)->wire;
	stats = srdma_relay_stats(w.p.side[1].relay);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	expect_written(&w, 1, 6);
	pair_post(&w.p, 1, send, NULL);
	for (int i = 0; i < 1000; i++) {
		pass(&w, 1 * MS);
		assert_ptr_equal(qp_at(&w, 1, 0)->wire, before);
	}
	assert_in_range(stats->rnr_received, 4, 40);
	pair_close(&w.p);
}

/* The same as diverted_server, and another QP still sends on the wire that it
 * left, which so is nobody's to close; beside it there are wires of other peers.
 * It asks in vain, and then where the other one sends. */
static void led_away(uint8_t level, int others)
{
	struct srdma_conn *shared;
	struct world w;

	begin_at(&w, level, 2 + others);
	shared = qp_at(&w, 1, 1)->wire;
	assert_ptr_equal(qp_at(&w, 1, 0)->wire, shared);
	for (int i = 0; i < others; i++)
		be_anothers(&w, 2 + i);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	if (level) /* another one left it since */
		((struct srdma_link *)shared->user)->left_by = 1;
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	expect_written(&w, 1, 6);
	assert_ptr_equal(qp_at(&w, 1, 0)->wire, shared);
	pair_close(&w.p);
}

static void diverted_beside_another(void **state)
{
	(void)state;
	led_away(SRDMA_LEVEL_AEAD, 0);
	led_away(SRDMA_LEVEL_AEAD, 7);
}

/* Without tags it does not know whose peer is whose, but where it was. */
static void diverted_without_tags(void **state)
{
	(void)state;
	led_away(SRDMA_LEVEL_NONE, 0);
}

/* Who asks in vain looks at few wires, or a peer that is gone, with many QPs,
 * could keep a worker from its work; and at others the next time. */
static void diverted_among_many(void **state)
{
	const struct srdma_conn *shared;
	struct srdma_qp *qp;
	struct world w;

	(void)state;
	led_away(SRDMA_LEVEL_AEAD, 12);
	begin(&w, 14);
	qp = qp_at(&w, 1, 0);
	shared = qp->wire;
	for (int i = 2; i < 14; i++)
		be_anothers(&w, i);
	hold_an_ack(&w, 0);
	divert(&w, 0);
	srdma_link_try_another(qp);
	assert_ptr_not_equal(qp->wire, shared);
	/* The one at which it would have gone on ends. */
	srdma_port_mem_cut(w.p.side[1].relay->look->conn);
	pair_run(&w.p, 1);
	srdma_link_try_another(qp);
	assert_ptr_equal(qp->wire, shared);
	pair_close(&w.p);
}

/* That another one was destroyed there is no trace of where it was. */
static void diverted_and_another_destroyed(void **state)
{
	struct srdma_conn *shared;
	struct world w;

	(void)state;
	begin_at(&w, SRDMA_LEVEL_NONE, 3);
	shared = qp_at(&w, 1, 0)->wire;
	hold_an_ack(&w, 0);
	divert(&w, 0);
	pair_destroy_qp(&w.p, 1);
	pair_expect(&w.p, 1, 0, SRDMA_REASON_PEER_CLOSED);
	post_write(&w, 1, 0, 6);
	pass(&w, 100 * MS);
	assert_ptr_equal(qp_at(&w, 1, 0)->wire, shared);
	expect_written(&w, 1, 6);
	pair_close(&w.p);
}

/* The client's QP: it asks in vain, and goes back to the wire it connected. */
static void diverted_client(void **state)
{
	struct srdma_conn *home;
	struct world w;

	(void)state;
	begin(&w, 1);
	home = qp_at(&w, 0, 0)->home;
	hold_an_ack(&w, 1);
	divert(&w, 1);
	post_write(&w, 0, 0, 6);
	pass(&w, 250 * MS);
	assert_ptr_equal(qp_at(&w, 0, 0)->wire, home);
	expect_written(&w, 0, 6);
	assert_int_equal(w.count, 0);
	pair_close(&w.p);
}

/* The same, and it has posted a receive only: its ping is what is in vain. */
static void diverted_receiver(void **state)
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
	assert_ptr_equal(qp_at(&w, 0, 0)->wire, qp_at(&w, 0, 0)->home);
	pair_close(&w.p);
}

/* While a client connects again somebody brings it a packet of its peer: it
 * goes on connecting, and sends on what it connected. */
static void diverted_without_a_wire(void **state)
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
	assert_ptr_equal(qp_at(&w, 0, 0)->wire, qp_at(&w, 0, 0)->home);
	pair_close(&w.p);
}

/* Two QPs share a wire that is silent, but for a packet of one's peer that
 * somebody brings there: the other QP gets a wire that is not. */
static void diverted_to_a_silent_wire(void **state)
{
	struct srdma_conn *silent;
	struct world w;

	(void)state;
	begin(&w, 2);
	cut_holding_an_ack(&w, SRDMA_MEM_SILENT);
	silent = qp_at(&w, 0, 0)->home;
	assert_ptr_equal(qp_at(&w, 0, 1)->home, silent);
	assert_int_equal(srdma_port_mem_inject(silent, w.held, w.len), 0);
	pair_run(&w.p, 4);
	assert_true(srdma_dial_settled(qp_at(&w, 0, 0)));
	w.answer = SRDMA_MEM_ANSWERED;
	post_write(&w, 0, 1, 6);
	pass(&w, 4500 * MS);
	expect_written(&w, 0, 6);
	pair_close(&w.p);
}

/* --- limits ------------------------------------------------------------ */

/* As many QPs as want to connect at once do so over some turns. */
static void many_at_once(void **state)
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
		assert_true(srdma_dial_settled(
			srdma_relay_qp(w.p.side[1].relay, info[1][i].qpn)));
	pair_close(&w.p);
}

/* `silence` is longer than `ping`, and an hour at most; 0 is the default. */
static void times(void **state)
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
		cmocka_unit_test(refused),
		cmocka_unit_test(silent_candidates),
		cmocka_unit_test(idle_wire),
		cmocka_unit_test(wires_that_do_not_stand),
		cmocka_unit_test(never_connected),
		cmocka_unit_test(ends_without_a_wire),
		cmocka_unit_test(peer_known_to_be_gone),
		cmocka_unit_test(flood),
		cmocka_unit_test(oldest_stranger),
		cmocka_unit_test(diverted_server),
		cmocka_unit_test(diverted_listener),
		cmocka_unit_test(diverted_before_a_wait),
		cmocka_unit_test(diverted_beside_another),
		cmocka_unit_test(diverted_without_tags),
		cmocka_unit_test(diverted_among_many),
		cmocka_unit_test(diverted_and_another_destroyed),
		cmocka_unit_test(diverted_client),
		cmocka_unit_test(diverted_receiver),
		cmocka_unit_test(diverted_without_a_wire),
		cmocka_unit_test(diverted_to_a_silent_wire),
		cmocka_unit_test(many_at_once),
		cmocka_unit_test(times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
