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

enum { REKEYS = 10000, ALL = (1 << TRANSFER_FAULTS) - 1 };

static uint64_t rekeys(void)
{
	const char *text = getenv("SRDMA_REKEYS");

	return text ? strtoull(text, NULL, 0) : REKEYS;
}

/* Virtual ns per request. */
static double pace(struct transfer *t)
{
	transfer_run(t);
	assert_int_equal(t->side[0].ended, t->requests);
	assert_int_equal(t->side[1].ended, t->requests);
	return (double)t->ns / (double)t->requests;
}

/* One packet in 20 is lost: all requests end well, and at most one part in 20
 * later than without epochs. */
static void test_many_rekeys(void **state)
{
	static struct transfer t;
	static const int windows[] = { 64, 1024 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		const uint64_t wanted = i ? rekeys() / 2 : rekeys();
		const struct transfer how = { .seed = 7 + (uint64_t)i,
					      .requests = wanted * 12,
					      .kinds = TRANSFER_DROP,
					      .one_in = 20,
					      .window = windows[i] };
		double still, changing;

		t = how;
		t.requests /= 2;
		still = pace(&t);
		assert_int_equal(t.rekeys, 0);
		t = how;
		t.rekey_packets = 16;
		changing = pace(&t);
		print_message("window %d: %llu epochs, %llu packets, %.4f of "
			      "the throughput without\n",
			      windows[i], (unsigned long long)t.rekeys,
			      (unsigned long long)t.sent, still / changing);
		assert_true(t.rekeys >= wanted);
		assert_true(still / changing > 0.95);
	}
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
