/*
 * Storms: see storm.h. SRDMA_SEED=N runs the one seed N; SRDMA_SEEDS=N runs
 * so many, from SRDMA_FIRST (1) on; else as many as a few seconds take.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "mutant.h"
#include "storm.h"

enum { SEEDS = 400, SECONDS = 20 };

static volatile uint64_t running;

#ifdef SRDMA_MUTANTS
int srdma_mutant;
#endif

/* Of a sanitizer that stops the program. */
void __sanitizer_set_death_callback(void (*callback)(void))
	__attribute__((weak));

static void tell_seed(void)
{
	print_error("SRDMA_SEED=%llu shows it again\n",
		    (unsigned long long)running);
}

static void on_abort(int sig)
{
	(void)sig;
	tell_seed();
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* SRDMA_MUTANT=N in a build that has mutants. */
static void choose_mutant(void)
{
	uint64_t n = number_of("SRDMA_MUTANT", 0);

#ifdef SRDMA_MUTANTS
	assert_true(n < SRDMA_MUTANTS_END);
	srdma_mutant = (int)n;
#else
	assert_int_equal(n, 0);
#endif
}

static void test_storms(void **state)
{
	uint64_t first = number_of("SRDMA_FIRST", 1);
	uint64_t seeds = number_of("SRDMA_SEEDS", SEEDS);
	time_t until = getenv("SRDMA_SEEDS") ? 0 : time(NULL) + SECONDS;

	(void)state;
	choose_mutant();
	if (getenv("SRDMA_SEED")) {
		first = number_of("SRDMA_SEED", 1);
		seeds = 1;
	}
	for (uint64_t i = 0; i < seeds; i++) {
		if (until && time(NULL) > until)
			break;
		running = first + i;
		storm_run(first + i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storms),
	};

	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(tell_seed);
	signal(SIGABRT, on_abort);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
