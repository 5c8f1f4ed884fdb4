/* Receives that several QPs share (docs/protocol.md 5, Shared queues). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "relay/leg.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum {
	DEPTH = 64,
	LENGTH = 4096,
	AT = 65536, /* of the first receive */
	SILENCE_MS = 15000,
};

static struct pair p;
static struct srdma_qp_info holder; /* at side 1 */

static struct srdma_qp_info init(uint32_t rq)
{
	const struct srdma_qp_params params = { .sq = 1, .rq = rq };
	struct srdma_qp_info made;

	assert_int_equal(srdma_relay_qp_init(p.side[1].relay, p.side[1].leg,
					     &params, &made),
			 0);
	return made;
}

static int share(uint32_t qpn, uint32_t from)
{
	return srdma_relay_qp_share(p.side[1].relay, p.side[1].leg, qpn, from);
}

/* The first QPs of side 1 share a queue. */
static void open_many(int qps)
{
	pair_open(&p);
	holder = init(DEPTH);
	for (int i = 0; i < qps; i++) {
		pair_init_qp(&p, i);
		assert_int_equal(share(p.side[1].qp[i].qpn, holder.qpn), 0);
		pair_meet(&p, i);
	}
}

static void open_sharers(void)
{
	open_many(2);
}

static enum srdma_mem_fate lose_all(void *ctx, struct srdma_mem_datagram *d)
{
	(void)ctx;
	(void)d;
	return SRDMA_MEM_DROP;
}

static int setup(void **state)
{
	(void)state;
	pair_defaults(&p);
	p.depth = DEPTH;
	return 0;
}

static void recv_at(uint32_t qpn, uint64_t id)
{
	pair_post(
		&p, 1,
		(struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
				     .qpn = qpn,
				     .id = id,
				     .length = LENGTH,
				     .local_addr = (uintptr_t)p.side[1].memory +
						   AT + id * LENGTH },
		NULL);
}

static void post(int qp, uint8_t opcode, uint64_t id, uint32_t length)
{
	pair_post(
		&p, 0,
		(struct srdma_desc){ .opcode = opcode,
				     .qpn = p.side[0].qp[qp].qpn,
				     .id = id,
				     .length = length,
				     .local_addr = (uintptr_t)p.side[0].memory,
				     .remote_addr = (uintptr_t)p.side[1].memory,
				     .imm = 5 },
		NULL);
}

/* The next record of side 1 is of this receive, taken by this QP. */
static void expect_taken(int qp, uint64_t id, uint32_t reason)
{
	struct srdma_record r;

	assert_int_equal(pair_record(&p, 1, &r), 1);
	assert_int_equal(r.id, id);
	assert_int_equal(r.qpn, p.side[1].qp[qp].qpn);
	assert_int_equal(r.vendor_err, reason);
}

static void test_the_qp_with_a_message_takes_the_oldest(void **state)
{
	(void)state;
	open_sharers();
	memset(p.side[0].memory, 0x5a, LENGTH);
	recv_at(holder.qpn, 1);
	recv_at(holder.qpn, 2);
	recv_at(holder.qpn, 3);
	post(1, SRDMA_DESC_SEND, 10, 100);
	pair_settle(&p);
	expect_taken(1, 1, 0);
	assert_memory_equal(p.side[1].memory + AT + LENGTH, p.side[0].memory,
			    100);
	post(0, SRDMA_DESC_SEND, 11, 100);
	pair_settle(&p);
	expect_taken(0, 2, 0);
	post(1, SRDMA_DESC_WRITE_IMM, 12, 8);
	pair_settle(&p);
	expect_taken(1, 3, 0);
	for (uint64_t id = 10; id <= 12; id++)
		pair_expect(&p, 0, id, 0);
	pair_expect_none(&p, 1);
	pair_close(&p);
}

/* RFC 5042 R6.4.3.1-2 */
static void test_messages_wait_for_a_receive(void **state)
{
	(void)state;
	open_sharers();
	post(0, SRDMA_DESC_SEND, 10, 3 * 4096 - 1); /* longer than one packet */
	post(1, SRDMA_DESC_SEND, 11, 100);
	post(1, SRDMA_DESC_WRITE, 12, 100);
	pair_settle(&p);
	pair_expect_none(&p, 1);
	pair_expect_none(&p, 0); /* the WRITE is behind the SEND */
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	pair_wait_ms(&p, 5000);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	for (uint64_t id = 0; id < 2; id++) {
		pair_post(&p, 1,
			  (struct srdma_desc){
				  .opcode = SRDMA_DESC_RECV,
				  .qpn = holder.qpn,
				  .id = id,
				  .length = 4 * 4096,
				  .local_addr = (uintptr_t)p.side[1].memory +
						AT + id * 4 * 4096 },
			  NULL);
		pair_settle(&p);
	}
	pair_wait_ms(&p, 2000);
	pair_expect(&p, 1, 0, 0);
	pair_expect(&p, 1, 1, 0);
	pair_expect_none(&p, 1);
	for (int i = 0; i < 3; i++) {
		struct srdma_record r;

		assert_int_equal(pair_record(&p, 0, &r), 1);
		assert_int_equal(r.vendor_err, 0);
	}
	pair_close(&p);
}

/* Each row is a message: its QP, and the QP that takes the receive with the index
 * of the row. Some QPs have several messages that wait. */
static void test_receives_are_taken_in_the_order_of_the_messages(void **state)
{
	static const struct {
		int sends, takes;
	} rows[] = { { 2, 2 }, { 2, 0 }, { 0, 3 }, { 3, 1 },
		     { 2, 2 }, { 1, 0 }, { 0, 2 } };
	enum { ROWS = sizeof(rows) / sizeof(*rows) };

	(void)state;
	open_many(4);
	for (int i = 0; i < ROWS; i++) {
		post(rows[i].sends, SRDMA_DESC_SEND, 10, 100);
		pair_settle(&p);
	}
	pair_expect_none(&p, 1);
	for (uint64_t i = 0; i < ROWS; i++) {
		recv_at(holder.qpn, i);
		pair_settle(&p);
		expect_taken(rows[i].takes, i, 0);
	}
	pair_expect_none(&p, 1);
	pair_close(&p);
}

/* The receive and the message of another QP arrive in the same turn. */
static void test_later_message_does_not_overtake(void **state)
{
	(void)state;
	open_sharers();
	post(0, SRDMA_DESC_SEND, 10, 100);
	pair_settle(&p);
	post(1, SRDMA_DESC_SEND, 11, 100);
	recv_at(holder.qpn, 1);
	pair_settle(&p);
	expect_taken(0, 1, 0);
	recv_at(holder.qpn, 2);
	pair_settle(&p);
	expect_taken(1, 2, 0);
	pair_close(&p);
}

static void destroy_qp(int i)
{
	while (srdma_relay_qp_destroy(p.side[1].relay, p.side[1].leg,
				      p.side[1].qp[i].qpn))
		pair_run(&p, 1);
}

static void test_failed_qp_waits_no_more(void **state)
{
	(void)state;
	open_many(3);
	for (int i = 0; i < 3; i++) {
		post(i, SRDMA_DESC_SEND, 10, 100);
		pair_settle(&p);
	}
	assert_int_equal(srdma_relay_qp_end(p.side[1].relay, p.side[1].leg,
					    p.side[1].qp[0].qpn,
					    SRDMA_REASON_PEER_CLOSED),
			 0);
	pair_settle(&p);
	expect_taken(0, 0, SRDMA_REASON_PEER_CLOSED); /* QP event */
	destroy_qp(1);
	recv_at(holder.qpn, 1);
	pair_settle(&p);
	expect_taken(2, 1, 0);
	pair_expect_none(&p, 1);
	pair_close(&p);
}

static void test_silent_peer_of_a_qp_without_requests(void **state)
{
	uint32_t reason;

	(void)state;
	open_sharers();
	pair_settle(&p);
	for (int i = 0; i < 2 * SILENCE_MS / 1000; i++)
		pair_wait_ms(&p, 1000); /* the peer answers PINGs */
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	p.wire.fate = lose_all;
	for (int i = 0; i <= SILENCE_MS / 1000; i++)
		pair_wait_ms(&p, 1000);
	assert_int_equal(pair_state(&p, 1, 0, &reason), SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_PEER_SILENT);
	pair_close(&p);
}

static void test_rnr_only_if_the_shared_queue_is_empty(void **state)
{
	const struct srdma_stats *stats;
	struct srdma_qp *qp;

	(void)state;
	open_sharers();
	stats = srdma_relay_stats(p.side[0].relay);
	qp = srdma_relay_qp(p.side[0].relay, p.side[0].qp[0].qpn);
	srdma_qp_schedule(qp, SRDMA_SAY_PING);
	srdma_qp_activate(qp);
	pair_settle(&p);
	assert_int_equal(stats->rnr_received, 1);
	recv_at(holder.qpn, 1);
	pair_settle(&p);
	srdma_qp_schedule(qp, SRDMA_SAY_PING);
	srdma_qp_activate(qp);
	pair_settle(&p);
	assert_int_equal(stats->rnr_received, 1);
	pair_close(&p);
}

static void test_deadline_of_a_message_that_waits(void **state)
{
	(void)state;
	p.timeout_ms = 2000;
	open_sharers();
	post(0, SRDMA_DESC_SEND, 10, 100);
	pair_settle(&p);
	pair_wait_ms(&p, 3000);
	pair_expect(&p, 0, 10, SRDMA_REASON_DEADLINE);
	pair_close(&p);
}

/* Records of a shared queue may outnumber the ring: they wait for it. */
static void test_full_ring_delays_receives(void **state)
{
	enum { RING = 512, MANY = 3 * DEPTH };
	struct srdma_record r;

	(void)state;
	p.ring = RING;
	p.depth = 4;
	open_sharers();
	for (uint64_t i = 0; i < MANY; i++) {
		/* The host does not look at its ring. */
		recv_at(holder.qpn, i % DEPTH);
		post(0, SRDMA_DESC_SEND, 1, 16);
		pair_settle(&p);
		assert_int_equal(pair_record(&p, 0, &r), 1);
		assert_int_equal(r.vendor_err, 0);
	}
	for (uint64_t i = 0; i < MANY; i++)
		expect_taken(0, i % DEPTH, 0);
	pair_expect_none(&p, 1);
	pair_close(&p);
}

/* Runs until QP 0 of side 1 has taken a receive for a message that has not come
 * as a whole. */
static void begin_message(void)
{
	const struct srdma_responder *rs = srdma_qp_responder(
		srdma_relay_qp(p.side[1].relay, p.side[1].qp[0].qpn));

	recv_at(holder.qpn, 1);
	recv_at(holder.qpn, 2);
	pair_settle(&p);
	pair_post(&p, 0,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_SEND,
				       .id = 10,
				       .length = LENGTH,
				       .local_addr =
					       (uintptr_t)p.side[0].memory },
		  NULL);
	while (rs->rq_tail == rs->rq_head)
		pair_run(&p, 1);
	assert_int_equal(rs->rq_next, 0);
}

static void destroy_qp_0(void)
{
	destroy_qp(0);
	pair_settle(&p);
}

static void test_failed_qp_flushes_what_it_has_taken(void **state)
{
	(void)state;
	p.mtu = 256;
	p.window = 1;
	open_sharers();
	begin_message();
	assert_int_equal(srdma_relay_qp_end(p.side[1].relay, p.side[1].leg,
					    p.side[1].qp[0].qpn,
					    SRDMA_REASON_PEER_CLOSED),
			 0);
	pair_settle(&p);
	expect_taken(0, 1, SRDMA_REASON_FLUSHED);
	post(1, SRDMA_DESC_SEND, 11, 100);
	pair_settle(&p);
	expect_taken(0, 0, SRDMA_REASON_PEER_CLOSED); /* QP event */
	expect_taken(1, 2, 0);
	pair_close(&p);
}

static void test_destroyed_qp_gives_back_what_it_has_taken(void **state)
{
	(void)state;
	p.mtu = 256;
	p.window = 1;
	open_sharers();
	begin_message();
	post(1, SRDMA_DESC_SEND, 11, 100);
	post(1, SRDMA_DESC_SEND, 12, 100);
	destroy_qp_0();
	/* It came back, also if QP 1 waited for it. */
	for (int i = 0; i < 2; i++) {
		struct srdma_record r;

		assert_int_equal(pair_record(&p, 1, &r), 1);
		assert_int_equal(r.qpn, p.side[1].qp[1].qpn);
		assert_int_equal(r.vendor_err, 0);
	}
	pair_expect_none(&p, 1);
	pair_close(&p);
}

/* The end of a QP runs no QP of the leg that does not wait. */
static void test_end_of_a_qp_wakes_only_waiting_ones(void **state)
{
	struct srdma_relay *r;

	(void)state;
	p.mtu = 256;
	p.window = 1;
	open_many(3);
	r = p.side[1].relay;
	begin_message();
	destroy_qp(0);
	assert_null(r->env.active_head);
	pair_settle(&p);
	post(1, SRDMA_DESC_SEND, 11, 100);
	pair_settle(&p);
	expect_taken(1, 1, 0);
	pair_close(&p);
}

static enum srdma_mem_fate lose_those_of_qp_0(void *ctx,
					      struct srdma_mem_datagram *d)
{
	(void)ctx;
	return srdma_wire_qpn(d->data, d->len) == (int32_t)p.side[1].qp[0].qpn
		       ? SRDMA_MEM_DROP
		       : SRDMA_MEM_PASS;
}

static void test_receives_given_back_go_to_waiting_qps(void **state)
{
	const struct srdma_responder *rs;

	(void)state;
	p.mtu = 256;
	p.window = 1;
	open_sharers();
	begin_message();
	p.wire.fate = lose_those_of_qp_0;
	post(1, SRDMA_DESC_SEND, 11, 100);
	post(1, SRDMA_DESC_SEND, 12, 100);
	pair_settle(&p);
	expect_taken(1, 2, 0);
	rs = srdma_qp_responder(
		srdma_relay_qp(p.side[1].relay, p.side[1].qp[1].qpn));
	assert_true(rs->waiting);
	destroy_qp(0);
	assert_false(rs->waiting); /* at once, not when the peer repeats */
	pair_settle(&p);
	expect_taken(1, 1, 0);
	pair_close(&p);
}

static void destroy_holder(void)
{
	assert_int_equal(srdma_relay_qp_destroy(p.side[1].relay, p.side[1].leg,
						holder.qpn),
			 0);
}

static void test_end_of_the_holder(void **state)
{
	(void)state;
	open_sharers();
	recv_at(holder.qpn, 1);
	pair_settle(&p);
	destroy_holder();
	for (int i = 0; i < 2; i++)
		assert_false(srdma_shared_queue_is_used(
			srdma_relay_qp(p.side[1].relay, p.side[1].qp[i].qpn)));
	post(0, SRDMA_DESC_SEND, 10, 100);
	pair_settle(&p);
	pair_expect(&p, 0, 10, SRDMA_REASON_NO_RECV);
	pair_close(&p);
}

/* Opens QPs, of which the first one has a message that waits for a receive. */
static void open_waiting(void)
{
	open_sharers();
	post(0, SRDMA_DESC_SEND, 10, 100);
	pair_settle(&p);
	pair_expect_none(&p, 0);
}

static void expect_refusal(void)
{
	pair_settle(&p);
	pair_expect(&p, 0, 10, SRDMA_REASON_NO_RECV);
	pair_close(&p);
}

static void test_message_that_waits_at_the_end_of_the_holder(void **state)
{
	(void)state;
	open_waiting();
	destroy_holder();
	expect_refusal();
}

static void test_message_that_waits_when_the_holder_fails(void **state)
{
	struct srdma_desc illegal = { .opcode = SRDMA_DESC_RECV,
				      .sges = 1 /* which does not follow */ };

	(void)state;
	open_waiting();
	illegal.qpn = holder.qpn;
	pair_post(&p, 1, illegal, NULL);
	expect_refusal();
}

static void refuse(uint32_t qpn, uint32_t from, int err)
{
	assert_int_equal(share(qpn, from), err);
	assert_non_null(srdma_relay_why(p.side[1].relay));
}

static void test_refusals(void **state)
{
	struct srdma_qp_info other, fresh;

	(void)state;
	open_sharers();
	other = init(1);
	fresh = init(1);
	refuse(p.side[1].qp[0].qpn, holder.qpn, -EINVAL); /* RTS */
	refuse(fresh.qpn, p.side[1].qp[0].qpn, -EINVAL);
	refuse(fresh.qpn, fresh.qpn, -EINVAL);
	refuse(fresh.qpn, 1, -ENOENT);
	refuse(1, holder.qpn, -ENOENT);
	refuse(holder.qpn, fresh.qpn, -EINVAL); /* it has users */
	assert_int_equal(share(other.qpn, holder.qpn), 0);
	refuse(other.qpn, holder.qpn, -EINVAL); /* twice */
	refuse(fresh.qpn, other.qpn, -EINVAL);	/* it shares one */
	recv_at(fresh.qpn, 1);
	pair_settle(&p);
	refuse(fresh.qpn, holder.qpn, -EINVAL); /* it has receives */
	pair_close(&p);
}

static void test_holder_gets_no_keys(void **state)
{
	struct srdma_qp_keys k;

	(void)state;
	open_sharers();
	pair_keys(&p, 1, 0, &k);
	k.qpn = holder.qpn;
	assert_int_equal(
		srdma_relay_qp_keys(p.side[1].relay, p.side[1].leg, &k),
		-EINVAL);
	assert_non_null(strstr(srdma_relay_why(p.side[1].relay), "no keys"));
	pair_close(&p);
}

static void test_own_receives_of_a_sharer_are_refused(void **state)
{
	uint32_t reason;

	(void)state;
	open_sharers();
	recv_at(p.side[1].qp[0].qpn, 1);
	pair_settle(&p);
	assert_int_equal(pair_state(&p, 1, 0, &reason), SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_BAD_DESCRIPTOR);
	assert_int_equal(pair_state(&p, 1, 1, NULL), SRDMA_QP_RTS);
	pair_close(&p);
}

/* A host that posts more than it may loses receives, and nothing else. */
static void test_given_back_to_a_full_queue(void **state)
{
	(void)state;
	p.mtu = 256;
	p.window = 1;
	open_sharers();
	begin_message();
	for (uint64_t id = 3; id <= DEPTH + 1; id++)
		recv_at(holder.qpn, id % 16);
	destroy_qp_0();
	post(1, SRDMA_DESC_SEND, 11, 100);
	pair_settle(&p);
	expect_taken(1, 2, 0);
	pair_close(&p);
}

/* --- receives with SGLs --------------------------------------------------------- */

enum { PARTS = 3, PART = 300, STEP = 1000 /* between the parts */ };

static uint8_t *part_of(uint64_t id, unsigned i)
{
	return p.side[1].memory + AT + id * LENGTH + i * STEP;
}

static void recv_list_at_holder(uint64_t id)
{
	struct srdma_sge list[PARTS];

	for (unsigned i = 0; i < PARTS; i++)
		list[i] = (struct srdma_sge){ .addr = (uintptr_t)part_of(id, i),
					      .length = PART };
	memset(part_of(id, 0), 0, LENGTH);
	pair_post(&p, 1,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
				       .qpn = holder.qpn,
				       .id = id,
				       .length = PARTS * PART,
				       .sges = PARTS },
		  list);
}

/* A message that fills the parts of a receive, and is another one for each id. */
static void send_parts(int qp, uint64_t id)
{
	for (unsigned i = 0; i < PARTS * PART; i++)
		p.side[0].memory[i] = (uint8_t)(7 * i + i / 256 + id);
	post(qp, SRDMA_DESC_SEND, id, PARTS * PART);
}

/* The QP has taken the receive with this id, and the last message is in its parts and
 * not between them. */
static void expect_parts(int qp, uint64_t id)
{
	static const uint8_t none[STEP - PART];

	expect_taken(qp, id, 0);
	for (unsigned i = 0; i < PARTS; i++) {
		assert_memory_equal(part_of(id, i),
				    p.side[0].memory + (size_t)i * PART, PART);
		assert_memory_equal(part_of(id, i) + PART, none, sizeof(none));
	}
}

static struct srdma_table_memory *tables(void)
{
	return &p.side[1].relay->env.tables;
}

static void test_lists_move_with_their_receives(void **state)
{
	(void)state;
	open_sharers();
	recv_list_at_holder(1);
	recv_at(holder.qpn, 2);
	recv_list_at_holder(3);
	send_parts(1, 10);
	pair_settle(&p);
	expect_parts(1, 1);
	post(1, SRDMA_DESC_SEND, 11, 100);
	pair_settle(&p);
	expect_taken(1, 2, 0);
	send_parts(0, 12);
	pair_settle(&p);
	expect_parts(0, 3);
	pair_close(&p);
}

/* QP 0 takes the receive and ends before the message is there as a whole. */
static void take_and_give_back(void)
{
	const struct srdma_responder *rs = srdma_qp_responder(
		srdma_relay_qp(p.side[1].relay, p.side[1].qp[0].qpn));
	struct srdma_qp *of_holder =
		srdma_relay_qp(p.side[1].relay, holder.qpn);

	send_parts(0, 10);
	while (rs->rq_tail == rs->rq_head)
		pair_run(&p, 1);
	assert_int_equal(rs->rq_next, 0);
	assert_non_null(rs->rq_sgls);
	/* Its queue is empty, but the table is needed for what comes back. */
	srdma_responder_give_tables(of_holder);
	destroy_qp_0();
	memset(part_of(1, 0), 0, LENGTH);
}

static void test_lists_come_back_with_their_receives(void **state)
{
	(void)state;
	p.mtu = 256;
	p.window = 1;
	open_sharers();
	recv_list_at_holder(1);
	pair_settle(&p);
	take_and_give_back();
	recv_list_at_holder(2);
	send_parts(1, 11);
	pair_settle(&p);
	expect_parts(1, 1);
	send_parts(1, 12);
	pair_settle(&p);
	expect_parts(1, 2);
	pair_expect_none(&p, 1);
	pair_close(&p);
}

static void open_without_memory(void)
{
	p.timeout_ms = 2000;
	open_sharers();
	recv_list_at_holder(1);
	pair_settle(&p);
	assert_true(tables()->used > 0);
	tables()->most = tables()->used;
	send_parts(0, 10);
	pair_settle(&p);
	pair_expect_none(&p, 1);
	pair_expect_none(&p, 0);
}

static void test_message_waits_for_memory_of_a_list(void **state)
{
	(void)state;
	open_without_memory();
	tables()->most = 0;
	for (int i = 0; i < 20; i++)
		pair_wait_ms(&p, 10);
	expect_parts(0, 1);
	pair_expect(&p, 0, 10, 0);
	pair_close(&p);
}

/* The table of a QP that takes receives is smaller than that of the holder. The
 * holder fails, and no QP takes its receives. */
static void test_holder_without_memory_for_a_list(void **state)
{
	struct srdma_qp *of_holder;

	(void)state;
	p.depth = 1;
	open_sharers();
	of_holder = srdma_relay_qp(p.side[1].relay, holder.qpn);
	tables()->most = tables()->used + 2 * sizeof(struct srdma_rqe_sgl);
	send_parts(0, 10);
	pair_settle(&p); /* the message waits for the receive */
	recv_list_at_holder(1);
	pair_settle(&p);
	assert_int_equal(srdma_qp_state(of_holder), SRDMA_QP_ERR);
	assert_int_equal(srdma_qp_reason(of_holder), SRDMA_REASON_LOCAL_DMA);
	pair_expect(&p, 0, 10, SRDMA_REASON_NO_RECV);
	pair_close(&p);
}

static void test_deadline_without_memory_for_a_list(void **state)
{
	(void)state;
	open_without_memory();
	for (int i = 0; i < 250; i++)
		pair_wait_ms(&p, 10);
	pair_expect(&p, 0, 10, SRDMA_REASON_DEADLINE);
	expect_taken(0, 0, SRDMA_REASON_PEER_ERROR); /* QP event */
	tables()->most = 0;
	send_parts(1, 11);
	pair_settle(&p);
	expect_parts(1, 1); /* the receive is still the holder's */
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			test_the_qp_with_a_message_takes_the_oldest, setup),
		cmocka_unit_test_setup(test_messages_wait_for_a_receive, setup),
		cmocka_unit_test_setup(
			test_receives_are_taken_in_the_order_of_the_messages,
			setup),
		cmocka_unit_test_setup(test_later_message_does_not_overtake,
				       setup),
		cmocka_unit_test_setup(test_failed_qp_waits_no_more, setup),
		cmocka_unit_test_setup(
			test_silent_peer_of_a_qp_without_requests, setup),
		cmocka_unit_test_setup(test_end_of_a_qp_wakes_only_waiting_ones,
				       setup),
		cmocka_unit_test_setup(
			test_receives_given_back_go_to_waiting_qps, setup),
		cmocka_unit_test_setup(
			test_rnr_only_if_the_shared_queue_is_empty, setup),
		cmocka_unit_test_setup(test_deadline_of_a_message_that_waits,
				       setup),
		cmocka_unit_test_setup(test_full_ring_delays_receives, setup),
		cmocka_unit_test_setup(test_failed_qp_flushes_what_it_has_taken,
				       setup),
		cmocka_unit_test_setup(
			test_destroyed_qp_gives_back_what_it_has_taken, setup),
		cmocka_unit_test_setup(test_end_of_the_holder, setup),
		cmocka_unit_test_setup(
			test_message_that_waits_at_the_end_of_the_holder,
			setup),
		cmocka_unit_test_setup(
			test_message_that_waits_when_the_holder_fails, setup),
		cmocka_unit_test_setup(test_refusals, setup),
		cmocka_unit_test_setup(
			test_own_receives_of_a_sharer_are_refused, setup),
		cmocka_unit_test_setup(test_given_back_to_a_full_queue, setup),
		cmocka_unit_test_setup(test_holder_gets_no_keys, setup),
		cmocka_unit_test_setup(test_holder_without_memory_for_a_list,
				       setup),
		cmocka_unit_test_setup(test_lists_move_with_their_receives,
				       setup),
		cmocka_unit_test_setup(test_lists_come_back_with_their_receives,
				       setup),
		cmocka_unit_test_setup(test_message_waits_for_memory_of_a_list,
				       setup),
		cmocka_unit_test_setup(test_deadline_without_memory_for_a_list,
				       setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
