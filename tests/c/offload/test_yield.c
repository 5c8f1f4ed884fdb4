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
	SLICES = 37,	 /* waits of a slice each that make the first pause */
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

static void ends(struct yield_policy *p, uint64_t waited, int slept)
{
	yield_wait_ended(p, &(struct yield_wait){ 0, waited, slept });
}

/* Waits that spend `spent` ns in yields each, `count` or until one makes a
 * pause. Returns their number, and the time at their end. */
static unsigned waits(struct yield_policy *p, uint64_t *now, uint64_t spent,
		      unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const struct yield_wait wait = { *now, *now + spent, 0 };

		yield_returned(p, spent / 4);
		yield_returned(p, spent - spent / 4);
		yield_wait_ended(p, &wait);
		*now += spent;
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
	} cases[] = {
		{ 10 * US, 0, FULL },
		{ FULL + 1, 1, FULL / 2 },
		{ 149 * US, 1, FULL / 2 },
		{ 10 * US, 0, FULL },
	};
	struct yield_policy p;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(budget(&p), FULL);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		ends(&p, cases[i].waited, cases[i].slept);
		assert_int_equal(budget(&p), cases[i].want);
	}
}

/* The time after a long wait is that of long waits, and the time after a short
 * one stays. */
static void test_long_waits_have_their_own_time(void **state)
{
	struct yield_policy p;

	(void)state;
	yield_policy_init(&p);
	ends(&p, 150 * US, 1);
	assert_int_equal(budget(&p), FULL);
	for (unsigned i = 0; i < 9; i++)
		ends(&p, MS, 1);
	assert_int_equal(budget(&p), LEAST);
	ends(&p, 60 * US, 1);
	assert_int_equal(budget(&p), FULL / 2);
}

static void test_short_yields_go_on(void **state)
{
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(waits(&p, &now, 100 * US, 10000), 10000);
}

/* Some waits have a time slice of a process without a part in the traffic,
 * however long. */
static void test_rare_long_yields_go_on(void **state)
{
	static const uint64_t slices[] = { SLICE, 1000 * MS };
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		yield_policy_init(&p);
		for (unsigned n = 0; n < 1000; n++) {
			assert_int_equal(waits(&p, &now, slices[i], 1), 1);
			assert_true(yield_is_due(&p, now, now));
			assert_int_equal(waits(&p, &now, 5 * US, 9), 9);
		}
	}
}

static void test_long_yields_make_a_pause(void **state)
{
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(waits(&p, &now, SLICE, 100), SLICES);
	assert_false(yield_is_due(&p, now + PAUSE - 1, now + PAUSE - 1));
	assert_true(yield_is_due(&p, now + PAUSE, now + PAUSE));
	/* Still the same process. */
	now += PAUSE;
	assert_int_equal(waits(&p, &now, SLICE, 100), 1);
	/* It has gone. */
	now += PAUSE;
	assert_int_equal(waits(&p, &now, US, 1000), 1000);
	assert_in_range(waits(&p, &now, SLICE, 100), SLICES - 1, SLICES);
}

/* A pause says nothing of the traffic long after it. */
static void test_another_traffic_is_judged_anew(void **state)
{
	static const struct {
		uint64_t later; /* than the end of the pause, ns */
		unsigned want;	/* number of waits until the next one */
	} cases[] = {
		{ 0, 1 },
		{ PAUSE - SLICE - 1, 1 },
		{ PAUSE, SLICES },
		{ 1000ULL * MS, SLICES },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct yield_policy p;
		uint64_t now = 1;

		yield_policy_init(&p);
		assert_int_equal(waits(&p, &now, SLICE, 100), SLICES);
		now += PAUSE + cases[i].later;
		assert_int_equal(waits(&p, &now, SLICE, 100), cases[i].want);
	}
}

/* Waits without a yield say nothing of yields. */
static void test_waits_of_a_pause_do_not_count(void **state)
{
	struct yield_policy p;
	uint64_t now = 1;

	(void)state;
	yield_policy_init(&p);
	assert_int_equal(waits(&p, &now, SLICE, 100), SLICES);
	for (unsigned i = 0; i < 1000; i++)
		ends(&p, 40 * US, 1);
	now += PAUSE;
	assert_int_equal(waits(&p, &now, SLICE, 100), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_time_to_yield_follows_the_waits),
		cmocka_unit_test(test_long_waits_have_their_own_time),
		cmocka_unit_test(test_short_yields_go_on),
		cmocka_unit_test(test_rare_long_yields_go_on),
		cmocka_unit_test(test_long_yields_make_a_pause),
		cmocka_unit_test(test_another_traffic_is_judged_anew),
		cmocka_unit_test(test_waits_of_a_pause_do_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
