#include "session/pdkeys.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "crypto/cmac.h"

static struct srdma_pdkeys sample_keys(void)
{
	struct srdma_pdkeys keys = { .mem = "K_PDmem of tests" };

	for (int i = 0; i < SRDMA_GROUP_KEY_LEN; i++)
		keys.pd[i] = (uint8_t)(0x30 + i);
	return keys;
}

static struct srdma_pdkeys_flow sample_flow(void)
{
	struct srdma_pdkeys_flow flow = {
		.receiver.qpn = 0xfedcba,
		.sender.qpn = 0x012345,
		.generation = { 1, 2, 3, 4, 5, 6, 7, 8 },
	};

	for (int i = 0; i < SRDMA_EID_LEN; i++) {
		flow.receiver.eid[i] = (uint8_t)(0xa0 + i);
		flow.sender.eid[i] = (uint8_t)(0xc0 + i);
	}
	return flow;
}

/* from the separate Python reference of 3.1 */
static void test_reference_secrets(void **state)
{
	static const struct {
		size_t len;
		const char *secret;
	} rows[] = {
		{ 16, "6ed8f8ff0edaacc7ed17978f57169774" },
		{ 32, "db8d0650ab5b8db7b9adfec53b454189"
		      "c4d4c101830b1120ea2dab1dd55ef13a" },
	};
	const struct srdma_pdkeys keys = sample_keys();
	const struct srdma_pdkeys_flow flow = sample_flow();

	(void)state;
	for (int i = 0; i < 2; i++) {
		uint8_t secret[32], again[32];
		char hex[65];
		struct srdma_cmac c;

		assert_int_equal(
			srdma_pdkeys_secret(&keys, secret, rows[i].len, &flow),
			0);
		for (size_t k = 0; k < rows[i].len; k++)
			snprintf(hex + 2 * k, 3, "%02x", secret[k]);
		assert_string_equal(hex, rows[i].secret);

		assert_int_equal(srdma_cmac_create(&c, rows[i].len, NULL), 0);
		assert_int_equal(
			srdma_pdkeys_secret_with(&c, &keys, 0, again, &flow),
			0);
		assert_memory_equal(again, secret, rows[i].len);
		srdma_cmac_destroy(&c);
	}
}

/* Every byte of the flow's names and of the parent key matters. */
static void test_every_input_changes_secret(void **state)
{
	const struct srdma_pdkeys keys = sample_keys();
	const struct srdma_pdkeys_flow flow = sample_flow();
	uint8_t own[32], other[32];

	(void)state;
	for (size_t len = 16; len <= 32; len += 16) {
		const size_t parent_at = len == 16 ? 0 : 16;

		assert_int_equal(srdma_pdkeys_secret(&keys, own, len, &flow),
				 0);
		for (size_t i = 0; i < sizeof(flow); i++) {
			struct srdma_pdkeys_flow f = flow;

			((uint8_t *)&f)[i] ^= 1;
			assert_int_equal(
				srdma_pdkeys_secret(&keys, other, len, &f), 0);
			assert_memory_not_equal(own, other, len);
		}
		for (size_t i = 0; i < sizeof(keys); i++) {
			const int counts =
				i >= parent_at && i < parent_at + len;
			struct srdma_pdkeys k = keys;

			((uint8_t *)&k)[i] ^= 1;
			assert_int_equal(
				srdma_pdkeys_secret(&k, other, len, &flow), 0);
			assert_int_equal(memcmp(own, other, len) != 0, counts);
		}
	}
}

static void test_illegal_lengths_are_refused(void **state)
{
	static const size_t bad[] = { 0, 1, 15, 17, 24, 31, 33, 48 };
	static const uint8_t zero[48];
	const struct srdma_pdkeys keys = sample_keys();
	const struct srdma_pdkeys_flow flow = sample_flow();

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t out[48];

		memset(out, 0xee, sizeof(out));
		assert_int_equal(srdma_pdkeys_secret(&keys, out, bad[i], &flow),
				 -EINVAL);
		assert_memory_equal(out, zero, bad[i]);
	}
}

/* Two generations of K_PD, each kept while flows use it. */
static void test_old_key_is_kept_while_used(void **state)
{
	struct srdma_pdkeys keys = sample_keys();
	const struct srdma_pdkeys_flow flow = sample_flow();
	const struct srdma_pdkeys first = keys;
	uint8_t next[SRDMA_GROUP_KEY_LEN], old[16], secret[16];
	static const uint8_t zero[SRDMA_GROUP_KEY_LEN];
	struct srdma_cmac c;

	(void)state;
	memset(next, 0x99, sizeof(next));
	assert_int_equal(srdma_cmac_create(&c, 16, NULL), 0);
	assert_int_equal(srdma_pdkeys_secret(&keys, old, 16, &flow), 0);
	/* unused: nothing is kept */
	assert_int_equal(srdma_pdkeys_rotate(&keys, next), 0);
	assert_memory_equal(keys.before, zero, sizeof(zero));
	assert_int_equal(srdma_pdkeys_bytes(&keys), 64);
	keys = first;
	srdma_pdkeys_hold(&keys, 0);
	srdma_pdkeys_hold(&keys, 0);
	assert_int_equal(srdma_pdkeys_rotate(&keys, next), 0);
	assert_int_equal(keys.serial, 1);
	assert_memory_equal(keys.pd, next, sizeof(next));
	assert_int_equal(srdma_pdkeys_bytes(&keys), 64 + 48);
	assert_int_equal(srdma_pdkeys_rotate(&keys, zero), -EBUSY);
	assert_memory_equal(keys.pd, next, sizeof(next));
	srdma_pdkeys_hold(&keys, 1);
	srdma_pdkeys_release(&keys, 0);
	assert_int_equal(srdma_pdkeys_secret_with(&c, &keys, 0, secret, &flow),
			 0);
	assert_memory_equal(secret, old, sizeof(old));
	assert_int_equal(srdma_pdkeys_secret_with(&c, &keys, 1, secret, &flow),
			 0);
	assert_memory_not_equal(secret, old, sizeof(old));
	srdma_pdkeys_release(&keys, 0);
	assert_memory_equal(keys.before, zero, sizeof(zero));
	srdma_pdkeys_release(&keys, 1);
	assert_memory_equal(keys.pd, next, sizeof(next)); /* the newest stays */
	srdma_cmac_destroy(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_old_key_is_kept_while_used),
		cmocka_unit_test(test_reference_secrets),
		cmocka_unit_test(test_every_input_changes_secret),
		cmocka_unit_test(test_illegal_lengths_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
