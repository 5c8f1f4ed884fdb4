/*
 * Ops and buffers of packets that cannot leave, and the end of a peer that
 * confirms no response (docs/protocol.md 5, 5.6).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/arriving.h"

enum {
	QPS = 20,
	LENGTH = 65536, /* of a message */
	BUFS = 256,	/* of a host port */
};

struct stage {
	struct scene scene;
	int held; /* side whose datagrams the wire keeps; -1: none */
};

static enum srdma_mem_fate hold(void *ctx, struct srdma_mem_datagram *d)
{
	const struct stage *s = ctx;

	return d->side == s->held ? SRDMA_MEM_HOLD : SRDMA_MEM_PASS;
}

static void open_stage_with(struct stage *s, uint32_t bufs, uint32_t dma_polls)
{
	struct pair *p = &s->scene.pair;

	memset(s, 0, sizeof(*s));
	scene_begin(&s->scene);
	s->held = -1;
	p->wire.fate = hold;
	p->wire.slots = 64;
	p->depth = 4;
	p->host[0].bufs = p->host[1].bufs = bufs;
	p->host[0].dma_polls = p->host[1].dma_polls = dma_polls;
	pair_open(p);
	for (int i = 0; i < QPS; i++) {
		p->identity = i > 0;
		pair_connect(p, i);
	}
	for (uint32_t i = 0; i < QPS * LENGTH; i++) {
		p->side[0].memory[i] = (uint8_t)(i % 251);
		p->side[1].memory[i] = (uint8_t)(i % 241);
	}
}

static void open_stage(struct stage *s, uint32_t dma_polls)
{
	open_stage_with(s, BUFS, dma_polls);
}

static struct srdma_packet ping(uint32_t highest_pn)
{
	return (struct srdma_packet){ .opcode = SRDMA_OP_ACKNOWLEDGE,
				      .flags = SRDMA_STH_ACK_NOW,
				      .ack = { .kind = SRDMA_ACK_PING,
					       .highest_pn = highest_pn } };
}

static struct srdma_env *env_of(struct stage *s, int side)
{
	return &s->scene.pair.side[side].relay->env;
}

/* Posts one message per QP; QP i moves the bytes from i * LENGTH on. */
static void post_all(struct stage *s, uint8_t opcode)
{
	struct pair *p = &s->scene.pair;

	for (uint32_t i = 0; i < QPS; i++)
		pair_post(p, 0,
			  (struct srdma_desc){
				  .opcode = opcode,
				  .id = i,
				  .qpn = p->side[0].qp[i].qpn,
				  .length = LENGTH,
				  .local_addr = (uintptr_t)p->side[0].memory +
						i * LENGTH,
				  .remote_addr = (uintptr_t)p->side[1].memory +
						 i * LENGTH },
			  NULL);
}

/*
 * The wire takes nothing from a side, which has many messages to send. Most
 * buffers and ops stay free meanwhile, and no memory is read again and again.
 * When the wire moves again, every byte arrives.
 */
static void check_blocked(uint8_t opcode, uint32_t dma_polls)
{
	const int sender = opcode == SRDMA_DESC_READ;
	struct srdma_record r;
	struct stage s;
	struct pair *p = &s.scene.pair;
	uint64_t read;

	open_stage(&s, dma_polls);
	s.held = sender;
	post_all(&s, opcode);
	pair_run(p, 400);
	assert_true(srdma_op_outgoing(env_of(&s, sender)) >=
		    env_of(&s, sender)->outgoing / 2);
	assert_true(env_of(&s, sender)->ops.left >= SRDMA_OPS * 3 / 4);
	read = env_of(&s, sender)->stats.dma_read_bytes;
	pair_run(p, 100);
	assert_int_equal(env_of(&s, sender)->stats.dma_read_bytes, read);
	s.held = -1;
	srdma_port_mem_release(p->side[sender].wire);
	for (int i = 0; i < 200; i++)
		pair_wait_ms(p, 1);
	for (int i = 0; i < QPS; i++) {
		assert_int_equal(pair_record(p, 0, &r), 1);
		assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
	}
	assert_memory_equal(p->side[0].memory, p->side[1].memory, QPS * LENGTH);
	assert_int_equal(p->side[0].memory[1000],
			 (uint8_t)(sender ? 1000 % 241 : 1000 % 251));
	for (int side = 0; side < 2; side++)
		assert_int_equal(env_of(&s, side)->ops.left, SRDMA_OPS);
	pair_close(p);
}

static void test_blocked_responses_are_fetched_again(void **state)
{
	(void)state;
	check_blocked(SRDMA_DESC_READ, 0);
	check_blocked(SRDMA_DESC_READ, 3);
}

static void test_blocked_requests_are_fetched_again(void **state)
{
	(void)state;
	check_blocked(SRDMA_DESC_WRITE, 0);
	check_blocked(SRDMA_DESC_WRITE, 3);
}

/*
 * The wire takes one packet in a turn, and the peer demands an ack in each turn.
 * Buffers are scarce: a response that cannot leave gives its own back, and its
 * memory is read again, which takes many turns. The response leaves.
 */
static void test_acks_leave_room_for_a_response(void **state)
{
	struct stage s;
	struct pair *p = &s.scene.pair;

	(void)state;
	open_stage_with(&s, SRDMA_MAX_BURST + 2, 14);
	p->wire.slots = 1;
	pair_post(p, 0,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_READ,
			  .length = 100,
			  .local_addr = (uintptr_t)p->side[0].memory,
			  .remote_addr = (uintptr_t)p->side[1].memory },
		  NULL);
	pair_run(p, 2);
	for (int turn = 0; turn < 1000; turn++) {
		put_at(&s.scene, 0, srdma_path_conn(qp_at(&s.scene, 1, 0)),
		       ping(0));
		pair_run(p, 1);
	}
	pair_expect(p, 0, 0, SRDMA_REASON_NONE);
	pair_close(p);
}

/* Connections of the QPs of the other identity, which take nothing. */
static struct srdma_conn *deaf[QPS];

/* Each QP of the other identity moves to a connection of its own, which takes
 * so many packets. */
static void open_deaf(struct stage *s, uint32_t bufs, uint32_t slots)
{
	struct pair *p = &s->scene.pair;

	open_stage_with(s, bufs, 0);
	p->wire.slots = slots;
	for (int i = 1; i < QPS; i++) {
		assert_int_equal(
			srdma_port_mem_intrude(p->side[1].wire, &deaf[i]), 0);
		put_at(&s->scene, i, deaf[i], ping(0));
		pair_run(p, 1);
		assert_ptr_equal(srdma_path_conn(qp_at(&s->scene, 1, i)),
				 deaf[i]);
	}
	s->held = 1;
}

/* Most is free, and QP 0 works. */
static void check_free(struct stage *s)
{
	struct pair *p = &s->scene.pair;
	struct srdma_env *env = env_of(s, 1);

	pair_run(p, 400);
	assert_true(
		srdma_account_used(srdma_qp_identity(qp_at(&s->scene, 1, 1)),
				   SRDMA_RES_OPS) > 0);
	assert_true(srdma_op_outgoing(env) >= env->outgoing / 2);
	s->held = -1;
	for (int i = 0; i < 4; i++) {
		pair_post(p, 0,
			  (struct srdma_desc){
				  .opcode = SRDMA_DESC_READ,
				  .length = LENGTH,
				  .local_addr = (uintptr_t)p->side[0].memory,
				  .remote_addr = (uintptr_t)p->side[1].memory },
			  NULL);
		pair_run(p, 200);
		pair_expect(p, 0, 0, SRDMA_REASON_NONE);
	}
	/* the connections take packets again: nothing is forgotten */
	srdma_port_mem_release(p->side[1].wire);
	pair_run(p, 400);
	for (int i = 1; i < QPS; i++)
		assert_true(srdma_responder_is_idle(qp_at(&s->scene, 1, i)));
	pair_close(p);
}

/* QPs that hold what their connections do not take give it back. */
static void test_blocked_connections_hold_little(void **state)
{
	struct stage s;

	(void)state;
	open_deaf(&s, BUFS / 2, 2);
	for (int i = 1; i < QPS; i++)
		put_at(&s.scene, i, deaf[i],
		       part(&s.scene, 0, 0, SRDMA_MAX_READ_CHUNK));
	check_free(&s);

	/* a window of 4 packets, as the path is new */
	open_deaf(&s, BUFS / 2, 2);
	for (uint32_t i = 1; i < QPS; i++)
		for (int n = 0; n < 2; n++)
			pair_post(&s.scene.pair, 1,
				  (struct srdma_desc){
					  .opcode = SRDMA_DESC_WRITE,
					  .qpn = s.scene.pair.side[1].qp[i].qpn,
					  .length = LENGTH,
					  .local_addr = (uintptr_t)s.scene.pair
								.side[1]
								.memory,
					  .remote_addr = (uintptr_t)s.scene.pair
								 .side[0]
								 .memory },
				  NULL);
	check_free(&s);
}

/*
 * DMA that does not end holds ops and buffers. One identity gets no more than
 * half and the minimum of each of its QPs; a QP of another identity gets more
 * than that minimum.
 */
static void test_an_identity_holds_at_most_half(void **state)
{
	struct srdma_env *env;
	struct stage s;
	struct pair *p = &s.scene.pair;

	(void)state;
	open_stage(&s, 0);
	p->host[1].dma_polls = 100000;
	env = env_of(&s, 1);
	for (uint32_t id = 0; id < 4; id++)
		for (int i = QPS - 1; i > 0; i--)
			put_on(&s.scene, i,
			       part(&s.scene, id, 0, SRDMA_MAX_READ_CHUNK));
	pair_run(p, 20);
	assert_in_range(
		srdma_account_used(srdma_qp_identity(qp_at(&s.scene, 1, 1)),
				   SRDMA_RES_OPS),
		env->outgoing / 4, env->outgoing / 2 + QPS * SRDMA_OPS_LEAST);
	for (int i = 1; i < QPS; i++)
		assert_true(srdma_qp_responder(qp_at(&s.scene, 1, i))
				    ->responses.count >= SRDMA_OPS_LEAST);
	put_on(&s.scene, 0, part(&s.scene, 0, 0, SRDMA_MAX_READ_CHUNK));
	pair_run(p, 20);
	assert_true(srdma_qp_responder(qp_at(&s.scene, 1, 0))->responses.count >
		    SRDMA_OPS_LEAST);
	p->host[1].dma_polls = 0;
	for (int side = 0; side < 2; side++)
		srdma_port_mem_kill(p->side[side].conn);
	pair_settle(p);
	pair_close(p);
}

/* --- a peer that confirms nothing ------------------------------------------ */

/* QP 0 of side 1 answers a READ; nothing of side 1 arrives any more. Returns
 * the last number that it sent before. */
static uint32_t answer_one(struct scene *s)
{
	uint32_t before;

	scene_begin(s);
	scene_open(s, 1);
	s->deaf = 1;
	before = (uint32_t)last_sent(s, 0);
	arrive(s, part(s, 0, 0, 64));
	assert_int_equal(s->answers, 1);
	return before;
}

/* The peer sends PING every second; each names `highest`, 0: the newest. */
static void ping_for(struct scene *s, int seconds, uint32_t highest)
{
	while (seconds--) {
		pair_wait_ms(&s->pair, 1000);
		put_on(s, 0, ping(highest));
		pair_run(&s->pair, 2);
	}
}

/* PINGs of the peer are no sign that it takes responses. It is asked before it
 * is given up. */
static void test_a_peer_that_confirms_no_response_ends(void **state)
{
	struct scene s;
	uint32_t before;

	(void)state;
	before = answer_one(&s);
	ping_for(&s, 4, before);
	assert_int_equal(srdma_qp_entry(qp_at(&s, 1, 0))->pinged, 0);
	ping_for(&s, 10, before);
	assert_true(srdma_qp_entry(qp_at(&s, 1, 0))->pinged > 0);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	ping_for(&s, 2, before);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_PEER_SILENT);
	scene_close(&s);
}

/* An ack with a newer number confirms, and so does the ack of a PING. */
static void test_a_peer_that_confirms_goes_on(void **state)
{
	struct scene s;
	uint32_t before;

	(void)state;
	before = answer_one(&s);
	ping_for(&s, 12, before);
	ping_for(&s, 1, 0);
	ping_for(&s, 30, before + 1);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);

	answer_one(&s);
	s.deaf = 0; /* side 0 answers PINGs by itself */
	for (int i = 0; i < 30; i++)
		pair_wait_ms(&s.pair, 1000);
	assert_int_equal(srdma_path_unconfirmed(qp_at(&s, 1, 0)), SRDMA_NEVER);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/* A peer that is away and owed nothing holds nothing: it may come back. */
static void test_a_peer_that_is_away_stays(void **state)
{
	struct scene s;

	(void)state;
	answer_one(&s);
	for (int i = 0; i < 40; i++)
		pair_wait_ms(&s.pair, 1000);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	assert_int_equal(srdma_path_unconfirmed(qp_at(&s, 1, 0)), SRDMA_NEVER);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocked_responses_are_fetched_again),
		cmocka_unit_test(test_blocked_requests_are_fetched_again),
		cmocka_unit_test(test_acks_leave_room_for_a_response),
		cmocka_unit_test(test_blocked_connections_hold_little),
		cmocka_unit_test(test_an_identity_holds_at_most_half),
		cmocka_unit_test(test_a_peer_that_confirms_no_response_ends),
		cmocka_unit_test(test_a_peer_that_confirms_goes_on),
		cmocka_unit_test(test_a_peer_that_is_away_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
