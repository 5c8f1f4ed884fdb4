/*
 * Transfers with an attacker on the wire, see transfer.h. SRDMA_PACKETS=N makes
 * the longest transfers N packets long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "simulation/transfer.h"

enum {
	PLAIN = 1 << SRDMA_DESC_WRITE | 1 << SRDMA_DESC_WRITE_IMM |
		1 << SRDMA_DESC_READ | 1 << SRDMA_DESC_SEND |
		1 << SRDMA_DESC_SEND_IMM,
	ATOMICS = 1 << SRDMA_DESC_COMPARE_SWAP | 1 << SRDMA_DESC_FETCH_ADD,
	EACH = PLAIN | ATOMICS,
};
enum { PACKETS = 20000, REQUESTS = 8000, ALL = (1 << TRANSFER_FAULTS) - 1 };

/*
 * With sanitizers each run takes four times as long, and the ratios are the
 * same. There, all faults at once suffice.
 */
#ifdef SRDMA_SANITIZED
enum { FIRST_FAULT = TRANSFER_FAULTS };
#else
enum { FIRST_FAULT = 0 };
#endif

static uint64_t packets(void)
{
	const char *text = getenv("SRDMA_PACKETS");

	return text ? strtoull(text, NULL, 0) : PACKETS;
}

static double run_ns(struct transfer how, struct transfer *t)
{
	*t = how;
	transfer_run(t);
	return (double)t->ns;
}

/*
 * Compares the goodput of this transfer under each kind of fault, and under all
 * of them, with that of the undisturbed transfer.
 */
static void check_goodput(struct transfer how, double least)
{
	static struct transfer t;
	double clean = run_ns(how, &t);

	how.one_in = 10;
	for (int i = FIRST_FAULT; i <= TRANSFER_FAULTS; i++) {
		double goodput;

		how.kinds = i < TRANSFER_FAULTS ? 1u << i : ALL;
		goodput = clean / run_ns(how, &t);
		print_message(
			"%llu us, window %d, ops %#x, faults %#x: %.3f, "
			"slowest request %.1f us, %llu + %llu time-outs\n",
			(unsigned long long)how.latency / 1000, how.window,
			how.ops, how.kinds, goodput, (double)t.slowest / 1000,
			(unsigned long long)t.stats[0].timeouts,
			(unsigned long long)t.stats[1].timeouts);
		assert_true(goodput >= least);
	}
}

/*
 * One packet in 10 is hit, on wires with short and long latency, which keep or
 * may change the order of packets.
 */
static void test_goodput_under_faults(void **state)
{
	static const uint32_t ops[] = { 1 << SRDMA_DESC_WRITE,
					1 << SRDMA_DESC_READ,
					1 << SRDMA_DESC_SEND, PLAIN };

	(void)state;
	for (unsigned i = 0; i < 16; i++)
		check_goodput(
			(struct transfer){ .seed = i,
					   .requests = i / 8 ? 3 * REQUESTS
							     : REQUESTS,
					   .ops = ops[i % 4],
					   .window = i / 4 % 2 ? 1024 : 64,
					   .latency = i / 8 ? 100000 : 5000 },
			0.6);
}

/*
 * A quarter of the usual buffers, on a wire with a short latency: the requester
 * must not send more than the responder can keep.
 */
static void test_goodput_with_few_buffers(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		check_goodput((struct transfer){ .seed = 30 + i,
						 .requests = REQUESTS,
						 .ops = PLAIN,
						 .bufs = 256,
						 .window = i ? 1024 : 64,
						 .latency = 5000 },
			      0.6);
}

/*
 * An unanswered atomic blocks the atomics behind it once as many as the peer
 * keeps results are outstanding (docs/protocol.md 5, window b); the queue is as
 * long. Transfers of atomics only have six times as many requests: on a wire
 * with a short latency, a timeout for a lost last packet takes as long as 2,000
 * atomics.
 */
static void test_goodput_of_atomics(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++)
		check_goodput(
			(struct transfer){ .seed = 16 + i,
					   .requests = i & 1 ? 6 * REQUESTS
							     : REQUESTS,
					   .ops = i & 1 ? ATOMICS : EACH,
					   .window = i & 2 ? 1024 : 64,
					   .depth = TRANSFER_SLOTS,
					   .latency = i & 4 ? 100000 : 5000 },
			0.6);
}

/* Everything arrives under all faults. */
static void test_everything_arrives_under_faults(void **state)
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

/* Each cut wire is reconnected, and nothing is lost. */
static void test_cut_wires_lose_nothing(void **state)
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
	/*
	 * measured from the last packet, which was received shortly after
	 * `dark`
	 */
	assert_true(t->p.now <= t->dark + (most_ms + 1) * 1000000);
}

/* Every request completes: after 15 s of silence, or at its deadline. */
static void test_requests_complete_in_black_hole(void **state)
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
		cmocka_unit_test(test_goodput_under_faults),
		cmocka_unit_test(test_goodput_with_few_buffers),
		cmocka_unit_test(test_goodput_of_atomics),
		cmocka_unit_test(test_everything_arrives_under_faults),
		cmocka_unit_test(test_cut_wires_lose_nothing),
		cmocka_unit_test(test_requests_complete_in_black_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
