/*
 * Regression tests of attacks and failures: a hostile or failing wire, peer,
 * host or DMA engine once harmed a relay in these ways.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "port/leg_time.h"
#include "relay/leg.h"
#include "support/inside.h"
#include "support/relay_pair.h"

static struct srdma_desc request(struct pair *p, uint8_t opcode, uint32_t len)
{
	return (struct srdma_desc){
		.opcode = opcode,
		.id = 1,
		.length = len,
		.local_addr = (uintptr_t)p->side[0].memory,
		.remote_addr = (uintptr_t)p->side[1].memory,
	};
}

static int full(void *ctx, int side)
{
	const int *stuck = ctx;

	return stuck[side];
}

static struct srdma_qp *qp_at(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

/*
 * Seals a packet with the session of the other side and injects it at side
 * `to`.
 */
static void forge(struct pair *p, int to, struct srdma_packet pkt)
{
	static const uint8_t payload[4096] = { 0xbd };
	uint8_t out[SRDMA_MAX_PACKET];
	int len;

	pkt.ack.highest_pn = (uint32_t)srdma_session_next_pn(
				     srdma_qp_session(qp_at(p, to, 0))) -
			     1;
	len = srdma_session_seal(srdma_qp_session(qp_at(p, !to, 0)), &pkt,
				 payload, out, sizeof(out));
	assert_true(len > 0);
	assert_int_equal(srdma_port_mem_inject(srdma_path_conn(qp_at(p, to, 0)),
					       out, (uint32_t)len),
			 0);
	pair_settle(p);
}

/* --- buffers -------------------------------------------------------------- */

/*
 * With only a few buffers beyond one receive burst, transfers are slow but
 * complete.
 */
static void test_few_buffers_suffice(void **state)
{
	(void)state;
	for (int side = 0; side < 2; side++) {
		struct pair p;

		pair_defaults(&p);
		p.mtu = 256;
		p.host[side].bufs = SRDMA_MAX_BURST + 8;
		pair_open(&p);
		pair_connect(&p, 0);
		pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 20000), NULL);
		pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 20000), NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		pair_close(&p);
	}
}

/*
 * Responses and requests that a peer does not accept do not exhaust the
 * buffers.
 */
static void test_blocked_wire_leaves_buffers_free(void **state)
{
	int stuck[2] = { 0 };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = stuck;
	p.wire.full = full;
	pair_open(&p);
	for (int i = 0; i < PAIR_QPS; i++)
		pair_connect(&p, i);
	stuck[1] = 1;
	for (int i = 0; i < PAIR_QPS; i++) {
		struct srdma_desc d = request(&p, SRDMA_DESC_READ, 1 << 20);

		d.qpn = p.side[0].qp[i].qpn;
		pair_post(&p, 0, d, NULL);
		d = request(&p, SRDMA_DESC_WRITE, 1 << 20);
		d.qpn = p.side[1].qp[i].qpn;
		d.local_addr = (uintptr_t)p.side[1].memory;
		d.remote_addr = (uintptr_t)p.side[0].memory;
		pair_post(&p, 1, d, NULL);
	}
	pair_run(&p, 1000);
	assert_true(p.side[1].host->ops->buf_free(p.side[1].host) >
		    SRDMA_MAX_BURST + 8);
	pair_close(&p);
}

/* --- credit --------------------------------------------------------------- */

/* Credit for a RECV posted between the OPEN and its ack is sent at once. */
static void test_credit_of_recv_before_open_ack_is_sent(void **state)
{
	struct srdma_desc send = { .opcode = SRDMA_DESC_SEND, .id = 5 };
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 6 };
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	for (int side = 1; side >= 0; side--) {
		pair_keys(&p, side, 0, &k);
		assert_int_equal(srdma_relay_qp_keys(p.side[side].relay,
						     p.side[side].leg, &k),
				 0);
	}
	srdma_relay_run(p.side[0].relay, ++p.now, 64); /* sends OPEN */
	pair_post(&p, 0, recv, NULL);
	pair_post(&p, 1, send, NULL);
	pair_settle(&p);
	pair_expect(&p, 1, 5, SRDMA_REASON_NONE);
	pair_expect(&p, 0, 6, SRDMA_REASON_NONE);
	pair_close(&p);
}

/* --- DMA ------------------------------------------------------------------ */

/* 0: DMA completes; 1: no room; 2: DMA fails. */
static int dma(void *ctx, const struct srdma_dma *d, int is_write)
{
	const int *how = ctx;

	(void)d;
	(void)is_write;
	return *how == 1 ? -EAGAIN : *how ? -EFAULT : 0;
}

/* *how: what DMA of side 1 does. */
static void open_with_dma(struct pair *p, int *how)
{
	pair_defaults(p);
	p->host[1].ctx = how;
	p->host[1].dma = dma;
	pair_open(p);
	pair_connect(p, 0);
}

/* A RECV that is too short completes after its last DMA. */
static void test_short_recv_completes_after_its_dma(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .id = 5,
				   .length = 5000 };
	int how = 0;
	struct pair p;

	(void)state;
	open_with_dma(&p, &how);
	recv.local_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 1, recv, NULL);
	pair_settle(&p);
	how = 1;
	pair_post(&p, 0, request(&p, SRDMA_DESC_SEND, 5001), NULL);
	pair_run(&p, 100);
	pair_expect_none(&p, 1);
	how = 0;
	pair_settle(&p);
	pair_expect(&p, 1, 5, SRDMA_REASON_RECV_TOO_SHORT);
	pair_expect(&p, 0, 1, SRDMA_REASON_RECV_TOO_SHORT);
	pair_close(&p);
}

/* A QP that fails keeps its receives until no DMA writes to them. */
/* review A25 */
static void test_failed_qp_completes_after_its_dma(void **state)
{
	const struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
					 .id = 5,
					 .length = 64 };
	struct srdma_desc d = recv;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.host[1].dma_polls = 100;
	pair_open(&p);
	pair_connect(&p, 0);
	d.local_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 1, d, NULL);
	pair_settle(&p);
	pair_post(&p, 0, request(&p, SRDMA_DESC_SEND, 64), NULL);
	pair_run(&p, 20);
	assert_int_equal(srdma_qp_dmas(qp_at(&p, 1, 0)), 1);
	assert_int_equal(srdma_relay_qp_expire(p.side[1].relay, p.side[1].leg,
					       p.side[1].qp[0].qpn),
			 0);
	pair_run(&p, 20);
	assert_int_equal(srdma_qp_dmas(qp_at(&p, 1, 0)), 1);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->completions, 0);
	pair_settle(&p);
	assert_int_equal(srdma_qp_dmas(qp_at(&p, 1, 0)), 0);
	pair_expect(&p, 1, 5, SRDMA_REASON_FLUSHED);
	pair_close(&p);
}

/* DMA that never gets room ends the QP before the deadline of the requester, and
 * after the end of a leg whose host is lost. */
static void test_blocked_dma_ends_qp(void **state)
{
	int how = 0;
	struct pair p;

	(void)state;
	open_with_dma(&p, &how);
	how = 1;
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 8), NULL);
	pair_settle(&p);
	pair_wait_ms(&p, SRDMA_LEG_BEAT_MS + SRDMA_LEG_SILENCE_MS);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, 1001);
	pair_expect(&p, 0, 1, SRDMA_REASON_TARGET_DMA);
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_ERR);
	assert_int_equal(p.side[1].relay->env.ops.left, SRDMA_OPS);
	pair_close(&p);
}

static void test_blocked_dma_of_a_receive(void **state)
{
	int how = 0;
	struct pair p;

	(void)state;
	open_with_dma(&p, &how);
	how = 1;
	pair_post(&p, 1,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
				       .id = 5,
				       .length = 8,
				       .local_addr =
					       (uintptr_t)p.side[1].memory },
		  NULL);
	pair_post(&p, 1,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_RECV, .id = 6 },
		  NULL);
	pair_settle(&p);
	pair_post(&p, 0, request(&p, SRDMA_DESC_SEND, 8), NULL);
	pair_settle(&p);
	for (int i = 0; i <= SRDMA_DMA_LIMIT_S; i++)
		pair_wait_ms(&p, 1000);
	pair_expect(&p, 0, 1, SRDMA_REASON_TARGET_DMA);
	pair_expect(&p, 1, 5, SRDMA_REASON_LOCAL_DMA);
	pair_expect(&p, 1, 6, SRDMA_REASON_FLUSHED);
	pair_close(&p);
}

/* A NAK names the first byte that was not executed. */
static void test_nak_position_of_failed_dma(void **state)
{
	int how = 0;
	struct pair p;

	(void)state;
	open_with_dma(&p, &how);
	how = 2;
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 8), NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_TARGET_DMA);
	assert_int_equal(srdma_qp_core(qp_at(&p, 1, 0))->last.nak_at.id, 0);
	assert_int_equal(srdma_qp_core(qp_at(&p, 1, 0))->last.nak_at.offset, 0);
	pair_close(&p);
}

/* --- windows -------------------------------------------------------------- */

/* Unacknowledged packets never exceed the window of the peer. */
static void test_unacknowledged_stay_within_peer_window(void **state)
{
	int stuck[2] = { 0 };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.window = 5;
	p.wire.ctx = stuck;
	p.wire.full = full;
	pair_open(&p);
	pair_connect(&p, 0);
	stuck[1] = 1; /* no acks */
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 1 << 20), NULL);
	pair_run(&p, 100);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->dma_written_bytes,
			 5 * 4096);
	stuck[1] = 0;
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);
}

/* --- responses ------------------------------------------------------------ */

/* A response to a READ that was not sent yet is dropped. */
static void test_response_before_request_is_dropped(void **state)
{
	struct srdma_packet answer = { .opcode = SRDMA_OP_READ_RESPONSE_ONLY,
				       .payload_len = 8 };
	int stuck[2] = { 0 };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = stuck;
	p.wire.full = full;
	pair_open(&p);
	pair_connect(&p, 0);
	stuck[0] = 1;
	memset(p.side[1].memory, 0x77, 8);
	pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 8), NULL);
	pair_run(&p, 10);
	forge(&p, 0, answer);
	pair_expect_none(&p, 0);
	assert_int_equal(pair_refused(&p, 0, SRDMA_REFUSED_UNSOLICITED), 1);
	stuck[0] = 0;
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	assert_memory_equal(p.side[0].memory, p.side[1].memory, 8);
	pair_close(&p);
}

/* A QP fails if its peer sends READs and PINGs but accepts no responses. */
static void test_peer_that_accepts_no_responses_fails_qp(void **state)
{
	struct srdma_packet ping = { .opcode = SRDMA_OP_ACKNOWLEDGE,
				     .ack = { .kind = SRDMA_ACK_PING } };
	int stuck[2] = { 0 };
	struct pair p;
	uint32_t why;

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = stuck;
	p.wire.full = full;
	pair_open(&p);
	pair_connect(&p, 0);
	stuck[1] = 1;
	pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 1 << 20), NULL);
	pair_run(&p, 10);
	for (int i = 0; i < 14; i++) {
		pair_wait_ms(&p, 1000);
		forge(&p, 1, ping);
		/* Keeps the requester's QP from failing by silence first. */
		srdma_qp_core(qp_at(&p, 0, 0))->heard = p.now;
	}
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	pair_wait_ms(&p, 500); /* more than 1 s is a stall */
	pair_wait_ms(&p, 501);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_PEER_SILENT);
	assert_int_equal(p.side[1].relay->env.ops.left, SRDMA_OPS);
	pair_close(&p);
}

/* --- errors and CLOSE ----------------------------------------------------- */

/* A READ before a refused request is still answered. */
static void test_read_before_refused_request_is_answered(void **state)
{
	static const struct {
		uint32_t polls[2];
		uint32_t slots;
	} rows[] = {
		{ { 0, 0 }, 128 }, { { 0, 0 }, 2 },  { { 7, 0 }, 128 },
		{ { 0, 7 }, 128 }, { { 3, 9 }, 10 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_desc d;
		struct pair p;

		pair_defaults(&p);
		p.wire.slots = rows[i].slots;
		p.host[0].dma_polls = rows[i].polls[0];
		p.host[1].dma_polls = rows[i].polls[1];
		pair_open(&p);
		pair_connect(&p, 0);
		pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 200000), NULL);
		d = request(&p, SRDMA_DESC_WRITE, 8);
		d.id = 2;
		d.rkey = p.side[1].key ^ 1;
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		pair_expect(&p, 0, 2, SRDMA_REASON_BAD_RKEY);
		pair_close(&p);
	}
}

static int fail_writes(void *ctx, const struct srdma_dma *d, int is_write)
{
	(void)ctx;
	(void)d;
	return is_write ? -EFAULT : 0;
}

/*
 * A READ before a failed DMA is still answered; requests after the failure are
 * flushed.
 */
static void test_read_before_failed_dma_is_answered(void **state)
{
	struct srdma_desc d;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.wire.slots = 10;
	p.host[1].dma_polls = 7;
	pair_open(&p);
	pair_connect(&p, 0);
	p.host[1].dma = fail_writes;
	pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 200000), NULL);
	d = request(&p, SRDMA_DESC_WRITE, 8);
	for (d.id = 2; d.id < 5; d.id++)
		pair_post(&p, 0, d, NULL);
	d.opcode = SRDMA_DESC_READ;
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_expect(&p, 0, 2, SRDMA_REASON_TARGET_DMA);
	for (uint64_t id = 3; id < 6; id++)
		pair_expect(&p, 0, id, SRDMA_REASON_FLUSHED);
	assert_int_equal(srdma_qp_core(qp_at(&p, 1, 0))->last.nak_at.id, 1);
	assert_int_equal(srdma_qp_core(qp_at(&p, 1, 0))->last.nak_at.offset, 0);
	pair_close(&p);
}

/* A response before a CLOSE is placed, also if both arrive in one turn. */
static void test_response_before_close_is_placed(void **state)
{
	struct srdma_relay *r;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	r = p.side[1].relay;
	pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 8), NULL);
	srdma_relay_run(p.side[0].relay, ++p.now, 64);
	srdma_relay_run(r, ++p.now, 64);
	assert_int_equal(
		srdma_relay_qp_destroy(r, p.side[1].leg, p.side[1].qp[0].qpn),
		-EINPROGRESS);
	srdma_relay_run(r, ++p.now, 64);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);
}

/* --- turns ---------------------------------------------------------------- */

/* A turn that only sent packets counts as work: the worker does not sleep. */
static void test_turn_that_only_sends_is_work(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.wire.slots = 1000;
	p.mtu = 256; /* 256 responses per read chunk */
	pair_open(&p);
	pair_connect(&p, 0);
	pair_post(&p, 0, request(&p, SRDMA_DESC_READ, 1 << 20), NULL);
	srdma_relay_run(p.side[0].relay, ++p.now, 64);
	assert_true(srdma_relay_run(p.side[1].relay, ++p.now, 64) > 0);
	assert_true(srdma_relay_run(p.side[1].relay, ++p.now, 64) >= 64);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);
}

/* --- hosts ---------------------------------------------------------------- */

static void test_too_long_message_is_refused(void **state)
{
	static const uint8_t payload[SRDMA_MAX_INLINE];
	uint8_t slot[SRDMA_DESC_SLOT];
	struct pair p;

	(void)state;
	for (uint8_t flags = 0; flags <= SRDMA_DESC_INLINE;
	     flags += SRDMA_DESC_INLINE) {
		struct srdma_desc d;

		pair_defaults(&p);
		pair_open(&p);
		pair_connect(&p, 0);
		d = request(&p, SRDMA_DESC_WRITE, SRDMA_MAX_MESSAGE + 1);
		d.qpn = p.side[0].qp[0].qpn;
		d.flags = flags;
		srdma_desc_encode(slot, &d);
		memcpy(slot + SRDMA_DESC_LEN, payload, sizeof(payload));
		assert_int_equal(
			srdma_port_mem_post(p.side[0].conn, slot, sizeof(slot)),
			0);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_MESSAGE_TOO_LONG);
		pair_close(&p);
	}
}

/* A host that never consumes gets no more records than its ring holds. */
/* RFC 5042 R6.4.3.2-2, R6.4.6-1, A6.4.6, A7.1b */
static void test_host_that_never_consumes_does_not_overrun_ring(void **state)
{
	struct srdma_desc credit = { .opcode = SRDMA_DESC_CREDIT };
	struct srdma_desc w = { .opcode = SRDMA_DESC_WRITE };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	for (uint64_t i = 0; i < PAIR_RING + 10; i++) {
		w.id = i;
		pair_post(&p, 0, w, NULL);
		pair_run(&p, 3);
	}
	assert_int_equal(p.side[0].leg->cq.written, PAIR_RING);
	for (uint64_t i = 0; i < PAIR_RING; i++)
		pair_expect(&p, 0, i, SRDMA_REASON_NONE);
	pair_post(&p, 0, credit, NULL);
	pair_settle(&p);
	for (uint64_t i = PAIR_RING; i < PAIR_RING + 10; i++)
		pair_expect(&p, 0, i, SRDMA_REASON_NONE);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_buffers_suffice),
		cmocka_unit_test(test_blocked_wire_leaves_buffers_free),
		cmocka_unit_test(test_credit_of_recv_before_open_ack_is_sent),
		cmocka_unit_test(test_short_recv_completes_after_its_dma),
		cmocka_unit_test(test_failed_qp_completes_after_its_dma),
		cmocka_unit_test(test_blocked_dma_ends_qp),
		cmocka_unit_test(test_blocked_dma_of_a_receive),
		cmocka_unit_test(test_nak_position_of_failed_dma),
		cmocka_unit_test(test_unacknowledged_stay_within_peer_window),
		cmocka_unit_test(test_response_before_request_is_dropped),
		cmocka_unit_test(test_peer_that_accepts_no_responses_fails_qp),
		cmocka_unit_test(test_read_before_refused_request_is_answered),
		cmocka_unit_test(test_read_before_failed_dma_is_answered),
		cmocka_unit_test(test_response_before_close_is_placed),
		cmocka_unit_test(test_turn_that_only_sends_is_work),
		cmocka_unit_test(test_too_long_message_is_refused),
		cmocka_unit_test(
			test_host_that_never_consumes_does_not_overrun_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
