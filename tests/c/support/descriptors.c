#include "support/descriptors.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

int count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

void until_descriptors(int n)
{
	for (int i = 0; i < 10000 && count_descriptors() != n; i++)
		usleep(1000);
	assert_int_equal(count_descriptors(), n);
}

struct rlimit permit_descriptors(unsigned n)
{
	struct rlimit before, less;
	int lowest = dup(STDOUT_FILENO); /* that is free */

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	less = before;
	less.rlim_cur = (rlim_t)lowest + n;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
	return before;
}

void restore_descriptors(struct rlimit before)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}
