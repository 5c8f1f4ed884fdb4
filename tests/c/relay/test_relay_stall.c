/* Workers that did not run for a time (docs/protocol.md 5, Stalls). The clock of the
 * pair passes at once: both workers stall. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { SILENCE_MS = 15000, PINGS_MS = 10000, MOST_MS = 4 * SILENCE_MS };

/* Drops what side 1 sends while *ctx is not 0. */
static enum srdma_mem_fate mute(void *ctx, struct srdma_mem_datagram *d)
{
	return *(int *)ctx && d->side == 1 ? SRDMA_MEM_DROP : SRDMA_MEM_PASS;
}

/* QP 0 of side 0 waits for its peer, of whom it hears nothing if *gone is not 0. */
static void open_waiting(struct pair *p, int *gone)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .id = 9,
				   .length = 8 };

	pair_defaults(p);
	p->wire.ctx = gone;
	p->wire.fate = mute;
	pair_open(p);
	pair_connect(p, 0);
	recv.local_addr = (uintptr_t)p->side[0].memory;
	pair_post(p, 0, recv, NULL);
	pair_settle(p);
}

/* Steps that are no stall. */
static void pass(struct pair *p, unsigned ms)
{
	for (; ms; ms -= 500)
		pair_wait_ms(p, 500);
}

static void expect_state(struct pair *p, uint32_t state, uint32_t reason)
{
	uint32_t found;

	assert_int_equal(pair_state(p, 0, 0, &found), state);
	assert_int_equal(found, reason);
}

static void test_stall_ends_no_qp(void **state)
{
	const struct srdma_desc send = { .opcode = SRDMA_DESC_SEND,
					 .id = 7,
					 .length = 1 };
	int gone = 0;
	struct pair p;

	(void)state;
	open_waiting(&p, &gone);
	for (int i = 0; i < 3; i++) {
		pair_wait_ms(&p, 2 * SILENCE_MS);
		expect_state(&p, SRDMA_QP_RTS, SRDMA_REASON_NONE);
	}
	pass(&p, 2 * SILENCE_MS);
	pair_post(&p, 1, send, "x");
	pair_settle(&p);
	pair_expect(&p, 1, 7, SRDMA_REASON_NONE);
	pair_expect(&p, 0, 9, SRDMA_REASON_NONE);
	pair_close(&p);
}

/* It has as many PINGs after the stall as without one. */
static void test_peer_that_is_gone_after_a_stall(void **state)
{
	int gone = 0;
	struct pair p;

	(void)state;
	open_waiting(&p, &gone);
	gone = 1;
	pair_wait_ms(&p, SILENCE_MS + 1000);
	pass(&p, PINGS_MS - 500);
	expect_state(&p, SRDMA_QP_RTS, SRDMA_REASON_NONE);
	pass(&p, 1000);
	expect_state(&p, SRDMA_QP_ERR, SRDMA_REASON_PEER_SILENT);
	pair_close(&p);
}

static void test_late_timers_are_no_stall(void **state)
{
	int gone = 0;
	struct pair p;

	(void)state;
	open_waiting(&p, &gone);
	gone = 1;
	for (unsigned ms = 0; ms < SILENCE_MS; ms += 1000)
		pair_wait_ms(&p, 1000);
	pair_wait_ms(&p, 1000);
	expect_state(&p, SRDMA_QP_ERR, SRDMA_REASON_PEER_SILENT);
	pair_close(&p);
}

/* A timer that counts from an old event is due before it is set. */
static void test_timer_of_the_past_is_no_stall(void **state)
{
	struct srdma_env *env;
	struct srdma_qp *qp;
	int gone = 0;
	struct pair p;

	(void)state;
	open_waiting(&p, &gone);
	pass(&p, 3000);
	env = &p.side[0].relay->env;
	qp = srdma_relay_qp(p.side[0].relay, p.side[0].qp[0].qpn);
	srdma_timer_wake(&env->timers, &srdma_qp_core(qp)->timer,
			 env->now - 2 * SRDMA_SECOND);
	pair_run(&p, 1);
	assert_int_equal(env->resumed, 0);
	pair_close(&p);
}

/* A peer that is gone is noticed, though the worker stalls again and again. */
static void test_stalls_are_limited(void **state)
{
	enum { STALL_MS = 5000 };
	int gone = 0;
	struct pair p;

	(void)state;
	open_waiting(&p, &gone);
	gone = 1;
	for (unsigned ms = STALL_MS; ms < MOST_MS; ms += STALL_MS) {
		pair_wait_ms(&p, STALL_MS);
		expect_state(&p, SRDMA_QP_RTS, SRDMA_REASON_NONE);
	}
	pair_wait_ms(&p, STALL_MS);
	expect_state(&p, SRDMA_QP_ERR, SRDMA_REASON_PEER_SILENT);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stall_ends_no_qp),
		cmocka_unit_test(test_peer_that_is_gone_after_a_stall),
		cmocka_unit_test(test_late_timers_are_no_stall),
		cmocka_unit_test(test_timer_of_the_past_is_no_stall),
		cmocka_unit_test(test_stalls_are_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
