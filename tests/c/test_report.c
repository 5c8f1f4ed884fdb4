/* The line of statistics (docs/protocol.md 13.2). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"
#include "report.h"

/* More than comes together in years, in bytes and in events at 10^7 a second. */
static void fill(struct srdma_stats *stats)
{
	uint64_t *counters = (uint64_t *)stats;

	for (unsigned i = 0; i < srdma_stats_count(); i++) {
		const char *name = srdma_stats_name(i);

		counters[i] = name && strstr(name, "bytes") ? UINT64_MAX
							    : UINT64_C(1) << 53;
	}
}

/* A pipe takes 4,096 bytes whole: the counters may not grow out of them. */
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
	fill(&stats);
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	len = report_format(line, &r);
	assert_int_equal(len, strlen(line));
	assert_string_equal(line + len - 2, "}\n");
	for (unsigned i = 0; i < srdma_stats_count(); i++)
		if (srdma_stats_name(i))
			assert_non_null(strstr(line, srdma_stats_name(i)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longest_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
