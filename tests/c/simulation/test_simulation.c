/*
 * Simulations, see sim.h. SRDMA_SEED=N runs the one seed N in this process.
 * SRDMA_SEEDS=N runs N seeds, starting at SRDMA_FIRST (1), in SRDMA_JOBS
 * processes (one per core). The first failing seed is the same for any number
 * of processes.
 *
 * SRDMA_DIGESTS=FILE writes a line "SEED SHA256" for each seed, in the order of
 * seeds. The digest covers a trace of each packet committed to either wire,
 * each completion record that a host polls, each DMA and each connect, with
 * bytes and virtual time (sim_trace.c). It depends on the seed and the code
 * under test only: `make digests` before and after a change shows whether
 * behaviour changed.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "simulation/sim.h"

enum {
	SEEDS = 200,
	JOBS = 64,
	MANY = 1000,	/* seeds for a meaningful average */
	PACKETS = 4500, /* minimal average of packets per seed */
};

/* Shared memory of the processes. */
struct race {
	_Atomic uint64_t next, end; /* seeds that no process has taken yet */
	_Atomic uint64_t failed;    /* lowest failing seed */
	_Atomic uint64_t packets, rekeys, dials, atomics, crashes;
	_Atomic uint64_t running[JOBS];
	uint64_t first;
	uint8_t digest[][SIM_DIGEST_LEN]; /* from seed first on, if traced */
};

static struct race *race;
static volatile uint64_t running;

/* callback of a sanitizer that stops the program */
void __sanitizer_set_death_callback(void (*callback)(void))
	__attribute__((weak));

static void tell_seed(void)
{
	print_error("SRDMA_SEED=%" PRIu64 " reproduces it\n", running);
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

static void run(uint64_t seed, struct sim_sum *sum)
{
	running = seed;
	sim_run(seed, sum);
}

/* --- many seeds ----------------------------------------------------------- */

/* A process takes seeds until none is left or an earlier seed failed. */
static void take_seeds(int job)
{
	struct sim_sum sum;
	uint64_t seed;

	while ((seed = atomic_fetch_add(&race->next, 1)) < race->end &&
	       seed < race->failed) {
		race->running[job] = seed;
		run(seed, &sum);
		if (sim_traced)
			memcpy(race->digest[seed - race->first], sum.digest,
			       sizeof(sum.digest));
		atomic_fetch_add(&race->packets, sum.packets);
		atomic_fetch_add(&race->rekeys, sum.rekeys);
		atomic_fetch_add(&race->dials, sum.dials);
		atomic_fetch_add(&race->atomics, sum.atomics);
		atomic_fetch_add(&race->crashes, sum.crashes);
	}
	race->running[job] = 0;
}

/*
 * The output of each process goes to a file. That of the lowest failing seed is
 * shown.
 */
static pid_t start(int job, FILE *words)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	if (dup2(fileno(words), STDOUT_FILENO) < 0 ||
	    dup2(fileno(words), STDERR_FILENO) < 0)
		_exit(1);
	take_seeds(job); /* a failed check exits the process */
	exit(0);
}

static void show(FILE *words)
{
	char line[1024];

	rewind(words);
	while (fgets(line, sizeof(line), words))
		if (strncmp(line, "[==", 3) && strncmp(line, "[ RUN", 5))
			print_error("%s", line);
}

/* Returns 1 if the process failed with the lowest seed so far. */
static int failed_first(int job, int status)
{
	uint64_t seed;

	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	seed = race->running[job];
	if (WIFSIGNALED(status))
		print_error("signal %d: SRDMA_SEED=%" PRIu64 " reproduces it\n",
			    WTERMSIG(status), seed);
	if (seed >= race->failed)
		return 0;
	race->failed = seed;
	return 1;
}

static void run_jobs(int jobs)
{
	FILE *words[JOBS], *first = NULL;
	pid_t pid[JOBS];
	int job, status;

	for (int i = 0; i < jobs; i++) {
		words[i] = tmpfile();
		assert_non_null(words[i]);
		pid[i] = start(i, words[i]);
	}
	for (int left = jobs; left; left--) {
		pid_t ended = wait(&status);

		for (job = 0; job < jobs - 1 && pid[job] != ended; job++)
			;
		if (failed_first(job, status))
			first = words[job];
	}
	if (first)
		show(first);
	for (int i = 0; i < jobs; i++)
		fclose(words[i]);
}

static size_t race_len(uint64_t seeds)
{
	return sizeof(*race) + (sim_traced ? seeds * SIM_DIGEST_LEN : 0);
}

static void open_race(uint64_t first, uint64_t seeds)
{
	race = mmap(NULL, race_len(seeds), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(race != MAP_FAILED);
	race->next = race->first = first;
	race->end = first + seeds;
	race->failed = UINT64_MAX;
}

/* Writes the digests of the seeds from first on to SRDMA_DIGESTS. */
static void write_digests(uint64_t first, uint64_t seeds,
			  uint8_t digest[][SIM_DIGEST_LEN])
{
	FILE *f;

	if (!sim_traced)
		return;
	f = fopen(getenv("SRDMA_DIGESTS"), "w");
	assert_non_null(f);
	for (uint64_t i = 0; i < seeds; i++) {
		fprintf(f, "%" PRIu64 " ", first + i);
		for (int k = 0; k < SIM_DIGEST_LEN; k++)
			fprintf(f, "%02x", digest[i][k]);
		fputc('\n', f);
	}
	assert_int_equal(fclose(f), 0);
}

static void test_simulations(void **state)
{
	const uint64_t first = number_of("SRDMA_FIRST", 1);
	const uint64_t seeds = number_of("SRDMA_SEEDS", SEEDS);
	uint64_t jobs = number_of("SRDMA_JOBS",
				  (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	struct sim_sum sum;
	uint64_t each;

	(void)state;
	if (getenv("SRDMA_SEED")) {
		run(number_of("SRDMA_SEED", 1), &sum);
		write_digests(running, 1, &sum.digest);
		print_message("%" PRIu64 " packets\n", sum.packets);
		return;
	}
	open_race(first, seeds);
	run_jobs((int)(jobs < JOBS ? jobs : JOBS));
	if (race->failed != UINT64_MAX)
		fail_msg("SRDMA_SEED=%" PRIu64 " %s reproduces it",
			 race->failed, program_invocation_name);
	write_digests(first, seeds, race->digest);
	each = seeds ? race->packets / seeds : 0;
	print_message("%" PRIu64 " simulations of %" PRIu64
		      " packets each, %" PRIu64 " epochs, %" PRIu64
		      " atomics, %" PRIu64 " reconnects, %" PRIu64 " crashes\n",
		      seeds, each, race->rekeys, race->atomics, race->dials,
		      race->crashes);
	if (seeds >= MANY)
		assert_true(each >= PACKETS);
	munmap(race, race_len(seeds));
}

/*
 * A seed determines a simulation completely, so that a failure can be
 * reproduced.
 */
static void test_same_seed_gives_same_result(void **state)
{
	struct sim_sum a, b;

	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		run(seed, &a);
		run(seed, &b);
		assert_memory_equal(&a, &b, sizeof(a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_seed_gives_same_result),
		cmocka_unit_test(test_simulations),
	};
	int one = getenv("SRDMA_SEED") != NULL;

	sim_traced = getenv("SRDMA_DIGESTS") != NULL;
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(tell_seed);
	signal(SIGABRT, on_abort);
	/* Keep freed memory for the next simulation, to avoid page faults. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	return _cmocka_run_group_tests("simulations", tests + one,
				       2 - (size_t)one, NULL, NULL);
}
