/*
 * Fairness: flows share a link that drops excess packets (docs/protocol.md
 * 5.5). Each gets its share, and the link is used. SRDMA_FAIR_SEEDS sets the
 * number of runs with different random numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "simulation/bottleneck.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/*
 * Links of 10 and 1 Gbit/s with short and long RTT and the queue of a switch
 * port.
 */
static const struct {
	uint64_t rate, latency, queue, warm, ns; /* see struct bottleneck */
} ways[] = {
	{ 1250, 5 * US, 200 * US, 40 * MS, 20 * MS },
	{ 1250, 5 * US, 40 * US, 40 * MS, 20 * MS },
	{ 1250, 50 * US, 500 * US, 40 * MS, 20 * MS },
	{ 125, 50 * US, 500 * US, 100 * MS, 60 * MS },
	{ 125, 1 * MS, 4 * MS, 500 * MS, 200 * MS },
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* With sanitizers only the first and the last link are tested. */
#ifdef SRDMA_SANITIZED
enum { STRIDE = WAYS - 1 };
#else
enum { STRIDE = 1 };
#endif

static struct bottleneck on_way(unsigned i, uint8_t op, uint32_t flows)
{
	return (struct bottleneck){ .rate = ways[i].rate,
				    .latency = ways[i].latency,
				    .queue = ways[i].queue,
				    .warm = ways[i].warm,
				    .ns = ways[i].ns,
				    .op = op,
				    .flows = flows };
}

static void run(struct bottleneck *b)
{
	bottleneck_run(b);
	print_message(
		"%llu bytes/us, %llu us, queue %llu us, %s, %u flows %llu "
		"us apart, 1 in %u lost: Jain %.3f, used %.3f, the "
		"queue dropped %.4f\n",
		(unsigned long long)b->rate,
		(unsigned long long)(b->latency / US),
		(unsigned long long)(b->queue / US),
		b->op == SRDMA_DESC_READ ? "READ" : "WRITE", b->flows,
		(unsigned long long)(b->spread / US), b->one_in, b->jain,
		b->used, b->dropped);
}

/*
 * Runs 2, 4, ... flows that start together, and again one after another, and
 * prints the results. Returns the number of runs that are unfair or do not use
 * the link.
 */
static int share_badly(uint8_t op, unsigned way, unsigned seed, double jain)
{
	int bad = 0;

	for (uint32_t flows = 2; flows <= BOTTLENECK_FLOWS; flows *= 2)
		for (uint64_t late = 0; late < 2; late++) {
			struct bottleneck b = on_way(way, op, flows);

			b.random = 1000 * seed + 100 * (way + 1) + 10 * flows +
				   late;
			b.spread = late * 10 * MS;
			run(&b);
			bad += b.jain < jain || b.used < 0.85;
		}
	return bad;
}

static unsigned wanted_seeds(void)
{
	const char *text = getenv("SRDMA_FAIR_SEEDS");
	const int n = text ? atoi(text) : 1;

	assert_true(n > 0);
	return (unsigned)n;
}

static void check_share(uint8_t op, double jain)
{
	const unsigned seeds = wanted_seeds();
	int bad = 0;

	for (unsigned seed = 0; seed < seeds; seed++)
		for (unsigned i = 0; i < WAYS; i += STRIDE)
			bad += share_badly(op, i, seed, jain);
	assert_int_equal(bad, 0);
}

static void test_write_flows_share_fairly(void **state)
{
	(void)state;
	check_share(SRDMA_DESC_WRITE, 0.75);
}

/* READs: responses have a window of their own. */
static void test_read_flows_share_fairly(void **state)
{
	(void)state;
	check_share(SRDMA_DESC_READ, 0.6);
}

/* Random loss on an idle link does not reduce the window. */
static void test_random_loss_keeps_throughput(void **state)
{
	(void)state;
	for (unsigned i = 0; i < WAYS; i += STRIDE) {
		struct bottleneck clean = on_way(i, SRDMA_DESC_WRITE, 1);
		struct bottleneck attacked = clean;

		attacked.one_in = 10;
		run(&clean);
		run(&attacked);
		assert_true(attacked.used >= 0.6 * clean.used);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_flows_share_fairly),
		cmocka_unit_test(test_read_flows_share_fairly),
		cmocka_unit_test(test_random_loss_keeps_throughput),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
