/*
 * Timers, compared with a model that searches all of them. A relay with many
 * QPs examines only the QPs whose timer has expired.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/relay_pair.h"
#include "base/timer.h"

/* --- heap ----------------------------------------------------------------- */

enum { TIMERS = 100, STEPS = 200000, SPAN = 500 };

struct model {
	struct srdma_timers timers;
	struct srdma_timer_place heap[TIMERS];
	struct srdma_timer timer[TIMERS];
	uint64_t when[TIMERS]; /* UINT64_MAX: not set */
};

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	*seed = *seed * UINT64_C(6364136223846793005) +
		UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33) % below;
}

static uint64_t earliest(const struct model *m)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < TIMERS; i++)
		first = m->when[i] < first ? m->when[i] : first;
	return first;
}

/* Expects the timers that are due, in order, and no others. */
static void expect_taken(struct model *m, uint64_t now)
{
	uint64_t before = 0;

	for (struct srdma_timer *x = srdma_timers_take(&m->timers, now); x;
	     x = x->next) {
		uint64_t *when = &m->when[x - m->timer];

		assert_int_equal(x->when, *when);
		assert_in_range(*when, before, now);
		assert_int_equal(x->place, 0);
		before = *when;
		*when = UINT64_MAX;
	}
	assert_true(earliest(m) > now);
}

static void test_timers_match_model(void **state)
{
	static struct model m;
	uint64_t seed = 1, now = 0;

	(void)state;
	m.timers.heap = m.heap;
	memset(m.when, 0xff, sizeof(m.when));
	for (int step = 0; step < STEPS; step++) {
		uint32_t i = draw(&seed, TIMERS);
		uint64_t when = now + draw(&seed, SPAN);

		switch (draw(&seed, 8)) {
		case 0:
			srdma_timer_cancel(&m.timers, &m.timer[i]);
			m.when[i] = UINT64_MAX;
			break;
		case 1:
			now += draw(&seed, SPAN / 20);
			expect_taken(&m, now);
			break;
		case 2:
			srdma_timer_wake(&m.timers, &m.timer[i], UINT64_MAX);
			break;
		default:
			srdma_timer_wake(&m.timers, &m.timer[i], when);
			m.when[i] = when < m.when[i] ? when : m.when[i];
		}
		assert_int_equal(srdma_timers_first(&m.timers), earliest(&m));
	}
}

/*
 * A timer that is set again during the walk over expired timers is not visited
 * again in this walk, even if it is due.
 */
static void test_timer_set_again_during_walk(void **state)
{
	struct srdma_timer_place heap[3];
	struct srdma_timer x[3] = { 0 }, *due;
	struct srdma_timers t = { .heap = heap };

	(void)state;
	assert_null(srdma_timers_take(&t, UINT64_MAX - 1));
	for (int i = 0; i < 3; i++)
		srdma_timer_wake(&t, &x[i], 10);
	due = srdma_timers_take(&t, 10);
	for (int i = 0; i < 3; i++, due = due->next) {
		assert_non_null(due);
		srdma_timer_wake(&t, &x[0], 5);
	}
	assert_null(due);
	assert_int_equal(t.count, 1);
	assert_ptr_equal(srdma_timers_take(&t, 5), &x[0]);
	assert_int_equal(srdma_timers_first(&t), UINT64_MAX);
}

/* --- relay ---------------------------------------------------------------- */

enum { IDLE = 4000, TURNS = 8000, TURN_NS = 50000 };

static const struct srdma_stats *stats(const struct pair *p)
{
	return srdma_relay_stats(p->side[0].relay);
}

/* Opens another QP, which waits for messages of its peer. */
static void open_idle(struct pair *p)
{
	const struct srdma_qp_info busy[2] = { p->side[0].qp[0],
					       p->side[1].qp[0] };

	pair_connect(p, 0);
	pair_post(
		p, 0,
		(struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
				     .local_addr = (uintptr_t)p->side[0].memory,
				     .length = 64 },
		NULL);
	pair_run(p, 2);
	p->side[0].qp[0] = busy[0];
	p->side[1].qp[0] = busy[1];
}

/*
 * Opens `idle` QPs and one that repeats an unanswered WRITE. Returns how many
 * timers were examined meanwhile.
 */
static uint64_t looks_beside(int idle)
{
	struct srdma_stats before;
	struct pair p;
	uint64_t looks;

	pair_defaults(&p);
	p.depth = 1;
	p.ring = SRDMA_MAX_RING;
	pair_open(&p);
	pair_connect(&p, 0);
	for (int i = 0; i < idle; i++)
		open_idle(&p);
	pair_wait_ms(&p, 1500); /* let the initial timers expire */
	before = *stats(&p);
	pair_post(
		&p, 0,
		(struct srdma_desc){ .opcode = SRDMA_DESC_WRITE,
				     .local_addr = (uintptr_t)p.side[0].memory,
				     .remote_addr = (uintptr_t)p.side[1].memory,
				     .length = 64 },
		NULL);
	for (int i = 0; i < TURNS; i++) {
		p.now += TURN_NS;
		srdma_relay_run(p.side[0].relay, p.now, 64);
	}
	assert_in_range(stats(&p)->timeouts - before.timeouts, 8, 16);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	looks = stats(&p)->timer_looks - before.timer_looks;
	pair_close(&p);
	return looks;
}

static void test_idle_qps_are_not_examined(void **state)
{
	uint64_t alone = looks_beside(0);

	(void)state;
	assert_in_range(alone, 8, 40);
	assert_int_equal(looks_beside(IDLE), alone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timers_match_model),
		cmocka_unit_test(test_timer_set_again_during_walk),
		cmocka_unit_test(test_idle_qps_are_not_examined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
