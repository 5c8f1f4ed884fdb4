/*
 * Flights (unacknowledged packets) and their states after handmade acks
 * (docs/protocol.md 5.1).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "path/rtt_impl.h"
#include "requester/flight.h"

enum { LEN = 100, ROOM = 64 };

#define MS   UINT64_C(1000000)
#define IDS  SRDMA_GAP_IDS
#define LOST SRDMA_FLIGHT_LOST
#define HELD SRDMA_FLIGHT_HELD
#define AWAY SRDMA_FLIGHT_UNDER_WAY

static struct srdma_table_memory memory;

static void create(struct srdma_flights *f, uint32_t size)
{
	srdma_flight_create(f, &memory, size);
	assert_int_equal(srdma_flight_make_room(f, size), 0);
}

/*
 * Adds n flights of LEN bytes, three per request from first_id, with packet
 * numbers from 1000.
 */
static void open_flights(struct srdma_flights *f, uint32_t n, uint64_t first_id)
{
	create(f, ROOM);
	for (uint32_t i = 0; i < n; i++) {
		const struct srdma_flight x = { .id = first_id + i / 3,
						.offset = i % 3 * LEN,
						.len = LEN,
						.pn = 1000 + i,
						.sent = i * MS };

		assert_int_equal(srdma_flight_add(f, &x), i);
	}
}

static void expect_states(const struct srdma_flights *f, const uint8_t *states,
			  uint32_t n)
{
	assert_int_equal(f->count, n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(srdma_flight_at(f, f->first + i)->state,
				 states[i]);
}

static struct srdma_position at(uint64_t id, uint64_t offset)
{
	return (struct srdma_position){ id, offset };
}

static struct srdma_flight_ack word(uint64_t id, uint32_t offset,
				    uint64_t highest)
{
	return (struct srdma_flight_ack){ .pn = 1,
					  .position = { id, offset },
					  .highest = highest,
					  .ordered = 1 };
}

static void test_ack_position_removes_flights(void **state)
{
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 9, 5);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, 0)), 0);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, LEN - 1)), 0);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, LEN)), 1);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, LEN)), 0);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, 3 * LEN)), 2);
	assert_int_equal(srdma_flight_acknowledge(&f, at(3, 9)), 0); /* stale */
	assert_int_equal(srdma_flight_acknowledge(&f, at(7, 0)), 3);
	assert_null(srdma_flight_at(&f, 5));
	assert_int_equal(srdma_flight_at(&f, 6)->id, 7);
	assert_null(srdma_flight_at(&f, 9));
	assert_int_equal(
		srdma_flight_acknowledge(&f, at(UINT64_MAX, UINT32_MAX)), 3);
	assert_int_equal(
		srdma_flight_acknowledge(&f, at(UINT64_MAX, UINT32_MAX)), 0);
	srdma_flight_destroy(&f);
}

/*
 * An empty packet is acknowledged when the position reaches the next request.
 */
static void test_empty_packet_needs_next_position(void **state)
{
	const struct srdma_flight x = { .id = 4, .pn = 10 };
	const struct srdma_gap gap = { 4, 0, IDS + 1 };
	struct srdma_flight_ack w = word(4, 0, 10);
	struct srdma_flights f;

	(void)state;
	create(&f, 2);
	srdma_flight_add(&f, &x);
	assert_int_equal(srdma_flight_acknowledge(&f, at(4, 0)), 0);
	w.gap = &gap;
	w.gaps = 1;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f, (const uint8_t[]){ LOST }, 1);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, 0)), 1);
	srdma_flight_destroy(&f);
}

/* Gaps of bytes and of request ids, with both ends inside messages. */
static void test_gaps_of_bytes_and_ids(void **state)
{
	static const struct srdma_gap gaps[] = { { 5, LEN, LEN },
						 { 6, 2 * LEN, IDS + 1 },
						 { 7, 0, LEN + 1 } };
	struct srdma_flight_ack w = word(5, 0, 1009);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 12, 5);
	w.gap = gaps;
	w.gaps = 3;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f,
		      (const uint8_t[]){ HELD, LOST, HELD, HELD, HELD, LOST,
					 LOST, LOST, HELD, HELD, AWAY, AWAY },
		      12);
	w.pn++;
	assert_int_equal(srdma_flight_judge(&f, &w), 0); /* no change */
	w.pn++;
	w.gaps = 0; /* everything arrived */
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	w.pn++;
	w.gaps = 1; /* and was dropped again by the peer */
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f,
		      (const uint8_t[]){ HELD, LOST, HELD, HELD, HELD, HELD,
					 HELD, HELD, HELD, HELD, AWAY, AWAY },
		      12);
	srdma_flight_destroy(&f);
}

/*
 * A gap from inside a request to the start of a later one covers everything
 * between.
 */
static void test_gap_to_later_request(void **state)
{
	static const struct srdma_gap gap = { 5, 2 * LEN, IDS + 1024 };
	struct srdma_flight_ack w = word(5, 0, 1004);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 6, 5);
	w.gap = &gap;
	w.gaps = 1;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(
		&f, (const uint8_t[]){ HELD, HELD, LOST, LOST, LOST, AWAY }, 6);
	srdma_flight_destroy(&f);
}

/*
 * An ack with eight gaps, the most that fit, gives no information about packets
 * behind the eighth.
 */
static void test_nothing_known_behind_eighth_gap(void **state)
{
	struct srdma_gap gaps[SRDMA_MAX_GAPS];
	struct srdma_flight_ack w = word(0, 0, 1029);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 30, 0);
	for (uint32_t i = 0; i < SRDMA_MAX_GAPS; i++)
		gaps[i] = (struct srdma_gap){ i, LEN, LEN };
	w.gap = gaps;
	w.gaps = SRDMA_MAX_GAPS;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(srdma_flight_at(&f, i)->state, i > 22 ? AWAY
								: i % 3 == 1
									? LOST
									: HELD);
	w.gaps = SRDMA_MAX_GAPS + 1; /* the parser refuses so many */
	w.pn++;
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	srdma_flight_destroy(&f);
}

/*
 * On a wire that may reorder, a packet counts as lost if the peer has one 3
 * numbers later, or one sent a quarter of an RTT later.
 */
static void test_reordering_tolerance(void **state)
{
	static const struct srdma_gap gap = { 5, 0, IDS + 3 };
	struct srdma_flight_ack w = word(5, 0, 1006);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 9, 5);
	w.ordered = 0;
	w.gap = &gap;
	w.gaps = 1;
	w.patience = 5 * MS;
	w.now = 7 * MS;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f,
		      (const uint8_t[]){ LOST, LOST, LOST, LOST, AWAY, AWAY,
					 AWAY, AWAY, AWAY },
		      9);
	w.pn++;
	w.now = 10 * MS; /* packet 1005 was sent at 5 ms */
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f,
		      (const uint8_t[]){ LOST, LOST, LOST, LOST, LOST, LOST,
					 AWAY, AWAY, AWAY },
		      9);
	srdma_flight_destroy(&f);
}

/*
 * Without further acks the timer declares packets lost (packet 1005 was sent at
 * 5 ms).
 */
static void test_timer_declares_loss(void **state)
{
	static const struct srdma_gap gap = { 5, 0, IDS + 3 };
	struct srdma_flight_ack w = word(5, 0, 1005);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 9, 5);
	w.ordered = 0;
	w.gap = &gap;
	w.gaps = 1;
	w.now = 5 * MS;
	w.patience = 10 * MS;
	assert_int_equal(srdma_flight_expire(&f, 90 * MS, 10 * MS), UINT64_MAX);
	srdma_flight_judge(&f, &w);
	expect_states(&f,
		      (const uint8_t[]){ LOST, LOST, LOST, AWAY, AWAY, AWAY,
					 AWAY, AWAY, AWAY },
		      9);
	assert_int_equal(srdma_flight_expire(&f, 12 * MS, 10 * MS), 13 * MS);
	assert_int_equal(srdma_flight_expire(&f, 14 * MS, 10 * MS), 15 * MS);
	expect_states(&f,
		      (const uint8_t[]){ LOST, LOST, LOST, LOST, LOST, AWAY,
					 AWAY, AWAY, AWAY },
		      9);
	srdma_flight_resent(&f, srdma_flight_at(&f, 5), 1009, 15 * MS);
	assert_int_equal(srdma_flight_expire(&f, 90 * MS, 10 * MS), UINT64_MAX);
	assert_int_equal(srdma_flight_at(&f, 5)->state, AWAY);
	srdma_flight_destroy(&f);
}

static void test_stale_ack_is_ignored(void **state)
{
	static const struct srdma_gap gap = { 5, 0, LEN };
	struct srdma_flight_ack w = word(5, 0, 1002);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 3, 5);
	w.pn = 20;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	w.gap = &gap;
	w.gaps = 1;
	w.pn = 19; /* older than the last ack */
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	expect_states(&f, (const uint8_t[]){ HELD, HELD, HELD }, 3);
	srdma_flight_destroy(&f);
}

/*
 * A retransmission has a new packet number. It counts as lost again only by an
 * ack whose highest number is not below the new one.
 */
static void test_old_ack_does_not_concern_retransmission(void **state)
{
	static const struct srdma_gap gap = { 5, 0, 2 * LEN };
	struct srdma_flight_ack w = word(5, 0, 1002);
	struct srdma_flight *x;
	struct srdma_flights f;
	uint64_t serial;

	(void)state;
	open_flights(&f, 3, 5);
	w.gap = &gap;
	w.gaps = 1;
	srdma_flight_judge(&f, &w);
	x = srdma_flight_next_lost(&f, &serial);
	assert_int_equal(serial, 0);
	x->state = SRDMA_FLIGHT_AGAIN;
	assert_int_equal(srdma_flight_next_lost(&f, &serial)->offset, LEN);
	assert_int_equal(serial, 1);
	w.pn++;
	/*
	 * no change: the retransmission is not sent yet, its payload is being
	 * fetched
	 */
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	srdma_flight_resent(&f, x, 1003, 9 * MS);
	w.pn++;
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	expect_states(&f, (const uint8_t[]){ AWAY, LOST, HELD }, 3);
	w.pn++;
	w.highest = 1003; /* lost again */
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	assert_ptr_equal(srdma_flight_next_lost(&f, &serial), x);
	x->state = SRDMA_FLIGHT_AGAIN;
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, 2 * LEN)), 2);
	assert_null(srdma_flight_at(&f, 0));
	assert_null(srdma_flight_next_lost(&f, &serial));
	srdma_flight_destroy(&f);
}

/*
 * After 16 retransmissions of a packet the gaps of acks are ignored for it, so
 * that a hostile peer cannot cause retransmissions without a limit.
 */
static void test_retransmissions_are_limited(void **state)
{
	static const struct srdma_gap gap = { 5, 50, LEN };
	struct srdma_flight_ack w = word(5, 50, 0);
	struct srdma_flights f;
	uint64_t serial, pn = 1000;

	(void)state;
	open_flights(&f, 1, 5);
	w.gap = &gap;
	w.gaps = 1;
	for (int i = 0; i < 16; i++) {
		w.highest = pn++;
		assert_int_equal(srdma_flight_judge(&f, &w), 1);
		srdma_flight_resent(&f, srdma_flight_next_lost(&f, &serial), pn,
				    0);
		w.pn++;
	}
	w.highest = pn;
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	expect_states(&f, (const uint8_t[]){ AWAY }, 1);
	srdma_flight_lose(&f, srdma_flight_at(&f, 0));
	assert_non_null(srdma_flight_next_lost(&f, &serial));
	srdma_flight_destroy(&f);
}

/*
 * Two packets are lost. The retransmission of the first one arrives before the
 * peer reports the second one. The retransmission then ends what the peer has,
 * so that no gap of its ack covers the second packet. This packet must not
 * count as held.
 */
static void test_packet_behind_retransmission(void **state)
{
	struct srdma_flights f;
	struct srdma_flight_ack w = word(5, 0, 1000);
	const struct srdma_gap gap = { 5, 0, LEN };

	(void)state;
	open_flights(&f, 2, 5);
	w.gap = &gap;
	w.gaps = 1;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f, (uint8_t[]){ LOST, AWAY }, 2);
	srdma_flight_resent(&f, srdma_flight_at(&f, 0), 1002, 0);
	w = word(5, LEN, 1002);
	w.pn = 2;
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, LEN)), 1);
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	expect_states(&f, (uint8_t[]){ AWAY }, 1);
	/*
	 * Once the second packet has been sent again, an ack of its new number
	 * applies to it.
	 */
	srdma_flight_resent(&f, srdma_flight_at(&f, 1), 1003, 0);
	w = word(5, LEN, 1003);
	w.pn = 3;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f, (uint8_t[]){ HELD }, 1);
	srdma_flight_destroy(&f);
}

/* A packet that was sent again many times is held, then dropped by the peer: the
 * timer must send it again. */
static void test_dropped_packet_is_held_no_more(void **state)
{
	struct srdma_gap gap = { 5, LEN, LEN };
	struct srdma_flight_ack w = word(5, 0, 2000);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 2, 5);
	for (uint64_t i = 0; i < 16; i++)
		srdma_flight_resent(&f, srdma_flight_at(&f, 0), 1100 + i, 0);
	w.gap = &gap;
	w.gaps = 1;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f, (const uint8_t[]){ HELD, LOST }, 2);
	gap.offset = 0;
	w.pn++;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	assert_int_equal(srdma_flight_at(&f, 0)->state, AWAY);
	assert_ptr_equal(srdma_flight_oldest(&f), srdma_flight_at(&f, 0));
	srdma_flight_destroy(&f);
}

/*
 * Packets between two gaps have arrived, including one (index 4) whose
 * retransmission is still in flight.
 */
static void test_packets_between_gaps_have_arrived(void **state)
{
	static const struct srdma_gap gaps[] = { { 5, 0, LEN }, { 7, 0, LEN } };
	struct srdma_flight_ack w = word(5, 0, 1006);
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 9, 5);
	srdma_flight_lose(&f, srdma_flight_at(&f, 0));
	srdma_flight_resent(&f, srdma_flight_at(&f, 0), 1020, 0);
	srdma_flight_resent(&f, srdma_flight_at(&f, 4), 1021, 0);
	w.gap = gaps;
	w.gaps = 2;
	w.skips = 1;
	w.highest = 1006;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f,
		      (const uint8_t[]){ AWAY, HELD, HELD, HELD, HELD, HELD,
					 LOST, AWAY, AWAY },
		      9);
	w.pn++;
	/*
	 * An ack that skips gaps gives no information about packets before its
	 * first gap.
	 */
	w.gap++;
	w.gaps = 1;
	srdma_flight_at(&f, 1)->state = AWAY;
	f.waiting++;
	assert_int_equal(srdma_flight_judge(&f, &w), 0);
	assert_int_equal(srdma_flight_at(&f, 1)->state, AWAY);
	assert_int_equal(f.waiting, 5);
	srdma_flight_destroy(&f);
}

/* Counts packets in flight, and responses that are expected after a gap. */
static void test_counts_of_flights_and_responses(void **state)
{
	static const struct srdma_gap gap = { 5, 0, LEN };
	struct srdma_flight x = { .id = 5, .len = LEN, .pn = 10 };
	struct srdma_flight_ack w = word(5, 0, 12);
	struct srdma_flights f;

	(void)state;
	create(&f, ROOM);
	for (uint32_t i = 0; i < 4; i++) {
		x.responses = i;
		srdma_flight_add(&f, &x);
		x.id++;
		x.pn++;
	}
	assert_int_equal(f.waiting, 4);
	w.gap = &gap;
	w.gaps = 1;
	srdma_flight_judge(&f, &w);
	expect_states(&f, (const uint8_t[]){ LOST, HELD, HELD, AWAY }, 4);
	assert_int_equal(f.waiting, 2);
	assert_int_equal(f.losts, 1);
	assert_int_equal(f.held, 3);
	srdma_flight_again(&f, srdma_flight_at(&f, 0));
	assert_int_equal(f.losts, 0);
	srdma_flight_resent(&f, srdma_flight_at(&f, 0), 20, 7 * MS);
	assert_int_equal(f.waiting, 2);
	assert_int_equal(srdma_flight_sent(&f, 20), 7 * MS);
	assert_int_equal(srdma_flight_sent(&f, 19), 0);
	srdma_flight_over(&f, 2);
	assert_int_equal(f.waiting, 2);
	assert_int_equal(f.held, 1);
	assert_int_equal(srdma_flight_acknowledge(&f, at(8, 0)), 3);
	assert_int_equal(f.waiting, 1);
	assert_int_equal(f.held, 0);
	assert_int_equal(srdma_flight_acknowledge(&f, at(9, 0)), 1);
	assert_int_equal(f.waiting, 0);
	srdma_flight_destroy(&f);
}

/*
 * All packets are lost and the timer sends one again. Once this one is
 * acknowledged, packets that were sent before it count as lost. The one sent
 * after it is held.
 */
static void test_lost_tail_after_timeout(void **state)
{
	struct srdma_flight_ack w = word(5, LEN, 1005);
	struct srdma_flight x = { .id = 8, .len = LEN, .pn = 1004 };
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 4, 5);
	srdma_flight_lose(&f, srdma_flight_at(&f, 0));
	srdma_flight_resent(&f, srdma_flight_at(&f, 0), 1005, 0);
	srdma_flight_acknowledge(&f, at(5, LEN));
	srdma_flight_add(&f, &x);
	x.pn = 1006;
	x.id = 9;
	srdma_flight_add(&f, &x);
	w.highest = 1006;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f, (const uint8_t[]){ LOST, LOST, LOST, LOST, HELD }, 5);
	srdma_flight_destroy(&f);
}

/*
 * A spurious timeout: nothing was lost, but the ack is late. It arrives after
 * the retransmission was sent, with a highest number below the
 * retransmission's. Packets that the peer has not executed yet are not sent
 * again.
 */
static void test_spurious_timeout_resends_nothing_else(void **state)
{
	struct srdma_flight_ack w = word(5, LEN, 1002);
	struct srdma_flights f;
	uint64_t serial;

	(void)state;
	open_flights(&f, 3, 5);
	srdma_flight_lose(&f, srdma_flight_oldest(&f));
	srdma_flight_resent(&f, srdma_flight_next_lost(&f, &serial), 2000, MS);
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, LEN)), 1);
	srdma_flight_judge(&f, &w);
	expect_states(&f, (const uint8_t[]){ AWAY, AWAY }, 2);
	w.pn++;
	w.highest = 2000; /* the spurious retransmission arrived as well */
	srdma_flight_judge(&f, &w);
	expect_states(&f, (const uint8_t[]){ AWAY, AWAY }, 2);
	srdma_flight_destroy(&f);
}

static void test_oldest_flight(void **state)
{
	static const struct srdma_gap gap = { 5, LEN, LEN };
	struct srdma_flight_ack w = word(5, 0, 1002);
	struct srdma_flights f;
	uint64_t serial;

	(void)state;
	open_flights(&f, 3, 5);
	assert_int_equal(srdma_flight_oldest(&f)->offset, 0);
	w.gap = &gap;
	w.gaps = 1;
	srdma_flight_judge(&f, &w);
	assert_int_equal(srdma_flight_oldest(&f)->offset, LEN);
	w.gaps = 0;
	w.pn++;
	srdma_flight_judge(&f, &w);
	assert_null(srdma_flight_oldest(&f));
	srdma_flight_lose(&f, srdma_flight_at(&f, 2));
	assert_int_equal(srdma_flight_next_lost(&f, &serial)->probe, 1);
	assert_int_equal(serial, 2);
	srdma_flight_destroy(&f);
}

/* A READ is complete with its response, even before earlier requests. */
static void test_read_completes_before_earlier_requests(void **state)
{
	static const struct srdma_gap gap = { 5, 0, IDS + 9 };
	struct srdma_flight_ack w = word(5, 0, 1002);
	struct srdma_flights f;
	uint64_t serial;

	(void)state;
	open_flights(&f, 3, 5);
	srdma_flight_over(&f, 1);
	assert_int_equal(f.count, 3);
	assert_null(srdma_flight_at(&f, 1));
	w.gap = &gap;
	w.gaps = 1;
	srdma_flight_judge(&f, &w);
	srdma_flight_next_lost(&f, &serial)->state = AWAY;
	assert_int_equal(srdma_flight_next_lost(&f, &serial)->offset, 2 * LEN);
	srdma_flight_over(&f, 0);
	assert_int_equal(f.count, 1);
	assert_int_equal(f.first, 2);
	srdma_flight_over(&f, 1);
	srdma_flight_over(&f, 77);
	assert_int_equal(f.count, 1);
	srdma_flight_destroy(&f);
}

/* Request ids and packet numbers cross 2^32, and the ring wraps. */
static void test_ids_and_numbers_wrap(void **state)
{
	const uint64_t base = (UINT64_C(7) << 32) - 2;
	struct srdma_gap gap = { (uint32_t)(base + 1), 0, IDS + 2 };
	struct srdma_flight_ack w = word(base, 0, base + 30);
	struct srdma_flights f;

	(void)state;
	create(&f, 5);
	for (uint32_t i = 0; i < 23; i++) {
		const struct srdma_flight x = { .id = base + i % 5,
						.len = LEN,
						.pn = base + i };

		if (i % 5 == 0)
			srdma_flight_acknowledge(&f, at(UINT64_MAX, 0));
		srdma_flight_add(&f, &x);
	}
	for (uint32_t i = 3; i < 5; i++) {
		const struct srdma_flight x = { .id = base + i,
						.len = LEN,
						.pn = base + 20 + i };

		srdma_flight_add(&f, &x);
	}
	w.gap = &gap;
	w.gaps = 1;
	assert_int_equal(srdma_flight_judge(&f, &w), 1);
	expect_states(&f, (const uint8_t[]){ HELD, LOST, LOST, HELD, HELD }, 5);
	assert_int_equal(srdma_flight_acknowledge(&f, at(base + 3, LEN)), 4);
	srdma_flight_destroy(&f);
}

/* With arbitrary acks each flight is sent again at most once per ack. */
static void test_arbitrary_acks(void **state)
{
	static const uint32_t values[] = { 0,	      1,	  99,
					   100,	      IDS - 1,	  IDS,
					   IDS + 1,   0xfffffffe, 0xffffffff,
					   0x3fffffff };
	const uint32_t n = sizeof(values) / sizeof(*values);
	uint64_t random = 1, serial;
	struct srdma_flights f;

	(void)state;
	open_flights(&f, 30, 5);
	for (uint32_t round = 0; round < 20000; round++) {
		struct srdma_gap gap[SRDMA_MAX_GAPS];
		struct srdma_flight_ack w = word(3 + round % 4, round % 200,
						 round % 3 ? 1029 : UINT64_MAX);
		uint32_t seen = 0;

		for (uint32_t i = 0; i < SRDMA_MAX_GAPS * 3; i++) {
			random = random * UINT64_C(6364136223846793005) + 1;
			((uint32_t *)gap)[i] = values[(random >> 40) % n];
		}
		w.gap = gap;
		w.gaps = round % (SRDMA_MAX_GAPS + 1);
		w.pn = round + 1;
		w.ordered = round & 1;
		srdma_flight_judge(&f, &w);
		assert_int_equal(f.count, 30);
		while (srdma_flight_next_lost(&f, &serial)) {
			assert_in_range(serial, 0, 29);
			srdma_flight_resent(&f, srdma_flight_at(&f, serial),
					    1029, 0);
			assert_true(++seen <= 30);
		}
	}
	srdma_flight_destroy(&f);
}

/* --- RTT ------------------------------------------------------------------ */

static void test_rto_follows_samples(void **state)
{
	struct srdma_rtt r = { 0 };

	(void)state;
	assert_int_equal(srdma_rtt_rto(&r), 2 * MS);
	for (int i = 0; i < 3; i++)
		srdma_rtt_back_off(&r, SRDMA_RTT_ACK);
	/* Without a sample, progress does not reset the back-off. */
	srdma_rtt_progress(&r, SRDMA_RTT_ACK);
	assert_int_equal(srdma_rtt_rto(&r), 16 * MS);
	srdma_rtt_sample(&r, 20 * MS);
	srdma_rtt_progress(&r, SRDMA_RTT_ACK);
	assert_int_equal(srdma_rtt_rto(&r), 60 * MS); /* 20 + 4 * 10 */
	srdma_rtt_sample(&r, 28 * MS); /* var 10 -> 9.5, srtt 20 -> 21 */
	assert_int_equal(srdma_rtt_rto(&r), 59 * MS);
	for (int i = 0; i < 500; i++)
		srdma_rtt_sample(&r, 1000);
	assert_int_equal(srdma_rtt_rto(&r), MS / 5);
	for (int i = 0; i < 500; i++)
		srdma_rtt_sample(&r, UINT64_MAX);
	assert_int_equal(srdma_rtt_rto(&r), 1000 * MS);
	for (int i = 0; i < 500; i++)
		srdma_rtt_sample(&r, 0);
	assert_true(r.srtt > 0);
	assert_int_equal(srdma_rtt_rto(&r), MS / 5);
	for (int i = 0; i < 13; i++)
		srdma_rtt_back_off(&r, SRDMA_RTT_ACK);
	assert_int_equal(srdma_rtt_rto(&r), 1000 * MS);
	for (int i = 0; i < 90; i++)
		srdma_rtt_back_off(&r, SRDMA_RTT_ACK);
	assert_int_equal(srdma_rtt_rto(&r), 1000 * MS);
}

/*
 * One RTT sample is measured at a time. No sample is taken of a packet that
 * timed out.
 */
static void test_one_rtt_sample_at_a_time(void **state)
{
	struct srdma_rtt r = { 0 };

	(void)state;
	assert_true(srdma_rtt_wants(&r, 5 * MS));
	srdma_rtt_sent(&r, 10, 5 * MS);
	assert_false(srdma_rtt_wants(&r, 50 * MS));
	srdma_rtt_sent(&r, 11, 6 * MS);
	srdma_rtt_acked(&r, 9, 0, 8 * MS);
	assert_int_equal(r.srtt, 0);
	srdma_rtt_acked(&r, 12, 0, 9 * MS);
	assert_int_equal(r.srtt, 4 * MS);
	srdma_rtt_acked(&r, 13, 0, 90 * MS);
	assert_int_equal(r.srtt, 4 * MS);
	assert_false(srdma_rtt_wants(&r, 5 * MS + MS / 5 - 1));
	assert_true(srdma_rtt_wants(&r, 5 * MS + MS / 5));
	srdma_rtt_sent(&r, 14, 100 * MS);
	srdma_rtt_back_off(&r, SRDMA_RTT_ACK);
	srdma_rtt_acked(&r, 15, 0, 900 * MS);
	assert_int_equal(r.srtt, 4 * MS);
	srdma_rtt_sent(&r, 16, 900 * MS);
	srdma_rtt_acked(&r, 17, 916 * MS, 920 * MS);
	assert_int_equal(r.srtt, 4 * MS);
}

/* If the RTT exceeds the timeout, samples are still taken. */
static void test_rto_follows_longer_path(void **state)
{
	struct srdma_rtt r = { 0 };

	(void)state;
	srdma_rtt_sample(&r, 1000);
	assert_int_equal(srdma_rtt_rto(&r), MS / 5);
	for (uint64_t pn = 1; pn < 20; pn++) {
		srdma_rtt_sent(&r, pn, pn * 10 * MS);
		if (srdma_rtt_rto(&r) < 2 * MS)
			srdma_rtt_back_off(&r, SRDMA_RTT_ACK);
		srdma_rtt_acked(&r, pn, 0, pn * 10 * MS + 2 * MS);
		srdma_rtt_progress(&r, SRDMA_RTT_ACK);
	}
	assert_true(srdma_rtt_rto(&r) > 2 * MS);
}

/* The table grows with the flights, wherever the ring begins. */
static void test_table_grows_and_shrinks(void **state)
{
	enum { SIZE = 40, ROW = sizeof(struct srdma_flight) };
	struct srdma_flights f;
	struct srdma_flight x = { .len = LEN, .pn = 100 };

	(void)state;
	srdma_flight_create(&f, &memory, SIZE);
	assert_int_equal(memory.used, 0);
	for (x.id = 0; x.id < 8; x.id++) {
		assert_int_equal(srdma_flight_make_room(&f, 1), 0);
		srdma_flight_add(&f, &x);
	}
	assert_int_equal(srdma_flight_acknowledge(&f, at(5, 0)), 5);
	assert_int_equal(memory.used, 8 * ROW);
	for (; x.id < SIZE + 5; x.id++) {
		memory.most = memory.used + 1;
		if (f.count == f.room)
			assert_int_equal(srdma_flight_make_room(&f, 1),
					 -ENOMEM);
		memory.most = 0;
		assert_int_equal(srdma_flight_make_room(&f, 1), 0);
		assert_int_equal(srdma_flight_add(&f, &x), x.id);
	}
	assert_int_equal(srdma_flight_make_room(&f, 1), 0); /* the maximum */
	assert_int_equal(memory.used, 64 * ROW);
	for (uint64_t i = 5; i < SIZE + 5; i++)
		assert_int_equal(srdma_flight_at(&f, i)->id, i);
	srdma_flight_shrink(&f); /* no effect while flights exist */
	assert_int_equal(srdma_flight_acknowledge(&f, at(SIZE + 5, 0)), SIZE);
	assert_int_equal(memory.used, 64 * ROW);
	srdma_flight_shrink(&f);
	assert_int_equal(memory.used, 0);
	assert_int_equal(srdma_flight_make_room(&f, 1), 0);
	assert_int_equal(srdma_flight_add(&f, &x), SIZE + 5);
	srdma_flight_destroy(&f);
	assert_int_equal(memory.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_grows_and_shrinks),
		cmocka_unit_test(test_ack_position_removes_flights),
		cmocka_unit_test(test_empty_packet_needs_next_position),
		cmocka_unit_test(test_gaps_of_bytes_and_ids),
		cmocka_unit_test(test_gap_to_later_request),
		cmocka_unit_test(test_nothing_known_behind_eighth_gap),
		cmocka_unit_test(test_reordering_tolerance),
		cmocka_unit_test(test_timer_declares_loss),
		cmocka_unit_test(test_dropped_packet_is_held_no_more),
		cmocka_unit_test(test_packets_between_gaps_have_arrived),
		cmocka_unit_test(test_counts_of_flights_and_responses),
		cmocka_unit_test(test_retransmissions_are_limited),
		cmocka_unit_test(test_stale_ack_is_ignored),
		cmocka_unit_test(test_old_ack_does_not_concern_retransmission),
		cmocka_unit_test(test_packet_behind_retransmission),
		cmocka_unit_test(test_lost_tail_after_timeout),
		cmocka_unit_test(test_spurious_timeout_resends_nothing_else),
		cmocka_unit_test(test_oldest_flight),
		cmocka_unit_test(test_read_completes_before_earlier_requests),
		cmocka_unit_test(test_ids_and_numbers_wrap),
		cmocka_unit_test(test_arbitrary_acks),
		cmocka_unit_test(test_rto_follows_samples),
		cmocka_unit_test(test_one_rtt_sample_at_a_time),
		cmocka_unit_test(test_rto_follows_longer_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
