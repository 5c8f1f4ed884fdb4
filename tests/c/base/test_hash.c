/* Buckets of QPNs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

enum { BUCKETS = 8192, QPNS = 4096, MOST = 12 };

/* Number of QPNs in the fullest bucket, of random ones with this remainder. */
static unsigned fullest(uint32_t processes, uint32_t process)
{
	unsigned count[BUCKETS] = { 0 }, most = 0;
	uint64_t random = 1;

	for (int i = 0; i < QPNS; i++) {
		uint32_t qpn, at;

		random = random * 6364136223846793005 + 1442695040888963407;
		qpn = (uint32_t)(random >> 40);
		qpn -= qpn % processes;
		at = srdma_hash_bucket(qpn + process, BUCKETS - 1);
		assert_true(at < BUCKETS);
		if (++count[at] > most)
			most = count[at];
	}
	return most;
}

/* The low 6 bits of all QPNs are equal if 64 processes share the QPNs. */
static void test_qpns_of_a_process_use_all_buckets(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 64; n++)
		for (uint32_t i = 0; i < n; i++)
			assert_in_range(fullest(n, i), 1, MOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_qpns_of_a_process_use_all_buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
