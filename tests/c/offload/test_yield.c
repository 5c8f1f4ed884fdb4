#include "yield.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
	US = 1000,
	MS = 1000 * US,
	FULL = 50 * US,	 /* time to yield, if work comes meanwhile */
	LEAST = 3 * US,	 /* the shortest such time */
	SLICE = 4 * MS,	 /* of a process that does not yield */
	PAUSE = 250 * MS /* without yields */
};

/* The time for which a worker yields now. */
static uint64_t budget(const struct yield_policy *p)
{
	uint64_t ns = 0;

	while (yield_is_due(p, p->resume, p->resume + ns))
		ns += US / 2;
	return ns;
}

/* `count` yields that took `took` ns each, until one makes a pause. Returns the
 * number of yields, and the time at its end. */
static unsigned yields(struct yield_policy *p, uint64_t *now, uint64_t took,
		       unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		yield_returned(p, *now, *now + took);
		*now += took;
		if (!yield_is_due(p, *now, *now))
			return i + 1;
	}
	return count;
}

static void test_the_time_to_yield_follows_the_waits(void **state)
{
	static const struct {
		uint64_t waited;
		int slept;
		uint64_t want;
	} waits[] = {
		{ 10 * US, 0, FULL },
		{ FULL + 1, 1, FULL / 2 },
		{ 149 * US, 1, FULL / 2 },
		{ 10 * US, 0, FULL },
	};
	struct yield_policy p;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(budget(&p), FULL);
	for (unsigned i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
		yield_wait_ended(&p, waits[i].waited, waits[i].slept);
		assert_int_equal(budget(&p), waits[i].want);
	}
}

/* The time after a long wait is that of long waits, and those after short ones
 * keep theirs. */
static void test_long_waits_have_their_own_time(void **state)
{
	struct yield_policy p;

	(void)state;
	yield_policy_init(&p);
	yield_wait_ended(&p, 150 * US, 1);
	assert_int_equal(budget(&p), FULL);
	for (unsigned i = 0; i < 9; i++)
		yield_wait_ended(&p, MS, 1);
	assert_int_equal(budget(&p), LEAST);
	yield_wait_ended(&p, 60 * US, 1);
	assert_int_equal(budget(&p), FULL / 2);
}

static void test_short_yields_go_on(void **state)
{
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(yields(&p, &now, 40 * US, 10000), 10000);
}

/* A time slice now and then is that of a process which has no part in the
 * traffic. */
static void test_rare_long_yields_go_on(void **state)
{
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	yield_policy_init(&p);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(yields(&p, &now, SLICE, 1), 1);
		assert_true(yield_is_due(&p, now, now));
		assert_int_equal(yields(&p, &now, US, 299), 299);
	}
}

static void test_long_yields_make_a_pause(void **state)
{
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(yields(&p, &now, SLICE, 100), 2);
	assert_false(yield_is_due(&p, now + PAUSE - 1, now + PAUSE - 1));
	assert_true(yield_is_due(&p, now + PAUSE, now + PAUSE));
	/* Still the same process. */
	now += PAUSE;
	assert_int_equal(yields(&p, &now, SLICE, 100), 1);
	/* It has gone. */
	now += PAUSE;
	assert_int_equal(yields(&p, &now, US, 10000), 10000);
	assert_int_equal(yields(&p, &now, SLICE, 100), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_time_to_yield_follows_the_waits),
		cmocka_unit_test(test_long_waits_have_their_own_time),
		cmocka_unit_test(test_short_yields_go_on),
		cmocka_unit_test(test_rare_long_yields_go_on),
		cmocka_unit_test(test_long_yields_make_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
