/*
 * Repetition: responses to repeated READ requests (docs/protocol.md 5.3), and
 * repeated final NAKs and CLOSEs of a QP in error (5.4).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/arriving.h"

enum { MS = 1000000 };

/* --- READs ---------------------------------------------------------------- */

/* Each repetition is answered, with a full access check every time. */
/* review A2 */
static void test_repeated_read_is_answered_again(void **state)
{
	struct side *target;
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	target = &s.pair.side[1];
	arrive(&s, part(&s, 0, 0, 9000));
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 3);
	EXPECT_POSITION(&s, 0, 9000);
	arrive(&s, part(&s, 0, 4096, 4096)); /* its second response only */
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 4);
	arrive(&s, piece(&s, 1, 0, 1)); /* completes the READ */
	arrive(&s, part(&s, 0, 0, 9000));
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 7);
	EXPECT_POSITION(&s, 2, 0);
	assert_int_equal(target_stats(&s)->duplicates, 2);
	/*
	 * A repetition that is no longer allowed gets no response and no error.
	 */
	assert_int_equal(
		srdma_relay_mr_dereg(target->relay, target->leg, target->key),
		0);
	arrive(&s, part(&s, 0, 0, 9000));
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 7);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	assert_int_equal(s.naks, 0);
	scene_close(&s);
}

/* Repetitions that no correct requester sends are dropped. */
static void test_malformed_repeated_read_is_dropped(void **state)
{
	struct srdma_packet rows[6];
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 100));
	arrive(&s, piece(&s, 1, 0, 1));
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		rows[i] = part(&s, 0, 0, 100);
	rows[0].rkey ^= 1;
	rows[1].dma_len = SRDMA_MAX_READ_CHUNK + 1;
	rows[2].offset = SRDMA_MAX_MESSAGE + 1;
	/* so that va + offset lies in the region */
	rows[2].va -= SRDMA_MAX_MESSAGE + 1;
	rows[3].offset = SRDMA_MAX_MESSAGE - 99;
	rows[4].va = UINT64_MAX - 50;
	rows[4].offset = 60;
	rows[5].va += PAIR_MEMORY - 50;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		arrive(&s, rows[i]);
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 1);
	assert_int_equal(target_stats(&s)->duplicates, 6);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/*
 * A zero-length READ ends with its only READ_REQUEST, so that the position
 * passes it at once. It is still answered when it is repeated.
 */
/* RFC 5042 R6.3.5-2 */
static void test_empty_read_may_be_repeated(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 0));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 1, 0);
	assert_int_equal(s.answers, 1);
	arrive(&s, part(&s, 0, 0, 0));
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 2);
	arrive(&s, piece(&s, 1, 0, 1));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 2, 0);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/* DMA is so slow that response slots stay taken. */
static void begin_slow(struct scene *s, uint32_t reads)
{
	scene_begin(s);
	s->pair.reads = reads;
	s->pair.host[1].dma_polls = 50;
}

/* A repetition of bytes that a slot is still reading is dropped. */
static void test_repeated_read_is_dropped_while_its_slot_is_busy(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.host[1].dma_polls = 50;
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 8192));
	for (int i = 0; i < 5; i++) {
		arrive(&s, part(&s, 0, 0, 8192));
		arrive(&s, part(&s, 0, 4096, 10));
	}
	arrive(&s, part(&s, 1, 0, 0));
	arrive(&s, part(&s, 1, 0, 0));
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 2);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 3);
	assert_int_equal(target_stats(&s)->duplicates, 11);
	scene_close(&s);
}

/* The wire of side 1 has no room after the first response. */
static int full(void *ctx, int side)
{
	const struct scene *s = ctx;

	return side == 1 && s->answers == 1;
}

/*
 * A repetition of bytes that a slot has yet to send is dropped. A repetition of
 * bytes that it has sent gets a slot of its own.
 */
/* review A2 */
static void test_repeated_read_of_sent_bytes_gets_new_slot(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.wire.full = full;
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 9000));
	pair_run(&s.pair, 10);
	assert_int_equal(s.answers, 1);
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 1);
	arrive(&s, part(&s, 0, 4096, 10));
	arrive(&s, part(&s, 0, 4000, 97));
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 1);
	arrive(&s, part(&s, 0, 4000, 96));
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 2);
	s.pair.wire.full = NULL;
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 4);
	scene_close(&s);
}

/*
 * Without a free slot a new request waits and a repetition is dropped. Neither
 * is an error.
 */
/* RFC 5042 R6.4.3.3-1 */
static void test_no_free_slot_new_read_waits(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 100));
	arrive(&s, part(&s, 1, 0, 100));
	arrive(&s, part(&s, 1, 0, 100)); /* duplicate */
	arrive(&s, part(&s, 2, 0, 100));
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP), 0);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(target_stats(&s)->kept, 2);
	arrive(&s, part(&s, 0, 0, 100));
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 1);
	assert_int_equal(
		srdma_qp_responder(qp_at(&s, 1, 0))->reorder.share.count, 2);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 3);
	EXPECT_POSITION(&s, 2, 100);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/* One slot in four is reserved for repetitions. */
/* RFC 5042 RA-3 */
static void test_one_slot_is_reserved_for_repetitions(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 4);
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 100));
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 1);
	for (uint32_t id = 1; id < 6; id++)
		arrive(&s, part(&s, id, 0, 100));
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 3);
	assert_int_equal(
		srdma_qp_responder(qp_at(&s, 1, 0))->reorder.share.count, 2);
	arrive(&s, part(&s, 0, 0, 100));
	assert_int_equal(srdma_qp_responder(qp_at(&s, 1, 0))->slots_count, 4);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 7);
	scene_close(&s);
}

/*
 * While a read chunk waits for a slot, the next request waits as well, although
 * it could follow the chunk before.
 */
/* RFC 5042 R6.4.3.3-3 */
static void test_request_waits_behind_waiting_chunk(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 100));
	arrive(&s, part(&s, 0, 100, 100));
	arrive(&s, piece(&s, 1, 0, 1));
	assert_int_equal(target_stats(&s)->kept, 2);
	pair_run(&s.pair, 20);
	EXPECT_POSITION(&s, 0, 100);
	assert_int_equal(s.ack.gaps, 0);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 2);
	EXPECT_POSITION(&s, 2, 0);
	assert_int_equal(target_stats(&s)->duplicates, 0);
	scene_close(&s);
}

/* Two read chunks wait in order, and the next request waits behind both. */
/* RFC 5042 A6.4.3.3 */
static void test_request_waits_behind_two_waiting_chunks(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	scene_open(&s, 1);
	for (uint32_t at = 0; at < 300; at += 100)
		arrive(&s, part(&s, 0, at, 100));
	assert_int_equal(target_stats(&s)->kept, 2);
	while (srdma_qp_responder(qp_at(&s, 1, 0))->accepted.offset < 200)
		pair_run(&s.pair, 1);
	arrive(&s, piece(&s, 1, 0, 1));
	assert_int_equal(target_stats(&s)->kept, 3);
	EXPECT_POSITION(&s, 0, 200);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 3);
	EXPECT_POSITION(&s, 2, 0);
	assert_int_equal(target_stats(&s)->duplicates, 0);
	scene_close(&s);
}

/*
 * A read chunk that arrives while the reorder buffer has no room is treated as
 * lost. The next request does not wait for it, because acks report no gap. The
 * chunk is answered when it is repeated.
 */
/* RFC 5042 A6.4.3.3 */
static void test_chunk_without_room_is_dropped_and_repeated(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	/* room to keep two packets */
	s.pair.host[1].bufs = SRDMA_MAX_BURST + 5;
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 100));
	arrive(&s, part(&s, 0, 100, 100));
	arrive(&s, piece(&s, 1, 0, 1));
	assert_int_equal(target_stats(&s)->kept, 2);
	arrive(&s, part(&s, 0, 200, 100));
	assert_int_equal(target_stats(&s)->kept, 2);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP), 1);
	assert_int_equal(s.ack.gaps, 0);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 2);
	EXPECT_POSITION(&s, 2, 0);
	arrive(&s, part(&s, 0, 200, 100));
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 3);
	scene_close(&s);
}

struct dma_hook {
	/* must be first: the wire's hook gets this context */
	struct scene scene;
	int fails;
};

static int dma(void *ctx, const struct srdma_dma *d, int is_write)
{
	const struct dma_hook *h = ctx;

	(void)d;
	return h->fails && !is_write ? -EFAULT : 0;
}

/*
 * If DMA fails for a repeated response, the slot is freed and the QP stays
 * open.
 */
static void test_dma_failure_of_repeated_read_keeps_qp(void **state)
{
	for (uint32_t slow = 0; slow < 6; slow += 5) {
		struct dma_hook h = { .fails = 0 };
		struct scene *s = &h.scene;

		(void)state;
		scene_begin(s);
		s->pair.reads = 1;
		s->pair.host[1].ctx = &h;
		s->pair.host[1].dma = dma;
		s->pair.host[1].dma_polls = slow;
		scene_open(s, 1);
		arrive(s, part(s, 0, 0, 9000));
		pair_settle(&s->pair);
		assert_int_equal(s->answers, 3);
		h.fails = 1;
		arrive(s, part(s, 0, 0, 9000));
		pair_settle(&s->pair);
		assert_int_equal(s->answers, 3);
		assert_int_equal(
			srdma_qp_responder(qp_at(s, 1, 0))->slots_count, 0);
		h.fails = 0;
		arrive(s, part(s, 0, 0, 9000));
		pair_settle(&s->pair);
		assert_int_equal(s->answers, 6);
		h.fails = 1; /* a DMA failure of a first response is an error */
		arrive(s, part(s, 1, 0, 9000));
		pair_settle(&s->pair);
		assert_int_equal(reason_of(s, 0), SRDMA_REASON_TARGET_DMA);
		scene_close(s);
	}
}

/* --- final NAK or CLOSE --------------------------------------------------- */

static void wait_ns(struct scene *s, uint64_t ns)
{
	s->pair.now += ns;
	pair_run(&s->pair, 1);
}

/*
 * A lost NAK is repeated at most once per millisecond, without other effects.
 */
static void test_lost_nak_is_repeated(void **state)
{
	struct srdma_packet bad;
	uint64_t verified;
	struct scene s;
	uint32_t why;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	s.deaf = 1;
	bad = piece(&s, 0, 0, 1);
	bad.rkey ^= 1;
	arrive(&s, bad);
	assert_int_equal(s.naks, 1);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_BAD_RKEY);
	verified = target_stats(&s)->packets_verified;
	for (uint64_t id = 1; id < 6; id++)
		arrive(&s, piece(&s, id, 0, 1));
	assert_int_equal(s.naks, 1);
	for (unsigned n = 2; n < 5; n++) {
		wait_ns(&s, MS);
		for (uint64_t id = 0; id < 5; id++)
			arrive(&s, piece(&s, id, 0, 1));
		assert_int_equal(s.naks, n);
		EXPECT_POSITION(&s, 0, 0);
		assert_int_equal(s.ack.reason, SRDMA_REASON_BAD_RKEY);
	}
	assert_int_equal(target_stats(&s)->packets_verified, verified + 20);
	assert_int_equal(target_stats(&s)->naks_sent, 4);
	assert_int_equal(target_stats(&s)->kept, 0);
	assert_int_equal(target_stats(&s)->dma_written_bytes, 0);
	scene_at_rest(&s);
	/* the NAK reaches the peer */
	s.deaf = 0;
	wait_ns(&s, MS);
	arrive(&s, piece(&s, 0, 0, 1));
	pair_settle(&s.pair);
	assert_int_equal(pair_state(&s.pair, 0, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_BAD_RKEY);
	scene_close(&s);
}

/* A packet that fails its tag is counted and gets no NAK. */
/* RFC 5042 R6.1.1-5, A5.1.1c */
static void test_forged_packet_gets_no_nak(void **state)
{
	struct srdma_packet bad;
	uint8_t junk[64] = { SRDMA_OP_SEND_ONLY };
	struct scene s;
	uint32_t qpn;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	s.deaf = 1;
	bad = piece(&s, 0, 0, 1);
	bad.rkey ^= 1;
	arrive(&s, bad);
	qpn = s.pair.side[1].qp[0].qpn;
	junk[2] = junk[3] = 0xff;
	junk[5] = (uint8_t)(qpn >> 16);
	junk[6] = (uint8_t)(qpn >> 8);
	junk[7] = (uint8_t)qpn;
	junk[8] = 0x20;
	junk[9] = (uint8_t)(srdma_session_highest(
				    srdma_qp_session(qp_at(&s, 1, 0))) >>
			    16);
	junk[10] = (uint8_t)(srdma_session_highest(
				     srdma_qp_session(qp_at(&s, 1, 0))) >>
			     8);
	junk[11] = (uint8_t)(srdma_session_highest(
				     srdma_qp_session(qp_at(&s, 1, 0))) +
			     1);
	wait_ns(&s, 2 * MS);
	assert_int_equal(srdma_port_mem_inject(srdma_path_conn(qp_at(&s, 1, 0)),
					       junk, sizeof(junk)),
			 0);
	pair_run(&s.pair, 5);
	assert_int_equal(s.naks, 1);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_TAG), 1);
	scene_close(&s);
}

/* A CLOSE is repeated until the QP is destroyed. */
/* review A39 */
static void test_lost_close_is_repeated(void **state)
{
	struct scene s;
	unsigned closes;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	s.deaf = 1;
	srdma_qp_fail(qp_at(&s, 1, 0), SRDMA_REASON_DEADLINE, SRDMA_OLDEST, 1);
	pair_run(&s.pair, 3);
	assert_int_equal(s.closes, 1);
	wait_ns(&s, MS);
	arrive(&s, piece(&s, 0, 0, 1));
	assert_int_equal(s.closes, 2);
	assert_int_equal(s.ack.reason, SRDMA_REASON_DEADLINE);
	assert_int_equal(bytes_there(&s, 0, 0, PIECE), 0);
	/* repetition does not delay the destruction of the QP */
	for (int n = 0;
	     srdma_relay_qp_destroy(s.pair.side[1].relay, s.pair.side[1].leg,
				    s.pair.side[1].qp[0].qpn);
	     n++) {
		assert_true(n < 10);
		wait_ns(&s, MS);
	}
	closes = s.closes;
	wait_ns(&s, MS);
	pair_settle(&s.pair);
	assert_int_equal(s.closes, closes);
	scene_close(&s);
}

static struct srdma_packet words(enum srdma_ack_kind kind)
{
	return (struct srdma_packet){
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.ack = { .kind = (uint8_t)kind,
			 .reason = kind == SRDMA_ACK_NAK
					   ? SRDMA_REASON_MALFORMED
					   : SRDMA_REASON_PEER_CLOSED }
	};
}

/*
 * Two QPs that both failed by themselves do not exchange CLOSEs without a
 * limit. A QP that its peer ended sends no CLOSE.
 */
static void test_two_failed_qps_stop_closing(void **state)
{
	(void)state;
	for (int both = 0; both < 2; both++) {
		struct scene s;
		uint64_t acks;

		scene_begin(&s);
		scene_open(&s, 1);
		acks = srdma_relay_stats(s.pair.side[0].relay)->acks_sent;
		for (int side = !both; side < 2; side++)
			srdma_qp_fail(qp_at(&s, side, 0), SRDMA_REASON_DEADLINE,
				      SRDMA_OLDEST, 1);
		pair_settle(&s.pair);
		for (int i = 0; i < 50; i++)
			wait_ns(&s, MS);
		arrive(&s, words(SRDMA_ACK_CLOSE));
		arrive(&s, words(SRDMA_ACK_NAK));
		assert_int_equal(s.closes, 1);
		assert_int_equal(pair_state(&s.pair, 0, 0, NULL), SRDMA_QP_ERR);
		assert_int_equal(
			srdma_relay_stats(s.pair.side[0].relay)->acks_sent,
			acks + (uint64_t)both);
		scene_close(&s);
	}
}

/* Only the first CLOSE or NAK of the peer counts. */
static void test_repeated_close_counts_once(void **state)
{
	struct srdma_record r;
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	for (int i = 0; i < 3; i++) {
		arrive(&s, words(SRDMA_ACK_CLOSE));
		wait_ns(&s, MS);
	}
	pair_settle(&s.pair);
	assert_int_equal(pair_record(&s.pair, 1, &r), 1);
	assert_int_equal(r.opcode, SRDMA_WC_QP_EVENT);
	pair_expect_none(&s.pair, 1);
	assert_int_equal(target_stats(&s)->reason[SRDMA_REASON_PEER_CLOSED], 1);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_QP_STATE), 2);
	assert_int_equal(s.closes + s.naks, 0);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_repeated_read_is_answered_again),
		cmocka_unit_test(test_malformed_repeated_read_is_dropped),
		cmocka_unit_test(test_empty_read_may_be_repeated),
		cmocka_unit_test(
			test_repeated_read_is_dropped_while_its_slot_is_busy),
		cmocka_unit_test(
			test_repeated_read_of_sent_bytes_gets_new_slot),
		cmocka_unit_test(test_no_free_slot_new_read_waits),
		cmocka_unit_test(test_one_slot_is_reserved_for_repetitions),
		cmocka_unit_test(test_request_waits_behind_waiting_chunk),
		cmocka_unit_test(test_request_waits_behind_two_waiting_chunks),
		cmocka_unit_test(
			test_chunk_without_room_is_dropped_and_repeated),
		cmocka_unit_test(test_dma_failure_of_repeated_read_keeps_qp),
		cmocka_unit_test(test_lost_nak_is_repeated),
		cmocka_unit_test(test_forged_packet_gets_no_nak),
		cmocka_unit_test(test_lost_close_is_repeated),
		cmocka_unit_test(test_two_failed_qps_stop_closing),
		cmocka_unit_test(test_repeated_close_counts_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
