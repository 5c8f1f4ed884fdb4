#include "ticks.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"

static const volatile uint64_t *instructions; /* NULL: time is measured */

#if defined(__x86_64__)
static uint64_t now(void)
{
	return __builtin_ia32_rdtsc();
}
#else
static uint64_t now(void)
{
	return clock_now();
}
#endif

uint64_t ticks(void)
{
	return instructions ? *instructions : now();
}

int ticks_count_instructions(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *at;
	int r = 0;

	if (fd < 0)
		return -errno;
	at = mmap(NULL, sizeof(*instructions), PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		r = -errno;
	else
		instructions = at;
	close(fd);
	return r;
}

const char *ticks_unit(void)
{
	return instructions ? "instructions" : "ns";
}

double ticks_to_unit(void)
{
	const uint64_t t = ticks(), n = clock_now();

	if (instructions)
		return 1;
	while (clock_now() - n < 20000000)
		;
	return (double)(clock_now() - n) / (double)(ticks() - t);
}
