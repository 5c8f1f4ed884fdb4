/* The window of packets under way (docs/protocol.md 5.5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "congestion.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

enum { MOST = 128 };

static void expect(const struct srdma_congestion *c, uint32_t window)
{
	assert_int_equal(srdma_congestion_window(c), window);
}

static void test_ordered(void **state)
{
	struct srdma_congestion c;

	(void)state;
	srdma_congestion_init(&c, MOST, 1);
	expect(&c, MOST);
	srdma_congestion_rtt(&c, MS, 10 * US);
	srdma_congestion_rtt(&c, S, S);
	srdma_congestion_timeout(&c);
	expect(&c, MOST);
	srdma_congestion_restart(&c);
	expect(&c, SRDMA_CONGESTION_LEAST);
	for (uint32_t w = 4; w < MOST; w *= 2) {
		expect(&c, w);
		srdma_congestion_arrived(&c, w);
	}
	srdma_congestion_arrived(&c, MOST);
	expect(&c, MOST);
}

/* It doubles, narrows once in a round trip, and then grows by one. */
static void test_delay(void **state)
{
	struct srdma_congestion c;

	(void)state;
	srdma_congestion_init(&c, MOST, 0);
	expect(&c, SRDMA_CONGESTION_FIRST);
	srdma_congestion_rtt(&c, S, 100 * US);
	srdma_congestion_arrived(&c, 16);
	srdma_congestion_arrived(&c, 32);
	expect(&c, 64);
	srdma_congestion_rtt(&c, S + MS, 600 * US); /* base + 0.5 ms */
	expect(&c, 64);
	srdma_congestion_rtt(&c, S + 2 * MS, 601 * US);
	expect(&c, 32); /* half: the base is less than that of the trip */
	srdma_congestion_rtt(&c, S + 2 * MS + 600 * US, 700 * US);
	srdma_congestion_arrived(&c, 32);
	expect(&c, 32);
	srdma_congestion_rtt(&c, S + 4 * MS, 400 * US);
	srdma_congestion_arrived(&c, 31);
	expect(&c, 32);
	srdma_congestion_arrived(&c, 2);
	expect(&c, 33);
}

/* On a long path as much is left as fills it. */
static void test_long_path(void **state)
{
	struct srdma_congestion c;

	(void)state;
	srdma_congestion_init(&c, MOST, 0);
	srdma_congestion_rtt(&c, S, 10 * MS);
	srdma_congestion_arrived(&c, 48);
	expect(&c, 64);
	srdma_congestion_rtt(&c, 2 * S, 20 * MS);
	expect(&c, 64);
	srdma_congestion_rtt(&c, 2 * S, 20 * MS + 1);
	expect(&c, 32);
	srdma_congestion_rtt(&c, 3 * S, 10 * MS);
	srdma_congestion_rtt(&c, 4 * S, 30 * MS);
	expect(&c, 16);
}

/* Never less than four, or all that there may be. */
static void test_least(void **state)
{
	struct srdma_congestion c;

	(void)state;
	for (uint32_t most = 1; most < 6; most++) {
		srdma_congestion_init(&c, most, 0);
		srdma_congestion_rtt(&c, S, US);
		for (uint64_t i = 2; i < 9; i++)
			srdma_congestion_rtt(&c, i * S, 10 * MS);
		expect(&c, most < 4 ? most : 4);
		srdma_congestion_timeout(&c);
		expect(&c, most < 4 ? most : 4);
	}
}

/* Back where it was after a few round trips. */
static void test_timeout(void **state)
{
	struct srdma_congestion c;

	(void)state;
	srdma_congestion_init(&c, MOST, 0);
	srdma_congestion_rtt(&c, S, 10 * US);
	srdma_congestion_arrived(&c, 84);
	srdma_congestion_rtt(&c, S, MS);
	expect(&c, 50);
	srdma_congestion_timeout(&c);
	srdma_congestion_timeout(&c); /* twice */
	expect(&c, 4);
	srdma_congestion_rtt(&c, 2 * S, 10 * US);
	srdma_congestion_arrived(&c, 46);
	expect(&c, 50);
	srdma_congestion_arrived(&c, 49);
	expect(&c, 50);
	srdma_congestion_arrived(&c, 2);
	expect(&c, 51);
}

/* A path that became longer is not taken for a queue for ever. */
static void test_base(void **state)
{
	struct srdma_congestion c;

	(void)state;
	srdma_congestion_init(&c, MOST, 0);
	srdma_congestion_rtt(&c, S, 10 * US);
	srdma_congestion_rtt(&c, 2 * S, 5 * MS);
	expect(&c, 8);
	for (uint64_t s = 3; s < 33; s++)
		srdma_congestion_rtt(&c, s * S, 5 * MS);
	srdma_congestion_arrived(&c, 400);
	assert_true(srdma_congestion_window(&c) > 8);
	assert_int_equal(c.base, 5 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordered),	  cmocka_unit_test(test_delay),
		cmocka_unit_test(test_long_path), cmocka_unit_test(test_least),
		cmocka_unit_test(test_timeout),	  cmocka_unit_test(test_base),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
