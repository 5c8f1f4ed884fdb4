/*
 * Transfers with somebody on the wire: see transfer.h. SRDMA_PACKETS=N makes
 * the longest ones N packets long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "transfer.h"

enum {
	PLAIN = 1 << SRDMA_DESC_WRITE | 1 << SRDMA_DESC_WRITE_IMM |
		1 << SRDMA_DESC_READ | 1 << SRDMA_DESC_SEND |
		1 << SRDMA_DESC_SEND_IMM,
};
enum { PACKETS = 20000, REQUESTS = 20000, ALL = (1 << TRANSFER_FAULTS) - 1 };

static uint64_t packets(void)
{
	const char *text = getenv("SRDMA_PACKETS");

	return text ? strtoull(text, NULL, 0) : PACKETS;
}

/* Goodput of this transfer, against the same one undisturbed. */
static double goodput(struct transfer how)
{
	static struct transfer t;
	double clean_ns;

	t = how;
	t.one_in = 0;
	transfer_run(&t);
	clean_ns = (double)t.ns;
	t = how;
	transfer_run(&t);
	print_message("faults %#x, 1 in %u, ops %#x, window %d: %.3f, slowest "
		      "request %.1f us\n",
		      how.kinds, how.one_in, how.ops, how.window,
		      clean_ns / (double)t.ns, (double)t.slowest / 1000);
	return clean_ns / (double)t.ns;
}

static void test_goodput(void **state)
{
	static const struct {
		uint32_t kinds, ops;
		int window;
		double least;
	} rows[] = {
		{ TRANSFER_FLIP, PLAIN, 64, 0.6 },
		{ TRANSFER_DROP, PLAIN, 64, 0.6 },
		{ TRANSFER_TWICE, PLAIN, 64, 0.6 },
		{ TRANSFER_REPLACE, PLAIN, 64, 0.6 },
		{ ALL, PLAIN, 64, 0.6 },
		{ ALL, PLAIN, 1024, 0.6 },
		{ ALL, 1 << SRDMA_DESC_WRITE, 64, 0.6 },
		{ ALL, 1 << SRDMA_DESC_SEND, 64, 0.6 },
		/* One atomic that is not answered stops those behind it: window
		 * (b) of the protocol, section 5. */
		{ ALL, 0, 64, 0.4 },
		{ ALL, 0, 1024, 0.4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_true(goodput((struct transfer){
				    .seed = i,
				    .requests = REQUESTS,
				    .kinds = rows[i].kinds,
				    .ops = rows[i].ops,
				    .one_in = 10,
				    .window = rows[i].window }) >=
			    rows[i].least);
}

/* Whatever is on the wire, all of it arrives. */
static void test_many_packets(void **state)
{
	static struct transfer t;
	static const uint32_t rates[] = { 10, 100, 1000 };

	(void)state;
	for (int i = 0; i < 6; i++) {
		t = (struct transfer){ .seed = 100 + (uint64_t)i,
				       .packets = packets(),
				       .kinds = ALL,
				       .one_in = rates[i / 2],
				       .window = i % 2 ? 1024 : 64 };
		transfer_run(&t);
		assert_true(t.sent >= t.packets);
		print_message(
			"1 in %u: %llu of %llu hit, %llu requests, "
			"slowest %.1f us\n",
			t.one_in, (unsigned long long)t.hit,
			(unsigned long long)t.sent,
			(unsigned long long)(t.side[0].ended + t.side[1].ended),
			(double)t.slowest / 1000);
	}
}

/* Whenever the wire is cut, another one is connected, and nothing is lost. */
static void test_cut_wires(void **state)
{
	static struct transfer t;
	uint64_t cuts = 0;

	(void)state;
	for (int i = 0; i < 8; i++) {
		t = (struct transfer){ .seed = 200 + (uint64_t)i,
				       .packets = packets(),
				       .kinds = i & 1 ? ALL : 0,
				       .one_in = i & 1 ? 20 : 0,
				       .window = i & 2 ? 1024 : 64,
				       .cut_every = i & 4 ? 20 : 200 };
		transfer_run(&t);
		print_message("%llu cuts, %llu packets, slowest %.1f us\n",
			      (unsigned long long)t.cuts,
			      (unsigned long long)t.sent,
			      (double)t.slowest / 1000);
		cuts += t.cuts;
	}
	assert_true(cuts >= 1000);
}

static void check_hole(struct transfer *t, uint64_t most_ms)
{
	transfer_run(t);
	assert_true(t->dark);
	for (int i = 0; i < 2; i++) {
		uint32_t why = t->side[i].failed;

		assert_int_equal(t->side[i].ended, t->side[i].posted);
		assert_true(why == SRDMA_REASON_DEADLINE ||
			    why == SRDMA_REASON_NO_RECV_CREDIT ||
			    why == SRDMA_REASON_PEER_SILENT ||
			    why == SRDMA_REASON_PEER_ERROR);
	}
	/* From the last that was heard, a little after it. */
	assert_true(t->p.now <= t->dark + (most_ms + 1) * 1000000);
}

/* Every request ends: after 15 s of silence, or at its deadline. */
static void test_black_hole(void **state)
{
	static struct transfer t;

	(void)state;
	for (uint32_t i = 0; i < 12; i++) {
		t = (struct transfer){ .seed = i,
				       .kinds = ALL,
				       .one_in = i % 2 ? 10 : 0,
				       .hole = 1 + i % 3,
				       .hole_at = 100 + 97 * i };
		if (i / 3 % 2) {
			t.timeout_ms = 200;
			check_hole(&t, 200);
		} else {
			check_hole(&t, 15000);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goodput),
		cmocka_unit_test(test_many_packets),
		cmocka_unit_test(test_cut_wires),
		cmocka_unit_test(test_black_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
