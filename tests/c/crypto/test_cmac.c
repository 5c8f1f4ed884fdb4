/*
 * AES-CMAC contexts: sums use the key that was set last. A context without a
 * key fails.
 */
#include "crypto/cmac.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/cmac_keys.h"
#include "support/failing.h"
#include "crypto/suite.h"

static const uint8_t zero[32], text[] = "a message of more than one block";

static void sum(struct srdma_cmac *c, uint8_t out[SRDMA_CMAC_LEN])
{
	assert_int_equal(srdma_cmac_sum(c, out, text, sizeof(text)), 0);
}

static void test_forget_clears_key(void **state)
{
	static const uint8_t key[32] = "a key that nobody may find later";
	uint8_t got[SRDMA_CMAC_LEN], keyed[SRDMA_CMAC_LEN];

	(void)state;
	for (size_t len = 16; len <= 32; len += 16) {
		struct srdma_cmac c;

		assert_int_equal(srdma_cmac_create(&c, len, NULL), 0);
		assert_int_equal(srdma_cmac_key(&c, key), 0);
		sum(&c, keyed);
		srdma_cmac_forget(&c);
		srdma_cmac_forget(&c);
		assert_int_equal(srdma_cmac_sum(&c, got, text, sizeof(text)),
				 -EIO);
		assert_memory_equal(got, zero, sizeof(got));
		/* the context can be keyed again */
		assert_int_equal(srdma_cmac_key(&c, key), 0);
		sum(&c, got);
		assert_memory_equal(got, keyed, sizeof(got));
		srdma_cmac_destroy(&c);
	}
}

/* If the provider fails to clear the key, the context is destroyed. */
static void test_failed_forget_destroys_context(void **state)
{
	uint8_t out[SRDMA_CMAC_LEN];
	struct srdma_suite_verbs failing;
	struct srdma_cmac c;

	(void)state;
	assert_int_equal(srdma_cmac_create(&c, 16, NULL), 0);
	assert_int_equal(srdma_cmac_key(&c, text), 0);
	failing = *c.verbs;
	failing.forget = failing_forget;
	c.verbs = &failing;
	srdma_cmac_forget(&c);
	assert_null(c.ctx);
	assert_int_equal(srdma_cmac_sum(&c, out, text, sizeof(text)), -EIO);
	assert_memory_equal(out, zero, sizeof(out));
	/* the context can be keyed again */
	assert_int_equal(srdma_cmac_key(&c, text), 0);
	assert_int_equal(srdma_cmac_sum(&c, out, text, sizeof(text)), 0);
	srdma_cmac_destroy(&c);
}

/* Parallel sums equal single sums; without a key both fail. */
static void check_sums(struct srdma_provider *provider, size_t key_len)
{
	enum { STRIDE = 100, LANES = SRDMA_SUITE_LANES };
	uint8_t in[LANES * STRIDE], want[SRDMA_CMAC_LEN];
	uint8_t out[LANES + 1][SRDMA_CMAC_LEN] = { 0 };
	struct srdma_suite_inputs each = { .in = in, .stride = STRIDE };
	struct srdma_cmac c;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	assert_int_equal(srdma_cmac_create(&c, key_len, provider), 0);
	assert_int_equal(srdma_cmac_key(&c, text), 0);
	for (each.len = 0; each.len <= STRIDE; each.len++) {
		each.n = 1 + (unsigned)each.len % LANES;
		assert_int_equal(srdma_cmac_sums(&c, out[0], &each), 0);
		for (unsigned i = 0; i < each.n; i++) {
			assert_int_equal(srdma_cmac_sum(&c, want,
							in + (size_t)i * STRIDE,
							each.len),
					 0);
			assert_memory_equal(out[i], want, sizeof(want));
		}
		assert_memory_equal(out[LANES], zero, sizeof(out[LANES]));
	}
	srdma_cmac_forget(&c);
	each.len = STRIDE;
	each.n = LANES;
	assert_int_equal(srdma_cmac_sums(&c, out[0], &each), -EIO);
	for (int i = 0; i < LANES; i++)
		assert_memory_equal(out[i], zero, sizeof(out[i]));
	srdma_cmac_destroy(&c);
	out[0][0] = 1;
	assert_int_equal(srdma_cmac_sums(&c, out[0], &each), -EIO);
	assert_memory_equal(out[0], zero, sizeof(out[0]));
}

static void test_parallel_sums_equal_single_sums(void **state)
{
	(void)state;
	cmac_keys(check_sums);
}

/*
 * If ipsec-mb refuses a job (lengths have 16 bits), all sums fail and later
 * ones are not affected.
 */
static void test_refused_job_fails_all_sums(void **state)
{
	static uint8_t in[SRDMA_SUITE_LANES][16], huge[1 << 17];
	uint8_t out[SRDMA_SUITE_LANES][SRDMA_CMAC_LEN], want[SRDMA_CMAC_LEN];
	struct srdma_suite_inputs each = { huge, 0, sizeof(huge),
					   SRDMA_SUITE_LANES };
	struct srdma_provider *p;
	struct srdma_cmac c;

	(void)state;
	if (srdma_provider_create(&p, "ipsec-mb")) {
		print_message("ipsec-mb is not available: skipped\n");
		skip();
	}
	assert_int_equal(srdma_cmac_create(&c, 16, p), 0);
	assert_int_equal(srdma_cmac_sum(&c, want, in[0], 16), 0);
	memset(out, 0x5a, sizeof(out));
	assert_int_equal(srdma_cmac_sums(&c, out[0], &each), -EIO);
	for (int i = 0; i < SRDMA_SUITE_LANES; i++)
		assert_memory_equal(out[i], zero, sizeof(out[i]));
	each = (struct srdma_suite_inputs){ in[0], 16, 16, SRDMA_SUITE_LANES };
	assert_int_equal(srdma_cmac_sums(&c, out[0], &each), 0);
	for (int i = 0; i < SRDMA_SUITE_LANES; i++)
		assert_memory_equal(out[i], want, sizeof(want));
	srdma_cmac_destroy(&c);
	srdma_provider_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forget_clears_key),
		cmocka_unit_test(test_failed_forget_destroys_context),
		cmocka_unit_test(test_parallel_sums_equal_single_sums),
		cmocka_unit_test(test_refused_job_fails_all_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
