/* Congestion window (docs/protocol.md 5.5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "requester/congestion.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

enum { MOST = 128 };

static void expect(const struct srdma_congestion *c, uint32_t window)
{
	assert_int_equal(srdma_congestion_window(c), window);
}

/*
 * Ends a round with this RTT: the sample is of a packet that was sent after the
 * previous sample.
 */
static void round_of(struct srdma_congestion *c, uint64_t *now, uint64_t rtt)
{
	*now += rtt + 1;
	srdma_congestion_rtt(c, *now, rtt);
}

static struct srdma_congestion begin(uint64_t *now, uint64_t rtt)
{
	struct srdma_congestion c;

	srdma_congestion_init(&c, MOST, SRDMA_CONGESTION_REQUESTS);
	expect(&c, SRDMA_CONGESTION_FIRST);
	*now = S;
	round_of(&c, now, rtt);
	return c;
}

static void test_window_of_ordered_wire(void **state)
{
	struct srdma_congestion c;

	(void)state;
	srdma_congestion_init(&c, MOST, 0);
	expect(&c, MOST);
	srdma_congestion_rtt(&c, MS, 10 * US);
	srdma_congestion_rtt(&c, S, S);
	srdma_congestion_lost(&c, 100, S);
	srdma_congestion_timeout(&c);
	expect(&c, MOST);
	srdma_congestion_restart(&c);
	expect(&c, SRDMA_CONGESTION_LEAST);
	for (uint32_t w = 4; w < MOST; w *= 2) {
		expect(&c, w);
		srdma_congestion_arrived(&c, w, 1);
	}
	srdma_congestion_arrived(&c, MOST, 1);
	expect(&c, MOST);
}

/*
 * The window doubles per round trip while it is used. After a round with too
 * long an RTT, the least window is used until one round is measured. Then the
 * window is restored, and reduced only if the earlier RTT was too long for the
 * base RTT known by then.
 */
static void test_long_rtt_probes_before_reduction(void **state)
{
	uint64_t now;
	struct srdma_congestion c = begin(&now, 100 * US);

	(void)state;
	srdma_congestion_arrived(&c, 100, 0);
	expect(&c, 16);
	srdma_congestion_arrived(&c, 16, 1);
	srdma_congestion_arrived(&c, 32, 1);
	expect(&c, 64);
	round_of(&c, &now, 197 * US); /* 100 + 60 (1 + 40 / 64) */
	expect(&c, 64);
	round_of(&c, &now, 198 * US);
	expect(&c, SRDMA_CONGESTION_LEAST);
	srdma_congestion_arrived(&c, 4, 1);
	expect(&c, SRDMA_CONGESTION_LEAST);
	round_of(&c, &now, 110 * US);
	expect(&c, 32); /* 64 * 100 / 198 = 32.3; not below half of 64 */
	srdma_congestion_arrived(&c, 33, 1);
	expect(&c, 33);
}

/*
 * After 20 rounds with a queue above a quarter of the permitted one, the least
 * window is used for one round as well, and then restored. A shorter queue has
 * no effect.
 */
static void test_standing_queue_is_probed(void **state)
{
	uint64_t now;
	struct srdma_congestion c = begin(&now, 100 * US);

	(void)state;
	for (int i = 0; i < 19; i++)
		round_of(&c, &now, 116 * US);
	expect(&c, 16);
	round_of(&c, &now, 116 * US);
	expect(&c, SRDMA_CONGESTION_LEAST);
	round_of(&c, &now, 100 * US);
	expect(&c, 16);
	for (int i = 0; i < 40; i++)
		round_of(&c, &now, 115 * US);
	expect(&c, 16);
}

/*
 * Loss reduces the window only together with a queue, or if it is heavy. The
 * loss of packets sent before the last reduction does not count.
 */
static void test_loss_needs_queue_to_reduce_window(void **state)
{
	uint64_t now, sent;
	struct srdma_congestion c = begin(&now, 100 * US);

	(void)state;
	srdma_congestion_arrived(&c, 48, 1);
	expect(&c, 64);
	round_of(&c, &now, 100 * US);
	srdma_congestion_lost(&c, 4, now);
	round_of(&c, &now, 130 * US);
	expect(&c, 64);
	sent = now;
	srdma_congestion_lost(&c, 1, now);
	round_of(&c, &now, 131 * US);
	expect(&c, 56);
	srdma_congestion_lost(&c, 50, sent);
	round_of(&c, &now, 131 * US);
	expect(&c, 56);
	srdma_congestion_lost(&c, 5, now);
	round_of(&c, &now, 100 * US);
	expect(&c, 52); /* at least a sixteenth less */
}

/*
 * On a path with a long RTT the permitted queue is half of the base RTT, or
 * more for a small window.
 */
static void test_long_path_tolerates_longer_queue(void **state)
{
	uint64_t now;
	struct srdma_congestion c = begin(&now, 10 * MS);

	(void)state;
	srdma_congestion_arrived(&c, 48, 1);
	round_of(&c, &now, 18 * MS);
	expect(&c, 64);
	round_of(&c, &now, 19 * MS);
	expect(&c, SRDMA_CONGESTION_LEAST);
}

/* The window is never less than 4, or the maximum if that is smaller. */
static void test_window_has_minimum(void **state)
{
	(void)state;
	for (uint32_t most = 1; most < 6; most++) {
		struct srdma_congestion c;
		uint64_t now = S;

		srdma_congestion_init(&c, most, SRDMA_CONGESTION_REQUESTS);
		round_of(&c, &now, US);
		for (int i = 0; i < 9; i++)
			round_of(&c, &now, 10 * MS);
		expect(&c, most < 4 ? most : 4);
		srdma_congestion_timeout(&c);
		expect(&c, most < 4 ? most : 4);
	}
}

/* After a timeout the window recovers within a few round trips. */
static void test_window_recovers_after_timeout(void **state)
{
	uint64_t now;
	struct srdma_congestion c = begin(&now, 10 * US);

	(void)state;
	srdma_congestion_arrived(&c, 34, 1);
	expect(&c, 50);
	c.slow = c.window;
	srdma_congestion_timeout(&c);
	/* a second timeout has no further effect */
	srdma_congestion_timeout(&c);
	expect(&c, 4);
	srdma_congestion_arrived(&c, 46, 1);
	expect(&c, 50);
	srdma_congestion_arrived(&c, 49, 1);
	expect(&c, 50);
	srdma_congestion_arrived(&c, 2, 1);
	expect(&c, 51);
}

/* If the path becomes longer, the base RTT follows after a while. */
static void test_base_rtt_follows_longer_path(void **state)
{
	uint64_t now;
	struct srdma_congestion c = begin(&now, 10 * US);

	(void)state;
	for (uint64_t s = 2; s < 33; s++)
		srdma_congestion_rtt(&c, s * S, 5 * MS);
	assert_int_equal(c.base, 5 * MS);
	srdma_congestion_arrived(&c, 400, 1);
	assert_true(srdma_congestion_window(&c) > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window_of_ordered_wire),
		cmocka_unit_test(test_long_rtt_probes_before_reduction),
		cmocka_unit_test(test_standing_queue_is_probed),
		cmocka_unit_test(test_loss_needs_queue_to_reduce_window),
		cmocka_unit_test(test_long_path_tolerates_longer_queue),
		cmocka_unit_test(test_window_has_minimum),
		cmocka_unit_test(test_window_recovers_after_timeout),
		cmocka_unit_test(test_base_rtt_follows_longer_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
