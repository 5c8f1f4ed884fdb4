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
