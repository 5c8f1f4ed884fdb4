/*
 * Reordering: requests that arrive out of order are kept, reported as gaps, and
 * executed once (docs/protocol.md 5.2).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/arriving.h"
#include "session/session_state.h"

static uint64_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * UINT64_C(6364136223846793005) +
	       UINT64_C(1442695040888963407);
	return (uint32_t)((seed >> 32) * n >> 32);
}

static void shuffle(uint32_t *of, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		of[i] = i;
	for (uint32_t i = n - 1; i > 0; i--) {
		uint32_t j = below(i + 1), kept = of[i];

		of[i] = of[j];
		of[j] = kept;
	}
}

/* --- reorder buffer ------------------------------------------------------- */

/* Packets in the reorder buffer of QP 0 of side 1. */
static uint32_t kept_of(struct scene *s)
{
	return srdma_qp_responder(qp_at(s, 1, 0))->reorder.share.count;
}

/*
 * 512 segments arrive in random order before the first: all are kept and none
 * is sent again.
 */
static void test_segments_before_first_are_kept(void **state)
{
	enum { N = SRDMA_REORDER_MAX + 1 };
	uint32_t order[N - 1];
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.host[1].bufs = 2048;
	scene_open(&s, 1);
	seed = 7;
	shuffle(order, N - 1);
	for (uint32_t i = 0; i < N - 1; i++)
		arrive(&s, piece(&s, 0, 1 + order[i], N));
	assert_int_equal(target_stats(&s)->kept, N - 1);
	assert_int_equal(bytes_there(&s, 0, 0, N * PIECE), 0);
	EXPECT_POSITION(&s, 0, 0);
	assert_int_equal(s.ack.gaps, 1);
	EXPECT_GAP(&s, 0, 0, 0, PIECE);
	arrive(&s, piece(&s, 0, 0, N));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 1, 0);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(bytes_there(&s, 0, 0, N * PIECE), N * PIECE);
	assert_int_equal(target_stats(&s)->dma_written_bytes, N * PIECE);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP), 0);
	scene_close(&s);
}

/* The number of packets of a message that arrived without a gap before them. */
static uint32_t whole_packets(const uint8_t *arrived, uint32_t n)
{
	uint32_t k = 0;

	while (k < n && arrived[k])
		k++;
	return k;
}

/* One WRITE of n packets, in a random order. */
static void write_in_any_order(struct scene *s, uint64_t id, uint32_t n)
{
	uint8_t arrived[8] = { 0 };
	uint32_t order[8];

	shuffle(order, n);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t size = n * PIECE;
		uint32_t whole;

		arrive(s, piece(s, id, order[i], n));
		pair_settle(&s->pair);
		arrived[order[i]] = 1;
		whole = whole_packets(arrived, n);
		assert_int_equal(bytes_there(s, id, 0, size), whole * PIECE);
		assert_int_equal(bytes_there(s, id, size - 1, size),
				 whole == n);
	}
}

/*
 * A program that sees the last byte of a WRITE sees it after all packets of the
 * WRITE were verified: what is placed is a prefix at any time (A40).
 */
/* review A40 */
static void test_last_byte_is_placed_last(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	seed = 9;
	for (uint64_t id = 0; id < 100; id++) {
		memset(s.pair.side[1].memory + place_of(id), 0, 8 * PIECE);
		write_in_any_order(&s, id, 1 + below(8));
	}
	scene_close(&s);
}

/*
 * Segments without room are dropped and reported as a gap that extends to the
 * end of the message.
 */
static void test_segments_without_room_are_reported_missing(void **state)
{
	enum { N = 600, KEPT = SRDMA_REORDER_MAX };
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.host[1].bufs = 2048;
	scene_open(&s, 1);
	for (uint32_t k = 1; k < N; k++)
		arrive(&s, piece(&s, 0, k, N));
	assert_int_equal(target_stats(&s)->kept, KEPT);
	assert_int_equal(pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP),
			 N - 1 - KEPT);
	assert_int_equal(s.ack.gaps, 2);
	EXPECT_GAP(&s, 0, 0, 0, PIECE);
	/* the last segment ends the message */
	EXPECT_GAP(&s, 1, 0, (KEPT + 1) * PIECE, SRDMA_GAP_IDS + 1);
	arrive(&s, piece(&s, 0, 0, N));
	EXPECT_POSITION(&s, 0, (KEPT + 1) * PIECE);
	assert_int_equal(s.ack.gaps, 1);
	for (uint32_t k = N - 1; k > KEPT; k--)
		arrive(&s, piece(&s, 0, k, N));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 1, 0);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(bytes_there(&s, 0, 0, N * PIECE), N * PIECE);
	scene_close(&s);
}

/* More gaps than one ack holds: a few acks report all of them. */
static void test_many_gaps_take_several_acks(void **state)
{
	enum { N = 40 };
	uint8_t told[N] = { 0 };
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	for (uint32_t k = 1; k < N; k += 2)
		arrive(&s, piece(&s, 0, k, N));
	for (int n = 0; n < 6; n++) {
		arrive(&s, piece(&s, 0, 1, N));
		assert_true(s.ack.gaps > 0 && s.ack.gaps <= SRDMA_MAX_GAPS);
		for (uint32_t g = 0; g < s.ack.gaps; g++) {
			uint32_t k = s.ack.gap[g].offset / PIECE;

			EXPECT_GAP(&s, g, 0, k * PIECE, PIECE);
			assert_int_equal(k % 2, 0);
			told[k] = 1;
		}
		assert_int_equal(s.ack.skips, s.ack.gap[0].offset > 0);
	}
	for (uint32_t k = 0; k < N; k += 2)
		assert_true(told[k]);
	for (uint32_t k = 0; k < N; k += 2)
		arrive(&s, piece(&s, 0, k, N));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 1, 0);
	assert_int_equal(s.ack.gaps, 0);
	assert_int_equal(bytes_there(&s, 0, 0, N * PIECE), N * PIECE);
	scene_close(&s);
}

/* A kept packet and its duplicate each cause an ack. */
static void test_kept_packet_causes_ack(void **state)
{
	static const uint32_t pieces[] = { 2, 3, 4, 6, 1, 1, 7, 8, 5 };
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	s.acks = 0;
	for (unsigned i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		arrive(&s, piece(&s, 0, pieces[i], 20));
		assert_int_equal(s.acks, i + 1);
	}
	assert_int_equal(target_stats(&s)->duplicates, 1);
	srdma_reorder_drop(&srdma_qp_responder(qp_at(&s, 1, 0))->reorder);
	scene_close(&s);
}

/*
 * A lost last packet is reported as a gap once a higher packet number has
 * arrived.
 */
static void test_lost_last_packet_is_reported(void **state)
{
	struct srdma_packet ping = { .opcode = SRDMA_OP_ACKNOWLEDGE,
				     .flags = SRDMA_STH_ACK_NOW,
				     .ack = { .kind = SRDMA_ACK_PING } };
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	arrive(&s, piece(&s, 0, 0, 3));
	arrive(&s, ping);
	assert_int_equal(s.ack.gaps, 0); /* all packet numbers arrived */
	/* Skip one packet number, as if segment 1 was lost. */
	srdma_qp_session(qp_at(&s, 0, 0))->tx_pn++;
	arrive(&s, ping);
	EXPECT_POSITION(&s, 0, PIECE);
	assert_int_equal(s.ack.gaps, 1);
	EXPECT_GAP(&s, 0, 0, PIECE, SRDMA_GAP_IDS + SRDMA_REQUEST_CREDIT);
	arrive(&s, piece(&s, 0, 1, 3));
	arrive(&s, ping);
	EXPECT_POSITION(&s, 0, 2 * PIECE);
	assert_int_equal(s.ack.gaps, 0);
	scene_close(&s);
}

/* --- duplicates ----------------------------------------------------------- */

/*
 * A request that was executed is not executed again, nor is its kept duplicate.
 */
/* review A15 */
static void test_duplicates_are_not_executed(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .length = PIECE };
	struct srdma_packet other;
	struct srdma_record r;
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	recv.local_addr = (uintptr_t)s.pair.side[1].memory + PAIR_MEMORY / 2;
	for (recv.id = 1; recv.id < 4; recv.id++)
		pair_post(&s.pair, 1, recv, NULL);
	/* The duplicate is still kept when the request has been executed. */
	arrive(&s, message(1, 10));
	arrive(&s, message(1, 10));
	arrive(&s, piece(&s, 0, 0, 1));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 2, 0);
	memset(s.pair.side[1].memory + place_of(0), 0, PIECE);
	arrive(&s, piece(&s, 0, 0, 1));
	arrive(&s, message(1, 10));
	pair_settle(&s.pair);
	assert_int_equal(bytes_there(&s, 0, 0, PIECE), 0);
	assert_int_equal(pair_record(&s.pair, 1, &r), 1);
	assert_int_equal(r.byte_len, 10);
	pair_expect_none(&s.pair, 1);
	assert_int_equal(target_stats(&s)->duplicates, 3);
	/*
	 * No duplicate of the kept segment: it overlaps it and has more bytes.
	 */
	arrive(&s, piece(&s, 2, 1, 3));
	other = piece(&s, 2, 0, 3);
	other.payload_len = PIECE + 10;
	arrive(&s, other);
	pair_settle(&s.pair);
	assert_int_equal(target_stats(&s)->duplicates, 3);
	assert_int_equal(srdma_qp_reason(qp_at(&s, 1, 0)),
			 SRDMA_REASON_MALFORMED);
	scene_close(&s);
}

/* --- every kind of request in random order -------------------------------- */

enum { REQUESTS = 24, ALL_MAX = REQUESTS * 4 };

struct all {
	struct srdma_packet packet[ALL_MAX];
	uint32_t count, receives;
	/* 0 WRITE, 1 WRITE with immediate, 2 SEND, 3 READ */
	uint8_t kind[REQUESTS];
	uint32_t pieces[REQUESTS];
};

static void make_all(struct all *a, const struct scene *s)
{
	memset(a, 0, sizeof(*a));
	for (uint64_t id = 0; id < REQUESTS; id++) {
		uint32_t n = a->pieces[id] = 1 + below(4);

		a->kind[id] = (uint8_t)below(4);
		a->receives += a->kind[id] == 1 || a->kind[id] == 2;
		for (uint32_t k = 0; k < n; k++) {
			struct srdma_packet *p = &a->packet[a->count++];

			*p = piece(s, id, k, n);
			p->imm = (uint32_t)id;
			if (a->kind[id] == 1 && k == n - 1)
				p->opcode++; /* to the opcode with immediate */
			if (a->kind[id] == 2)
				p->opcode = (uint8_t)(p->opcode -
						      SRDMA_OP_WRITE_FIRST +
						      SRDMA_OP_SEND_FIRST);
			if (a->kind[id] == 3)
				*p = part(s, id, k * PIECE, PIECE);
		}
	}
}

static void post_receives(struct scene *s, const struct all *a)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .length = 4 * PIECE };

	for (recv.id = 0; recv.id < a->receives; recv.id++) {
		recv.local_addr = (uintptr_t)s->pair.side[1].memory +
				  PAIR_MEMORY / 2 + recv.id * PLACE;
		pair_post(&s->pair, 1, recv, NULL);
	}
	pair_settle(&s->pair);
}

/* Expects each RECV once, in order, with the bytes of its message. */
static void check_receives(struct scene *s, const struct all *a)
{
	const uint8_t *at = s->pair.side[1].memory + PAIR_MEMORY / 2;
	uint64_t n = 0;

	for (uint64_t id = 0; id < REQUESTS; id++) {
		uint32_t len = a->pieces[id] * PIECE;
		struct srdma_record r;

		if (a->kind[id] == 0)
			assert_int_equal(bytes_there(s, id, 0, len), len);
		if (a->kind[id] != 1 && a->kind[id] != 2)
			continue;
		assert_int_equal(pair_record(&s->pair, 1, &r), 1);
		assert_int_equal(r.id, n);
		assert_int_equal(r.byte_len, len);
		if (a->kind[id] == 1) {
			assert_int_equal(r.imm, id);
			assert_int_equal(bytes_there(s, id, 0, len), len);
		}
		for (uint32_t k = 0; k < len && a->kind[id] == 2; k++)
			assert_int_equal(at[n * PLACE + k], byte_of(id, k));
		n++;
	}
	pair_expect_none(&s->pair, 1);
}

static void test_requests_in_random_order(void **state)
{
	(void)state;
	for (uint64_t life = 1; life <= 60; life++) {
		uint32_t order[ALL_MAX];
		struct scene s;
		struct all a;

		scene_begin(&s);
		s.pair.host[1].dma_polls = life % 3 ? 0 : 5;
		s.pair.host[1].bufs = life % 4 ? 1024 : 80;
		scene_open(&s, 1);
		seed = life;
		make_all(&a, &s);
		post_receives(&s, &a);
		/* Resend random packets until every request is complete. */
		for (int round = 0; round < 200; round++) {
			shuffle(order, a.count);
			for (uint32_t i = 0; i < a.count / 2; i++)
				arrive(&s, a.packet[order[i]]);
			pair_settle(&s.pair);
			if (s.ack.request_id >= REQUESTS - 1 && !s.ack.gaps &&
			    srdma_qp_responder(qp_at(&s, 1, 0))->accepted.id +
					    1 >=
				    REQUESTS &&
			    !kept_of(&s) && round > 20)
				break;
		}
		assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
		check_receives(&s, &a);
		scene_close(&s);
	}
}

/* --- access check at execution -------------------------------------------- */

/*
 * A kept SEND consumes a RECV that is posted later, or is refused for lack of
 * one.
 */
/* RFC 5042 R2.3.5-1 */
static void test_kept_send_needs_recv_at_execution(void **state)
{
	(void)state;
	for (int posted = 0; posted < 2; posted++) {
		struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
					   .id = 9,
					   .length = 100 };
		struct scene s;

		scene_begin(&s);
		scene_open(&s, 1);
		recv.local_addr =
			(uintptr_t)s.pair.side[1].memory + PAIR_MEMORY / 2;
		arrive(&s, message(1, 10));
		assert_int_equal(target_stats(&s)->kept, 1);
		if (posted)
			pair_post(&s.pair, 1, recv, NULL);
		pair_settle(&s.pair);
		pair_expect_none(&s.pair, 1);
		arrive(&s, piece(&s, 0, 0, 1));
		pair_settle(&s.pair);
		assert_int_equal(reason_of(&s, 0),
				 posted ? SRDMA_REASON_NONE
					: SRDMA_REASON_NO_RECV);
		if (posted)
			pair_expect(&s.pair, 1, 9, SRDMA_REASON_NONE);
		assert_int_equal(bytes_there(&s, 0, 0, PIECE), PIECE);
		scene_close(&s);
	}
}

/* Kept packets for a region that is deregistered meanwhile are refused. */
static void test_deregistered_region_refuses_kept_packets(void **state)
{
	struct scene s;
	struct side *target = &s.pair.side[1];

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	arrive(&s, piece(&s, 1, 0, 1));
	arrive(&s, piece(&s, 2, 0, 1));
	assert_int_equal(
		srdma_relay_mr_dereg(target->relay, target->leg, target->key),
		0);
	arrive(&s, (struct srdma_packet){ .opcode = SRDMA_OP_WRITE_ONLY });
	pair_settle(&s.pair);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_BAD_RKEY);
	EXPECT_POSITION(&s, 1, 0);
	assert_int_equal(s.naks, 1);
	assert_int_equal(bytes_there(&s, 1, 0, PIECE), 0);
	scene_close(&s);
}

/* Execution stops at a refused packet: later packets are not executed. */
static void test_refusal_drops_later_kept_packets(void **state)
{
	struct srdma_packet bad;
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.host[1].dma_polls = 5;
	scene_open(&s, 1);
	bad = piece(&s, 3, 0, 1);
	bad.opcode = SRDMA_OP_WRITE_MIDDLE;
	for (uint64_t id = 5; id > 0; id--)
		arrive(&s, id == 3 ? bad : piece(&s, id, 0, 1));
	assert_int_equal(target_stats(&s)->kept, 5);
	arrive(&s, piece(&s, 0, 0, 1));
	/* The NAK waits for DMA; the later packets are dropped at once. */
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	assert_int_equal(kept_of(&s), 0);
	pair_settle(&s.pair);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_MALFORMED);
	assert_int_equal(s.naks, 1);
	EXPECT_POSITION(&s, 3, 0);
	assert_int_equal(s.ack.gaps, 0);
	for (uint64_t id = 0; id < 6; id++)
		assert_int_equal(bytes_there(&s, id, 0, PIECE),
				 id < 3 ? PIECE : 0);
	scene_close(&s);
}

/* --- ends of a QP --------------------------------------------------------- */

static void by_close(struct scene *s)
{
	put_on(s, 0,
	       (struct srdma_packet){
		       .opcode = SRDMA_OP_ACKNOWLEDGE,
		       .ack = { .kind = SRDMA_ACK_CLOSE,
				.reason = SRDMA_REASON_PEER_CLOSED } });
}

static void by_nak(struct scene *s)
{
	put_on(s, 0,
	       (struct srdma_packet){
		       .opcode = SRDMA_OP_ACKNOWLEDGE,
		       .ack = { .kind = SRDMA_ACK_NAK,
				.reason = SRDMA_REASON_MALFORMED } });
}

static void by_destroy(struct scene *s)
{
	pair_destroy_qp(&s->pair, 0);
}

static void by_leg_close(struct scene *s)
{
	srdma_relay_leg_close(s->pair.side[1].leg);
}

static void by_host(struct scene *s)
{
	srdma_port_mem_kill(s->pair.side[1].conn);
}

static enum srdma_mem_call nobody(void *ctx, int side)
{
	(void)ctx;
	(void)side;
	return SRDMA_MEM_IMPOSSIBLE;
}

static void by_cut(struct scene *s)
{
	s->pair.wire.call = nobody;
	srdma_port_mem_cut(srdma_path_conn(qp_at(s, 1, 0)));
	pair_wait_ms(&s->pair, 15000);
}

static void by_refusal(struct scene *s)
{
	struct srdma_packet p = piece(s, 0, 0, 1);

	p.rkey ^= 1;
	put_on(s, 0, p);
}

/*
 * However the QP ends, it returns the buffers of kept packets and executes none
 * of them.
 */
static void test_every_end_frees_kept_packets(void **state)
{
	static void (*const ends[])(struct scene * s) = {
		by_close, by_nak, by_destroy, by_leg_close,
		by_host,  by_cut, by_refusal,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		struct scene s;

		scene_begin(&s);
		scene_open(&s, 1);
		for (uint64_t id = 1; id < 20; id++)
			arrive(&s, piece(&s, id, 0, 1));
		assert_int_equal(target_stats(&s)->kept, 19);
		ends[i](&s);
		pair_settle(&s.pair);
		scene_at_rest(&s);
		for (uint64_t id = 0; id < 20; id++)
			assert_int_equal(bytes_there(&s, id, 0, PIECE), 0);
		pair_close(&s.pair);
	}
}

/*
 * If the peer does not fill a gap, kept packets are dropped after a while and
 * reported as missing again. Its PINGs do not prolong that time.
 */
/* RFC 5042 R6.4.3.1-3, A6.4.3.1b */
static void test_unfilled_gap_loses_kept_packets(void **state)
{
	struct srdma_packet ping = { .opcode = SRDMA_OP_ACKNOWLEDGE,
				     .flags = SRDMA_STH_ACK_NOW,
				     .ack = { .kind = SRDMA_ACK_PING } };
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	for (uint64_t id = 1; id < 9; id++)
		arrive(&s, piece(&s, id, 0, 1));
	pair_wait_ms(&s.pair, 10000);
	arrive(&s, ping);
	EXPECT_GAP(&s, 0, 0, 0, SRDMA_GAP_IDS + 1);
	pair_wait_ms(&s.pair, 4000);
	arrive(&s, ping);
	assert_int_equal(kept_of(&s), 8);
	for (int i = 0; i < 2; i++)
		pair_wait_ms(&s.pair, 1000);
	scene_at_rest(&s);
	arrive(&s, ping);
	assert_int_equal(s.ack.gaps, 1);
	EXPECT_GAP(&s, 0, 0, 0, SRDMA_GAP_IDS + 9);
	for (uint64_t id = 0; id < 9; id++)
		arrive(&s, piece(&s, id, 0, 1));
	pair_settle(&s.pair);
	EXPECT_POSITION(&s, 9, 0);
	scene_close(&s);
}

/* --- limits --------------------------------------------------------------- */

static void post(struct scene *s, int i, uint8_t opcode, uint32_t len)
{
	struct srdma_desc d = {
		.opcode = opcode,
		.id = 1,
		.qpn = s->pair.side[0].qp[i].qpn,
		.length = len,
		.local_addr = (uintptr_t)s->pair.side[0].memory,
		.remote_addr =
			(uintptr_t)s->pair.side[1].memory + PAIR_MEMORY / 2,
	};

	pair_post(&s->pair, 0, d, NULL);
}

/*
 * Peers that leave gaps on all QPs but one occupy at most half of the buffers:
 * the last QP works in both directions.
 */
/* RFC 5042 R6.4.3.1-1 */
static void test_gaps_leave_buffers_to_other_qps(void **state)
{
	static const uint32_t bufs[] = { 66, 70, 80, 256, 1024 };

	(void)state;
	for (size_t row = 0; row < sizeof(bufs) / sizeof(*bufs); row++) {
		struct scene s;

		scene_begin(&s);
		s.pair.host[1].bufs = bufs[row];
		scene_open(&s, PAIR_QPS);
		for (uint64_t id = 1; id < 200; id++)
			for (int i = 0; i < PAIR_QPS - 1; i++) {
				put_on(&s, i, piece(&s, id, 0, 1));
				pair_run(&s.pair, 1);
			}
		assert_true(buffers(&s) >=
			    (int)(SRDMA_MAX_BURST +
				  (bufs[row] - SRDMA_MAX_BURST) / 2));
		assert_int_equal(
			target_stats(&s)->kept +
				pair_refused(&s.pair, 1, SRDMA_REFUSED_GAP),
			199 * (PAIR_QPS - 1));
		post(&s, PAIR_QPS - 1, SRDMA_DESC_WRITE, 1 << 20);
		post(&s, PAIR_QPS - 1, SRDMA_DESC_READ, 1 << 20);
		pair_settle(&s.pair);
		pair_expect(&s.pair, 0, 1, SRDMA_REASON_NONE);
		pair_expect(&s.pair, 0, 1, SRDMA_REASON_NONE);
		/* The other QPs continue when their gap closes. */
		for (int i = 0; i < PAIR_QPS - 1; i++)
			put_on(&s, i, piece(&s, 0, 0, 1));
		pair_settle(&s.pair);
		for (int i = 0; i < PAIR_QPS - 1; i++)
			assert_int_equal(reason_of(&s, i), SRDMA_REASON_NONE);
		scene_close(&s);
	}
}

/*
 * With few free ops and slow DMA, kept packets wait for an op and are executed.
 */
static void test_kept_packets_wait_for_ops(void **state)
{
	enum { N = 100 };

	(void)state;
	for (uint32_t ops = 1; ops < 8; ops += 3) {
		struct srdma_op_pool *pool;
		uint32_t taken;
		struct scene s;

		scene_begin(&s);
		s.pair.host[1].dma_polls = 3;
		scene_open(&s, 1);
		pool = &s.pair.side[1].relay->env.ops;
		taken = pool->left - ops;
		for (uint64_t id = 1; id < N; id++)
			arrive(&s, piece(&s, id, 0, 1));
		assert_int_equal(target_stats(&s)->kept, N - 1);
		pool->left -= taken;
		arrive(&s, piece(&s, 0, 0, 1));
		assert_int_equal(pool->left, 0);
		put_on(&s, 0, piece(&s, N, 0, 1)); /* behind all kept packets */
		by_close(&s);
		pair_settle(&s.pair);
		pool->left += taken;
		for (uint64_t id = 0; id <= N; id++)
			assert_int_equal(bytes_there(&s, id, 0, PIECE), PIECE);
		assert_int_equal(reason_of(&s, 0), SRDMA_REASON_PEER_CLOSED);
		scene_close(&s);
	}
}

/* A CLOSE of the peer takes effect after kept packets that wait for an op. */
static void test_close_waits_for_kept_packets(void **state)
{
	struct srdma_op_pool *pool;
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.host[1].dma_polls = 3;
	scene_open(&s, 1);
	pool = &s.pair.side[1].relay->env.ops;
	for (uint64_t id = 1; id < 9; id++)
		arrive(&s, piece(&s, id, 0, 1));
	pool->left -= SRDMA_OPS - 1;
	arrive(&s, piece(&s, 0, 0, 1));
	assert_int_equal(kept_of(&s), 8);
	srdma_qp_end(qp_at(&s, 1, 0), SRDMA_REASON_PEER_CLOSED, SRDMA_OLDEST);
	pair_run(&s.pair, 100);
	pool->left += SRDMA_OPS - 1;
	for (uint64_t id = 0; id < 9; id++)
		assert_int_equal(bytes_there(&s, id, 0, PIECE), PIECE);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_PEER_CLOSED);
	scene_close(&s);
}

/*
 * Packets beyond the request credit or the message size are neither kept nor
 * reported as gaps.
 */
/* RFC 5042 A6.4.3.1a */
static void test_packets_beyond_credit_are_not_kept(void **state)
{
	struct srdma_packet p;
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	for (uint64_t id = SRDMA_REQUEST_CREDIT; id < 10000; id += 100)
		arrive(&s, piece(&s, id, 0, 1));
	p = piece(&s, 2, 1, 3);
	p.offset = SRDMA_MAX_MESSAGE + 1;
	arrive(&s, p);
	p.offset = SRDMA_MAX_MESSAGE - PIECE + 1;
	arrive(&s, p);
	p.offset = UINT32_MAX;
	arrive(&s, p);
	p.opcode = SRDMA_OP_READ_REQUEST;
	p.payload_len = 0;
	p.dma_len = UINT32_MAX;
	p.offset = 10;
	arrive(&s, p);
	assert_int_equal(target_stats(&s)->kept, 0);
	assert_int_equal(s.ack.gaps, 0);
	/* The last request within the credit is kept. */
	arrive(&s, piece(&s, SRDMA_REQUEST_CREDIT - 1, 0, 1));
	assert_int_equal(target_stats(&s)->kept, 1);
	assert_int_equal(s.ack.gaps, 1);
	EXPECT_GAP(&s, 0, 0, 0, SRDMA_GAP_IDS + SRDMA_REQUEST_CREDIT - 1);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_NONE);
	post(&s, 0, SRDMA_DESC_WRITE, 20000);
	pair_settle(&s.pair);
	by_close(&s);
	pair_settle(&s.pair);
	scene_close(&s);
}

/* After a request was refused, a legal packet in its place is not executed. */
static void test_nothing_is_executed_after_refusal(void **state)
{
	struct srdma_packet bad;
	struct scene s;

	(void)state;
	scene_begin(&s);
	scene_open(&s, 1);
	bad = piece(&s, 0, 0, 1);
	bad.rkey ^= 1;
	put_on(&s, 0, bad);
	arrive(&s, piece(&s, 0, 0, 1)); /* in the same turn */
	pair_settle(&s.pair);
	assert_int_equal(reason_of(&s, 0), SRDMA_REASON_BAD_RKEY);
	assert_int_equal(bytes_there(&s, 0, 0, PIECE), 0);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments_before_first_are_kept),
		cmocka_unit_test(test_last_byte_is_placed_last),
		cmocka_unit_test(
			test_segments_without_room_are_reported_missing),
		cmocka_unit_test(test_many_gaps_take_several_acks),
		cmocka_unit_test(test_kept_packet_causes_ack),
		cmocka_unit_test(test_lost_last_packet_is_reported),
		cmocka_unit_test(test_duplicates_are_not_executed),
		cmocka_unit_test(test_requests_in_random_order),
		cmocka_unit_test(test_kept_send_needs_recv_at_execution),
		cmocka_unit_test(test_deregistered_region_refuses_kept_packets),
		cmocka_unit_test(test_refusal_drops_later_kept_packets),
		cmocka_unit_test(test_nothing_is_executed_after_refusal),
		cmocka_unit_test(test_every_end_frees_kept_packets),
		cmocka_unit_test(test_unfilled_gap_loses_kept_packets),
		cmocka_unit_test(test_gaps_leave_buffers_to_other_qps),
		cmocka_unit_test(test_kept_packets_wait_for_ops),
		cmocka_unit_test(test_close_waits_for_kept_packets),
		cmocka_unit_test(test_packets_beyond_credit_are_not_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
