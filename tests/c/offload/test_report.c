/* The line of statistics: the counters of docs/local-interface.md 3.7. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "options.h"
#include "report.h"

/* All counters at their maximum fit into a line. */
static void test_longest_line(void **state)
{
	char name[sizeof(((struct options *)0)->name)], line[REPORT_MAX];
	struct srdma_stats stats;
	const struct report r = {
		.name = name,
		.uptime_ns = UINT64_MAX,
		.qps = UINT32_MAX,
		.stats = &stats,
	};
	int len;

	(void)state;
	memset(&stats, 0xff, sizeof(stats));
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	len = report_format(line, &r);
	assert_int_equal(len, strlen(line));
	assert_string_equal(line + len - 2, "}\n");
	for (unsigned i = 0; i < srdma_stats_count(); i++)
		if (srdma_stats_name(i))
			assert_non_null(strstr(line, srdma_stats_name(i)));
}

static size_t take_all(int fd, char *out, size_t size)
{
	ssize_t n, got = 0;

	while ((n = read(fd, out + got, size - (size_t)got)) > 0)
		got += n;
	return (size_t)got;
}

/* Runs f with stdout replaced by a pipe of 4,096 bytes. */
static void with_narrow_stdout(void (*f)(int reader))
{
	int fd[2], saved = dup(STDOUT_FILENO);

	assert_int_equal(pipe(fd), 0);
	assert_true(fcntl(fd[1], F_SETPIPE_SZ, 4096) == 4096);
	assert_int_equal(fcntl(fd[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(dup2(fd[1], STDOUT_FILENO), STDOUT_FILENO);
	f(fd[0]);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(fd[0]);
	close(fd[1]);
}

/*
 * A line for which the pipe has no room is dropped as a whole, never in part.
 */
static void slow_reader(int reader)
{
	struct report_out *out = report_out_create();
	static char taken[4 * REPORT_MAX], line[REPORT_MAX];
	struct srdma_stats stats;
	const struct report r = {
		.name = "a-name-that-makes-the-line-longer-than-one-page",
		.stats = &stats,
	};
	size_t len, got;

	memset(&stats, 0xff, sizeof(stats));
	len = (size_t)report_format(line, &r);
	assert_in_range(len, 4097, 8191);
	assert_non_null(out);
	report_print(&r, out);
	report_print(&r, out); /* lost */
	got = take_all(reader, taken, sizeof(taken));
	assert_int_equal(got, 4096);
	for (int i = 0; i < 8; i++) {
		report_print(&r, out);
		got += take_all(reader, taken + got, sizeof(taken) - got);
	}
	assert_true(got >= 2 * len);
	assert_memory_equal(taken, line, len);
	assert_memory_equal(taken + len, line, len);
	report_out_destroy(out);
}

/* RFC 5042 R2.2.7-1 */
static void test_slow_reader_loses_whole_lines(void **state)
{
	(void)state;
	with_narrow_stdout(slow_reader);
}

static struct report_out *shared_out;

static void print_one(void)
{
	static const struct srdma_stats stats;

	report_print(&(struct report){ .name = "a", .stats = &stats },
		     shared_out);
}

/*
 * A process that is killed by SIGPIPE while it prints, and therefore holds the
 * lock, does not block the others.
 */
static void killed_at_its_turn(int reader)
{
	static char taken[REPORT_MAX];
	int broken[2], status;
	size_t len;
	pid_t child;

	shared_out = report_out_create();
	assert_non_null(shared_out);
	assert_int_equal(pipe(broken), 0);
	close(broken[0]);
	child = fork();
	if (child == 0) {
		signal(SIGPIPE, SIG_DFL);
		dup2(broken[1], STDOUT_FILENO);
		print_one();
		_exit(0);
	}
	close(broken[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
	print_one();
	len = take_all(reader, taken, sizeof(taken));
	assert_in_range(len, 1, sizeof(taken));
	assert_int_equal(taken[0], '{');
	assert_int_equal(taken[len - 1], '\n');
	report_out_destroy(shared_out);
}

static void test_process_killed_while_printing(void **state)
{
	(void)state;
	with_narrow_stdout(killed_at_its_turn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longest_line),
		cmocka_unit_test(test_slow_reader_loses_whole_lines),
		cmocka_unit_test(test_process_killed_while_printing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
