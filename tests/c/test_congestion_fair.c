/* Flows that share a way which drops what is too much (docs/protocol.md 5.5):
 * each gets its part, and the way is used. SRDMA_FAIR_SEEDS says how many times, with
 * other random numbers. */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bottleneck.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* Ways: 10 and 1 Gbit/s, near and far, with the queue of a switch's port. */
static const struct bottleneck ways[] = {
	{ .rate = 1250,
	  .latency = 5 * US,
	  .queue = 200 * US,
	  .warm = 40 * MS,
	  .ns = 20 * MS },
	{ .rate = 1250,
	  .latency = 5 * US,
	  .queue = 40 * US,
	  .warm = 40 * MS,
	  .ns = 20 * MS },
	{ .rate = 1250,
	  .latency = 50 * US,
	  .queue = 500 * US,
	  .warm = 40 * MS,
	  .ns = 20 * MS },
	{ .rate = 125,
	  .latency = 50 * US,
	  .queue = 500 * US,
	  .warm = 100 * MS,
	  .ns = 60 * MS },
	{ .rate = 125,
	  .latency = 1 * MS,
	  .queue = 4 * MS,
	  .warm = 500 * MS,
	  .ns = 200 * MS },
};

/* The sanitizers see it all in one near way and one far. */
#ifdef SRDMA_SANITIZED
enum { WAYS = 5, STRIDE = 4 };
#else
enum { WAYS = 5, STRIDE = 1 };
#endif

static_assert(sizeof(ways) / sizeof(ways[0]) == WAYS, "");

static struct bottleneck run(struct bottleneck how)
{
	static struct bottleneck b;

	b = how;
	bottleneck_run(&b);
	print_message(
		"%llu bytes/us, %llu us, queue %llu us, %s, %u flows %llu "
		"us apart, 1 in %u lost: Jain %.3f, used %.3f, the "
		"queue dropped %.4f\n",
		(unsigned long long)b.rate,
		(unsigned long long)(b.latency / US),
		(unsigned long long)(b.queue / US),
		b.op == SRDMA_DESC_READ ? "READ" : "WRITE", b.flows,
		(unsigned long long)(b.spread / US), b.one_in, b.jain, b.used,
		b.dropped);
	return b;
}

/* 1: as fair as it shall be, and the way is used. */
static int is_good(struct bottleneck how, double jain)
{
	struct bottleneck b = run(how);

	return b.jain >= jain && b.used >= 0.85;
}

/* Those that start together, and one after another. All are run, so that one
 * sees which are not good: how many that were. */
static int share_badly(uint8_t op, unsigned way, unsigned seed, double jain)
{
	int bad = 0;

	for (uint32_t flows = 2; flows <= BOTTLENECK_FLOWS; flows *= 2)
		for (uint64_t late = 0; late < 2; late++) {
			struct bottleneck b = ways[way];

			b.flows = flows;
			b.op = op;
			b.random = 1000 * seed + 100 * (way + 1) + 10 * flows +
				   late;
			b.spread = late * 10 * MS;
			bad += !is_good(b, jain);
		}
	return bad;
}

static void check_share(uint8_t op, double jain)
{
	const char *seeds = getenv("SRDMA_FAIR_SEEDS");
	const unsigned n_seeds = seeds ? (unsigned)atoi(seeds) : 1;
	int bad = 0;

	for (unsigned seed = 0; seed < n_seeds; seed++)
		for (unsigned i = 0; i < WAYS; i += STRIDE)
			bad += share_badly(op, i, seed, jain);
	assert_int_equal(bad, 0);
}

static void test_share(void **state)
{
	(void)state;
	check_share(SRDMA_DESC_WRITE, 0.75);
}

/* The answers of READs have windows of their own. */
static void test_answers(void **state)
{
	(void)state;
	check_share(SRDMA_DESC_READ, 0.6);
}

/* What is lost to somebody on a free way does not narrow the window. */
static void test_attacked(void **state)
{
	(void)state;
	for (unsigned i = 0; i < WAYS; i += STRIDE) {
		struct bottleneck b = ways[i];
		double clean;

		b.flows = 1;
		b.op = SRDMA_DESC_WRITE;
		b.random = 1;
		clean = run(b).used;
		b.one_in = 10;
		assert_true(run(b).used >= 0.6 * clean);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_attacked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
