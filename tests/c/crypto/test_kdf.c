#include "crypto/kdf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "crypto/cmac.h"
#include "support/cmac_keys.h"

/* vectors of tests/reference, the second implementation of 3.1 */
static const struct {
	const char *parent, *context, *out;
} vectors[] = {
	{ "03a4c7736d9b9fafda5d58194770c004", "", "d7" },
	{ "6ac57e2e1df20afe440b2be3e2feaeb2", "",
	  "b635df22c060dff82ac390177d0e4ebde2f714c02f184f551f70d33f" },
	{ "66174ae5746a0bd852ad1d6d287a6d39", "",
	  "8e594569b1ab5c4c83fbe0a5915f5a62422c84544e54ae9f41d5d60d"
	  "32b5230dc4b56ffc3a62df4e469741d5" },
	{ "8425694cab69be71108c23e7bed8fe89",
	  "c31c75908edd7a779dafd0aed065907cba", "79" },
	{ "8afc3b538a53112fce3081bf343b5c03",
	  "2ddc798f1bc459ccedd4bc4e4e31f13599",
	  "6c661b6b6354cfed837b2810e3093bb848d8277318a6cbc15913cbd4" },
	{ "d24b17653b7e4e9cf99922cfe021073b",
	  "77d53bea5e1d7a7310397b78b4085d3b93",
	  "4498603ddc18dddfc8d79cdb48f740d3b3fa157ad19b8dc0b5d302eb"
	  "d8dfe50d7733bf1982e329d1d49a2e7a" },
	{ "3cdda1e168483442de4204f48dc02b69",
	  "cc61d054aa93ea7ada1840d3f1832d320d9cd8b0726c70cab931750f"
	  "15355bba77931f62494a59ef4146ec90a0dd4d5a25d79a446a4dafd7"
	  "00c894eb9d9cb1d3",
	  "9d" },
	{ "5b7a64b0fc620f738af719273acb5c33",
	  "3b2d497994ae6464a63851f32915ec3b950751625e05fa681e8a2703"
	  "0daf066b98d19a6970349ab4728d4b8444d4840d4f06a75ffaaa3aa8"
	  "f6dff0dbfdef6b85",
	  "05dd919f9313644b80b33663b7628834c3dd0fef195f5df74d7f4a9a" },
	{ "f1c701423aef9d16ce77f7a46e8748ca",
	  "13a38bc46d5ca47b7213a4d5b0470a1a169a37716b535bff7b8ed54e"
	  "61a6978cae1d5359446ea5fe40eedcc6d3159194982ecaa10849a53d"
	  "d24509f6f6f3a64d",
	  "fb96da9ccb33d247560619dc5bb317065eca8dca6adab141285783a0"
	  "f6941a77898452d4a961f44062964e4a" },
	{ "ea663d5e6c9bb180ebec1125be87d863b996a809c5a285a443999fe6"
	  "afd1b0af",
	  "", "1a" },
	{ "034e58377ea9ec13770dd0e14999f0c13f3530ca7607375e10e298db"
	  "4e23c7c0",
	  "", "23710f5ac62525a1a1a615fb291a31257f9457075fad72474316858d" },
	{ "d56099d6fd218dd886a1876797f931d1a1d5b590b7d1431fc4019598"
	  "14f77b16",
	  "",
	  "c14ddc9b98489043ecfc148756509a823d7df28a581b436a83282bdc"
	  "11602ef5a77893893041b57c320b32e1" },
	{ "327738e800b811ddc193112531eaaf541d49314954409abe0747eea3"
	  "6cb7b74b",
	  "b7df5d1f74081af9709a0b6c204fba22b2", "f8" },
	{ "264b63e9d2f90486393ce051c3da2d82366d754da7f6d716222843f2"
	  "d0acc57d",
	  "89383360fefa4bafd7e3b2fe56e7b6cee3",
	  "c4931eadc83085238156cde6fb95b8571f88098870d9dc4876720fcc" },
	{ "1a4bb5d127239906be83e73ce194218e8d0ebfdb567d37ac34062510"
	  "2dcf2d99",
	  "eb9643252576f10fbdd19c23b9e34cbdf3",
	  "cde2e107a436eca3b2a998597a0c151587e7cabfcb60c7d214539584"
	  "d5f10eb70f1818cb3e188a3ea359c1f9" },
	{ "aea4ecf0f0e437914144a4c48505e5f15a869b9852ff2a2797e92acb"
	  "79d0f1e7",
	  "c8ebcc47fdf5e0057e9c4914e2e5aa63db5df8e4e2f943646c18dcee"
	  "33afd66ad3f87849f326e53560e933e408203721f5b15a81f3744128"
	  "caddfe69e5822642",
	  "ab" },
	{ "249855ad4d01b542aae258811ba022dcb3792fd56b107b65a75838ad"
	  "a843f6f8",
	  "bbd4c95e2cce83d9273976b5fbb46cbeb8d6d32add50ebd28867c67e"
	  "dded58fd17bf9e459c50ab6142b475723ee24ef865aa40f38ca81101"
	  "10e118f9c410f14a",
	  "c68a76a199aca73f7a22ff560e4649d75c6e3e1e988851c64ecc7da0" },
	{ "5008c6018ca681fe153c7ab17299bdbe7894597f2e5f5d9ebf09f823"
	  "5a3444ee",
	  "05fc2658b574761ca4fb0e5944c19d443903c8a767b40c145f8d0724"
	  "13491d7d9eba79b8fae81d4ade84571060d2bfd38b9a4ead5609cef9"
	  "db9c997ed3a4ea6e",
	  "088556d91febaef52e545febb1d65410542cbe5d746c199a35afe949"
	  "6c1c0e8870e9b4bd687fe72044d2bfa4" },
};

static size_t unhex(uint8_t *out, const char *hex)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		char pair[3] = { hex[2 * i], hex[2 * i + 1], 0 };

		out[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return n;
}

/* review A30 */
static void test_reference_vectors(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint8_t parent[32], context[64], want[255], out[255];
		size_t parent_len = unhex(parent, vectors[i].parent);
		size_t n = unhex(want, vectors[i].out);
		const struct srdma_kdf_info info = {
			.label = "traffic",
			.context = context,
			.context_len = unhex(context, vectors[i].context),
		};

		assert_int_equal(srdma_kdf(out, n, parent, parent_len, &info),
				 0);
		assert_memory_equal(out, want, n);
	}
}

/* OpenSSL's KBKDF with context | L | K(0) as its context. */
static void kbkdf(uint8_t *out, size_t n, uint8_t *key, size_t key_len)
{
	uint8_t info[16 + 4 + 16] = "0123456789abcdef", k0[32];
	uint8_t fixed[] = "traffic\0"
			  "0123456789abcdef\0\0\0";
	char mac[] = "CMAC", mode[] = "counter";
	char cipher[] = "AES-128-CBC", label[] = "traffic";
	int off = 0;
	size_t k0_len = 0;
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "KBKDF", NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);

	if (key_len == 32)
		memcpy(cipher, "AES-256-CBC", sizeof(cipher));
	fixed[26] = info[18] = (uint8_t)(n * 8 >> 8);
	fixed[27] = info[19] = (uint8_t)(n * 8);
	assert_non_null(EVP_Q_mac(NULL, "CMAC", NULL, cipher, NULL, key,
				  key_len, fixed, 28, k0, sizeof(k0), &k0_len));
	assert_int_equal(k0_len, 16);
	memcpy(info + 20, k0, 16);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string("mac", mac, 0),
		OSSL_PARAM_construct_utf8_string("mode", mode, 0),
		OSSL_PARAM_construct_utf8_string("cipher", cipher, 0),
		OSSL_PARAM_construct_octet_string("key", key, key_len),
		OSSL_PARAM_construct_octet_string("salt", label, 7),
		OSSL_PARAM_construct_octet_string("info", info, sizeof(info)),
		OSSL_PARAM_construct_int("use-l", &off),
		OSSL_PARAM_construct_end(),
	};
	assert_int_equal(EVP_KDF_derive(ctx, out, n, params), 1);
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
}

static void check_lengths(struct srdma_provider *provider, size_t key_len)
{
	const struct srdma_kdf_info info = {
		.label = "traffic",
		.context = (const uint8_t *)"0123456789abcdef",
		.context_len = 16,
	};
	uint8_t key[32] = "sixteen bytes   and sixteen more";
	struct srdma_cmac c;

	assert_int_equal(srdma_cmac_create(&c, key_len, provider), 0);
	for (size_t n = 1; n <= 255; n++) {
		uint8_t out[256] = { [255] = 0x77 }, want[255];

		out[n] = 0x77;
		assert_int_equal(srdma_kdf_with(&c, out, n, key, &info), 0);
		kbkdf(want, n, key, key_len);
		assert_memory_equal(out, want, n);
		assert_int_equal(out[n], 0x77);
	}
	srdma_cmac_destroy(&c);
}

static void test_every_length_equals_openssl(void **state)
{
	(void)state;
	cmac_keys(check_lengths);
}

static void test_argument_limits(void **state)
{
	static const struct {
		size_t out_len, parent_len, context_len;
		const char *label;
		int want;
	} rows[] = {
		{ 16, 16, 64, "12345678901234567890123456789012", 0 },
		{ 16, 16, 64, "123456789012345678901234567890123", -EINVAL },
		{ 16, 16, 65, "x", -EINVAL },
		{ 0, 16, 0, "x", -EINVAL },
		{ 256, 16, 0, "x", -EINVAL },
		{ 16, 0, 0, "x", -EINVAL },
		{ 16, 15, 0, "x", -EINVAL },
		{ 16, 24, 0, "x", -EINVAL },
		{ 16, 64, 0, "x", -EINVAL },
	};
	uint8_t context[65] = { 0 }, parent[64] = { 1 }, out[256];
	static const uint8_t zero[256];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct srdma_kdf_info info = {
			.label = rows[i].label,
			.context = context,
			.context_len = rows[i].context_len,
		};

		memset(out, 0x5a, sizeof(out));
		assert_int_equal(srdma_kdf(out, rows[i].out_len, parent,
					   rows[i].parent_len, &info),
				 rows[i].want);
		if (rows[i].want)
			assert_memory_equal(out, zero, rows[i].out_len);
	}
}

/* Every input matters, including the requested length. */
/* review A23 */
static void test_every_input_changes_output(void **state)
{
	uint8_t context[2] = { 1, 2 }, parent[32] = { 9 }, out[6][16];
	uint8_t longer[32];
	struct srdma_kdf_info info = { "ab", context, 2 };

	(void)state;
	assert_int_equal(srdma_kdf(out[0], 16, parent, 16, &info), 0);
	assert_int_equal(srdma_kdf(out[1], 16, parent, 32, &info), 0);
	info.label = "ac";
	assert_int_equal(srdma_kdf(out[2], 16, parent, 16, &info), 0);
	info.label = "ab";
	info.context_len = 1;
	assert_int_equal(srdma_kdf(out[3], 16, parent, 16, &info), 0);
	info.context_len = 2;
	context[1] ^= 1;
	assert_int_equal(srdma_kdf(out[4], 16, parent, 16, &info), 0);
	context[1] ^= 1;
	assert_int_equal(srdma_kdf(longer, 32, parent, 16, &info), 0);
	memcpy(out[5], longer, 16);
	for (int i = 0; i < 6; i++)
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(out[i], out[j], 16);
}

/*
 * A context that is keyed again for each parent key gives the same keys as a
 * new context per parent key.
 */
static void test_reused_context(void **state)
{
	(void)state;
	for (size_t len = 16; len <= 32; len += 16) {
		uint8_t key[32] = { 1 }, want[32];
		const struct srdma_kdf_info info = { "node", key, 8 };
		struct srdma_cmac c;

		assert_int_equal(srdma_cmac_create(&c, len, NULL), 0);
		for (int i = 0; i < 100; i++) {
			assert_int_equal(srdma_kdf(want, len, key, len, &info),
					 0);
			assert_int_equal(
				srdma_kdf_with(&c, key, len, key, &info),
				0); /* in place */
			assert_memory_equal(key, want, len);
		}
		assert_int_equal(srdma_kdf_with(&c, key, 0, key, &info),
				 -EINVAL);
		srdma_cmac_destroy(&c);
	}
}

static void test_cmac_key_lengths(void **state)
{
	static const size_t lens[] = { 0, 15, 17, 24, 33 };

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct srdma_cmac c;

		assert_int_equal(srdma_cmac_create(&c, lens[i], NULL), -EINVAL);
		assert_null(c.ctx);
		srdma_cmac_destroy(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference_vectors),
		cmocka_unit_test(test_every_length_equals_openssl),
		cmocka_unit_test(test_argument_limits),
		cmocka_unit_test(test_every_input_changes_output),
		cmocka_unit_test(test_reused_context),
		cmocka_unit_test(test_cmac_key_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
