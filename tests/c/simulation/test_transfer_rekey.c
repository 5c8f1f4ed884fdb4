/*
 * Transfers under loss while keys change continually (docs/protocol.md 3.5): no
 * request is lost, and little time is lost. SRDMA_REKEYS=N makes the longest
 * transfer N epochs long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session/session.h"
#include "simulation/transfer.h"

enum { REKEYS = 10000, SEEDS = 8, ALL = (1 << TRANSFER_FAULTS) - 1 };

static uint64_t rekeys(void)
{
	const char *text = getenv("SRDMA_REKEYS");

	return text ? strtoull(text, NULL, 0) : REKEYS;
}

/*
 * Runs a transfer per seed, on both kinds of wire, and stores its virtual time
 * in ns. All requests must succeed. Few requests are outstanding, because
 * queues extend the RTT and an epoch needs a round trip to be acknowledged.
 * Returns the number of epochs.
 */
static uint64_t run(uint64_t rekey_packets, double ns[SEEDS])
{
	static struct transfer t;
	uint64_t epochs = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		t = (struct transfer){ .seed = seed,
				       .requests = rekeys() * 20 / SEEDS,
				       .kinds = TRANSFER_DROP,
				       .one_in = 20,
				       .window = seed % 2 ? 1024 : 64,
				       .depth = 64,
				       .rekey_packets = rekey_packets };
		transfer_run(&t);
		for (int side = 0; side < 2; side++) {
			assert_int_equal(t.side[side].ended, t.requests);
			assert_int_equal(t.side[side].failed, 0);
		}
		ns[seed] = (double)t.ns;
		epochs += t.rekeys;
	}
	return epochs;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * With one lost packet in 20 no request fails, and epochs cost less than a
 * twentieth of the time. Epochs change which packets the seed loses, and a
 * difference of a few timeouts changes its time by 5 %. The median over the
 * seeds is therefore compared.
 */
static void test_many_epochs_cost_little_time(void **state)
{
	double still[SEEDS], changing[SEEDS], ratio[SEEDS], median;
	uint64_t epochs;

	(void)state;
	assert_int_equal(run(0, still), 0);
	epochs = run(16, changing);
	for (int i = 0; i < SEEDS; i++)
		ratio[i] = still[i] / changing[i];
	qsort(ratio, SEEDS, sizeof(*ratio), by_value);
	median = (ratio[SEEDS / 2 - 1] + ratio[SEEDS / 2]) / 2;
	print_message("%llu epochs, %.4f of the throughput without (%.4f to "
		      "%.4f)\n",
		      (unsigned long long)epochs, median, ratio[0],
		      ratio[SEEDS - 1]);
	assert_true(epochs >= rekeys());
	assert_true(median > 0.95);
}

/* All key modes, on both kinds of wire, under all faults. */
static void test_epochs_in_all_modes_under_faults(void **state)
{
	static struct transfer t;
	static const struct {
		uint8_t mode, shared;
	} modes[] = {
		{ SRDMA_MODE_BASIC, 0 },
		{ SRDMA_MODE_PD, 0 },
		{ SRDMA_MODE_PD, 1 },
		{ SRDMA_MODE_MEM, 0 },
		{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 0 },
		{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 1 },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(modes) / sizeof(modes[0]); i++) {
		t = (struct transfer){ .seed = i,
				       .requests = 1000,
				       .kinds = ALL,
				       .one_in = 10,
				       .window = i % 2 ? 1024 : 64,
				       .rekey_packets = 10,
				       .mode = modes[i / 2].mode,
				       .shared = modes[i / 2].shared };
		transfer_run(&t);
		assert_true(t.rekeys > 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_epochs_cost_little_time),
		cmocka_unit_test(test_epochs_in_all_modes_under_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
