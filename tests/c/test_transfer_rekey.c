/*
 * Transfers with somebody on the wire while keys change all the time
 * (docs/protocol.md 3.5): nothing is lost, and little time. SRDMA_REKEYS=N makes
 * the longest one N epochs long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session.h"
#include "transfer.h"

enum { REKEYS = 10000, SEEDS = 8, ALL = (1 << TRANSFER_FAULTS) - 1 };

static uint64_t rekeys(void)
{
	const char *text = getenv("SRDMA_REKEYS");

	return text ? strtoull(text, NULL, 0) : REKEYS;
}

/* Virtual ns of transfers of all these seeds, on both kinds of wire. All that is
 * asked ends well. An epoch is seen in a round trip, which queues make longer: so
 * few are under way. */
static double run(uint64_t rekey_packets, uint64_t *epochs)
{
	static struct transfer t;
	double ns = 0;

	*epochs = 0;
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
		ns += (double)t.ns;
		*epochs += t.rekeys;
	}
	return ns;
}

/* One packet in 20 is lost: no request is, and the time that epochs cost is less
 * than one part in 20. */
static void test_many_rekeys(void **state)
{
	uint64_t epochs;
	double still = run(0, &epochs), changing;

	(void)state;
	assert_int_equal(epochs, 0);
	changing = run(16, &epochs);
	print_message("%llu epochs, %.4f of the throughput without\n",
		      (unsigned long long)epochs, still / changing);
	assert_true(epochs >= rekeys());
	assert_true(still / changing > 0.95);
}

/* In all key modes, on both kinds of wire, with everything on it. */
static void test_modes(void **state)
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
		cmocka_unit_test(test_many_rekeys),
		cmocka_unit_test(test_modes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
