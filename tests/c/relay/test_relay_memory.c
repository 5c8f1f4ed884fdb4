/* INIT without memory: it is refused with a named cause; the relay goes on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

/* A send queue of this depth is allocated by mmap(). */
enum { DEPTH = 4096, RING = 4 * DEPTH };

static struct pair p;
static struct srdma_leg *leg;

static void open_leg(void)
{
	struct srdma_leg_params params = { .ring = RING,
					   .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;

	assert_int_equal(
		srdma_relay_leg_open(p.side[0].relay, &params, &leg, &answer),
		0);
}

static int init_qp(uint32_t depth, struct srdma_qp_info *info)
{
	const struct srdma_qp_params params = { .sq = depth, .rq = 1 };

	return srdma_relay_qp_init(p.side[0].relay, leg, &params, info);
}

/* Bytes of address space in use. */
static rlim_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void test_init_without_memory_is_refused(void **state)
{
	struct rlimit before, tight;
	struct srdma_qp_info info;
	int err;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	open_leg();
	assert_int_equal(init_qp(1, &info), 0);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	tight = before;
	tight.rlim_cur = address_space();
	assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
	err = init_qp(DEPTH, &info);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(err, -ENOMEM);
	assert_string_equal(srdma_relay_why(p.side[0].relay),
			    "no memory for a QP");
	assert_int_equal(init_qp(DEPTH, &info), 0);
	pair_close(&p);
}

#ifdef SRDMA_SANITIZED
/* A sanitizer's allocator ends the program when there is no memory. */
static int limit_works(void)
{
	return 0;
}
#else
/* 0: the process gets memory beyond the limit, as in an emulator. */
static int limit_works(void)
{
	const size_t much = 64 << 20;
	struct rlimit before, tight;
	void *at;

	if (getrlimit(RLIMIT_AS, &before))
		return 0;
	tight = before;
	tight.rlim_cur = address_space();
	if (setrlimit(RLIMIT_AS, &tight))
		return 0;
	at = mmap(NULL, much, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	setrlimit(RLIMIT_AS, &before);
	if (at == MAP_FAILED)
		return 1;
	munmap(at, much);
	return 0;
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init_without_memory_is_refused),
	};

	if (!limit_works()) {
		puts("RLIMIT_AS cannot be tested under a sanitizer or an emulator");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
