/*
 * What is said again: answers to READs that were asked again (docs/protocol.md
 * 5.3), and the last words of a QP in error (5.4).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "arriving.h"

enum { MS = 1000000 };

/* --- READs ------------------------------------------------------------------- */

/* Answered as often as it is asked, each time under full authorization. */
static void test_asked_again(void **state)
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
	arrive(&s, part(&s, 0, 4096, 4096)); /* a part of it */
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 4);
	arrive(&s, piece(&s, 1, 0, 1)); /* the READ was over */
	arrive(&s, part(&s, 0, 0, 9000));
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 7);
	EXPECT_POSITION(&s, 2, 0);
	assert_int_equal(target_stats(&s)->duplicates, 2);
	/* What is not allowed any more is not answered, and is no error. */
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

/* What no honest initiator asks for again is dropped. */
static void test_wrong_when_asked_again(void **state)
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
	rows[2].va -= SRDMA_MAX_MESSAGE + 1; /* it would lie in the region */
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

/* A READ of nothing ends with its one part, and may be asked for again. */
static void test_empty_read(void **state)
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

/* DMA takes so long that slots stay taken. */
static void begin_slow(struct scene *s, uint32_t reads)
{
	scene_begin(s);
	s->pair.reads = reads;
	s->pair.host[1].dma_polls = 50;
}

/* While a slot has its bytes, it is not answered twice. */
static void test_on_its_way(void **state)
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
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 2);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 3);
	assert_int_equal(target_stats(&s)->duplicates, 11);
	scene_close(&s);
}

/* No room on the wire behind the first answer. */
static int full(void *ctx, int side)
{
	const struct scene *s = ctx;

	return side == 1 && s->answers == 1;
}

/* What a slot has answered already is not on its way any more. */
static void test_half_answered(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.wire.full = full;
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 9000));
	pair_run(&s.pair, 10);
	assert_int_equal(s.answers, 1);
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 1);
	arrive(&s, part(&s, 0, 4096, 10));
	arrive(&s, part(&s, 0, 4000, 97));
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 1);
	arrive(&s, part(&s, 0, 4000, 96));
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 2);
	s.pair.wire.full = NULL;
	pair_settle(&s.pair);
	assert_int_equal(s.answers, 4);
	scene_close(&s);
}

/* No slot is free: what comes the first time waits, what is asked again is
 * dropped. Neither is an error. */
static void test_no_slot(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	scene_open(&s, 1);
	arrive(&s, part(&s, 0, 0, 100));
	arrive(&s, part(&s, 1, 0, 100));
	arrive(&s, part(&s, 1, 0, 100)); /* twice */
	arrive(&s, part(&s, 2, 0, 100));
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP), 0);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(target_stats(&s)->kept, 2);
	arrive(&s, part(&s, 0, 0, 100));
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 1);
	assert_int_equal(qp_at(&s, 1, 0)->beyond.count, 2);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 3);
	EXPECT_POSITION(&s, 2, 100);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	scene_close(&s);
}

/* One slot in four is for what is asked again. */
static void test_spare_slot(void **state)
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
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 3);
	assert_int_equal(qp_at(&s, 1, 0)->beyond.count, 2);
	arrive(&s, part(&s, 0, 0, 100));
	assert_int_equal(qp_at(&s, 1, 0)->slots_count, 4);
	pair_run(&s.pair, 300);
	assert_int_equal(s.answers, 7);
	scene_close(&s);
}

/* A part waits for a slot: the request behind its READ, which could follow the
 * part before it, waits too. */
static void test_part_waits(void **state)
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

/* The same while two parts wait: the second one does so behind the first. */
static void test_parts_wait(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	scene_open(&s, 1);
	for (uint32_t at = 0; at < 300; at += 100)
		arrive(&s, part(&s, 0, at, 100));
	assert_int_equal(target_stats(&s)->kept, 2);
	while (qp_at(&s, 1, 0)->rx_offset < 200)
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

/* A part that comes while there is no room behind the one that waits is as good
 * as lost: the request behind its READ does not wait for it, as acks say that
 * nothing is missing, and it is answered when it is asked again. */
static void test_part_dropped(void **state)
{
	struct scene s;

	(void)state;
	begin_slow(&s, 1);
	s.pair.host[1].bufs = SRDMA_MAX_BURST + 5; /* two are kept */
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
	struct scene scene; /* first: the wire's hook has this context */
	int fails;
};

static int dma(void *ctx, const struct srdma_dma *d, int is_write)
{
	const struct dma_hook *h = ctx;

	(void)d;
	return h->fails && !is_write ? -EFAULT : 0;
}

/* Memory that fails an answer given again: it was right once. The slot is
 * free again, the QP stands. */
static void test_memory_fails_the_second_time(void **state)
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
		assert_int_equal(qp_at(s, 1, 0)->slots_count, 0);
		h.fails = 0;
		arrive(s, part(s, 0, 0, 9000));
		pair_settle(&s->pair);
		assert_int_equal(s->answers, 6);
		h.fails = 1; /* for the first time it is an error */
		arrive(s, part(s, 1, 0, 9000));
		pair_settle(&s->pair);
		assert_int_equal(reason_of(s, 0), SRDMA_REASON_TARGET_DMA);
		scene_close(s);
	}
}

/* --- last words ----------------------------------------------------------------- */

static void wait_ns(struct scene *s, uint64_t ns)
{
	s->pair.now += ns;
	pair_run(&s->pair, 1);
}

/* A NAK that was lost is said again, at most once in a millisecond; nothing
 * else happens. */
static void test_nak_again(void **state)
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
	/* The peer hears it at last. */
	s.deaf = 0;
	wait_ns(&s, MS);
	arrive(&s, piece(&s, 0, 0, 1));
	pair_settle(&s.pair);
	assert_int_equal(pair_state(&s.pair, 0, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_BAD_RKEY);
	scene_close(&s);
}

/* What fails its tag is answered by nothing, and counted. */
static void test_no_words_to_forgers(void **state)
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
	junk[9] = (uint8_t)(srdma_session_highest(qp_at(&s, 1, 0)->session) >>
			    16);
	junk[10] =
		(uint8_t)(srdma_session_highest(qp_at(&s, 1, 0)->session) >> 8);
	junk[11] =
		(uint8_t)(srdma_session_highest(qp_at(&s, 1, 0)->session) + 1);
	wait_ns(&s, 2 * MS);
	assert_int_equal(srdma_port_mem_inject(qp_at(&s, 1, 0)->wire, junk,
					       sizeof(junk)),
			 0);
	pair_run(&s.pair, 5);
	assert_int_equal(s.naks, 1);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_TAG), 1);
	scene_close(&s);
}

/* A CLOSE is said again, until the QP is destroyed. */
static void test_close_again(void **state)
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
	/* Its own end is not kept waiting by that. */
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

/* Two QPs that ended by themselves do not tell each other for ever; one that
 * ended by its peer's words has none of its own. */
static void test_no_quarrel(void **state)
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

/* The words of the peer count once. */
static void test_end_is_heard_once(void **state)
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
		cmocka_unit_test(test_asked_again),
		cmocka_unit_test(test_wrong_when_asked_again),
		cmocka_unit_test(test_empty_read),
		cmocka_unit_test(test_on_its_way),
		cmocka_unit_test(test_half_answered),
		cmocka_unit_test(test_no_slot),
		cmocka_unit_test(test_spare_slot),
		cmocka_unit_test(test_part_waits),
		cmocka_unit_test(test_parts_wait),
		cmocka_unit_test(test_part_dropped),
		cmocka_unit_test(test_memory_fails_the_second_time),
		cmocka_unit_test(test_nak_again),
		cmocka_unit_test(test_no_words_to_forgers),
		cmocka_unit_test(test_close_again),
		cmocka_unit_test(test_no_quarrel),
		cmocka_unit_test(test_end_is_heard_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
