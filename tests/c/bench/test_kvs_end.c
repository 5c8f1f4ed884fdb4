/*
 * An idle end of the key-value store (bench/kvs/end.h) yields for a while,
 * polls once more and then sleeps. If that poll finds work, it starts yielding
 * again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "end.h"
#include "support/shm_leg.h"

enum { YIELDS = 64 };

struct news {
	int looked, found;
};

static int look(void *arg)
{
	struct news *news = arg;

	news->looked++;
	return news->found;
}

static void wait_times(struct kvs_end *end, struct news *news, int n)
{
	while (n--)
		kvs_end_wait(end, 0, look, news);
}

static void test_polls_before_sleeping(void **state)
{
	const struct shm_leg *f = *state;
	struct kvs_end end = { .leg = f->host };
	struct news news = { 0 };

	wait_times(&end, &news, YIELDS - 1);
	assert_int_equal(news.looked, 0);
	wait_times(&end, &news, 3);
	assert_int_equal(news.looked, 3);
}

static void test_work_restarts_yielding(void **state)
{
	const struct shm_leg *f = *state;
	struct kvs_end end = { .leg = f->host };
	struct news news = { .found = 1 };

	for (int i = 1; i <= 3; i++) {
		wait_times(&end, &news, YIELDS - 1);
		assert_int_equal(news.looked, i - 1);
		wait_times(&end, &news, 1);
		assert_int_equal(news.looked, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_polls_before_sleeping,
						shm_leg_setup,
						shm_leg_teardown),
		cmocka_unit_test_setup_teardown(test_work_restarts_yielding,
						shm_leg_setup,
						shm_leg_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
