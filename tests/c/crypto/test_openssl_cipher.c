/*
 * OpenSSL's functions of ciphers are called directly only if the cipher's
 * provider has all of them, once. A packet is not opened without a tag.
 */
#include "crypto/openssl_cipher.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/provider.h>

/* --- a provider whose cipher can lack functions ----------------------------- */

static OSSL_DISPATCH functions[10];

static struct {
	int context;
	int without; /* no context: there is no memory */
	int twice;   /* the algorithm is listed twice */
} lacking;

static void *new_context(void *provider)
{
	return lacking.without ? NULL : provider;
}

static void free_context(void *c)
{
	(void)c;
}

static int cipher(void *c, unsigned char *out, size_t *done, size_t room,
		  const unsigned char *in, size_t len)
{
	(void)c;
	if (room < len)
		return 0;
	memcpy(out, in, len);
	*done = len;
	return 1;
}

static int init(void *c, const unsigned char *key, size_t key_len,
		const unsigned char *iv, size_t iv_len,
		const OSSL_PARAM params[])
{
	(void)c;
	(void)key;
	(void)key_len;
	(void)iv;
	(void)iv_len;
	(void)params;
	return 1;
}

static int finish(void *c, unsigned char *out, size_t *done, size_t room)
{
	(void)c;
	(void)out;
	(void)room;
	*done = 0;
	return 1;
}

static int get(void *c, OSSL_PARAM params[])
{
	(void)c;
	(void)params;
	return 1;
}

/* The sizes of AES-128-GCM. */
static int sizes(OSSL_PARAM *params)
{
	static const struct {
		const char *name;
		size_t value;
	} known[] = {
		{ OSSL_CIPHER_PARAM_BLOCK_SIZE, 1 },
		{ OSSL_CIPHER_PARAM_KEYLEN, 16 },
		{ OSSL_CIPHER_PARAM_IVLEN, 12 },
	};

	for (int i = 0; i < 3; i++) {
		OSSL_PARAM *p = OSSL_PARAM_locate(params, known[i].name);

		if (p && !OSSL_PARAM_set_size_t(p, known[i].value))
			return 0;
	}
	return 1;
}

static const OSSL_ALGORITHM *query(void *provider, int operation, int *no_store)
{
	static const OSSL_ALGORITHM list[] = {
		{ "TEST-lacking", "provider=test,fips=yes", functions, "" },
		{ "other:test-lacking", "provider=test", functions, "" },
		/* begins like the other's name, as AES-128-GCM-SIV does */
		{ "test-lacking-SIV", "provider=test", functions, "" },
		{ NULL, NULL, NULL, NULL },
	};

	(void)provider;
	*no_store = 1; /* the next fetch asks again */
	return operation == OSSL_OP_CIPHER ? list + !lacking.twice : NULL;
}

static int start(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *core,
		 const OSSL_DISPATCH **answers, void **provider)
{
	static const OSSL_DISPATCH own[] = {
		{ OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query },
		{ 0, NULL },
	};

	(void)handle;
	(void)core;
	*answers = own;
	*provider = &lacking.context;
	return 1;
}

/* --- tests ----------------------------------------------------------------- */

static int created(const struct srdma_suite *s)
{
	static const struct srdma_openssl_cipher nothing;
	struct srdma_openssl_cipher c;
	const int r = srdma_openssl_cipher_create(&c, s);

	if (r)
		assert_memory_equal(&c, &nothing, sizeof(c));
	srdma_openssl_cipher_destroy(&c);
	return r;
}

/* Gives the cipher all its functions but number i; i < 0: all. */
static void leave_out(int i)
{
	static const OSSL_DISPATCH all[] = {
		{ OSSL_FUNC_CIPHER_NEWCTX, (void (*)(void))new_context },
		{ OSSL_FUNC_CIPHER_FREECTX, (void (*)(void))free_context },
		{ OSSL_FUNC_CIPHER_ENCRYPT_INIT, (void (*)(void))init },
		{ OSSL_FUNC_CIPHER_DECRYPT_INIT, (void (*)(void))init },
		{ OSSL_FUNC_CIPHER_UPDATE, (void (*)(void))cipher },
		{ OSSL_FUNC_CIPHER_FINAL, (void (*)(void))finish },
		{ OSSL_FUNC_CIPHER_GET_CTX_PARAMS, (void (*)(void))get },
		{ OSSL_FUNC_CIPHER_CIPHER, (void (*)(void))cipher },
		{ OSSL_FUNC_CIPHER_GET_PARAMS, (void (*)(void))sizes },
	};
	int n = 0;

	for (int k = 0; k < (int)(sizeof(all) / sizeof(all[0])); k++)
		if (k != i)
			functions[n++] = all[k];
	functions[n] = (OSSL_DISPATCH){ 0, NULL };
}

/* The test provider, in place of the default one. */
static void test_provider_that_lacks_something_is_refused(void **state)
{
	enum { NEEDED = 7 };
	struct srdma_suite s = *srdma_suite_by_name("aes-128-gcm");
	OSSL_PROVIDER *test;

	(void)state;
	assert_int_equal(OSSL_PROVIDER_add_builtin(NULL, "test", start), 1);
	test = OSSL_PROVIDER_load(NULL, "test");
	assert_non_null(test);
	s.algorithm = "test-lacking";
	for (int i = 0; i < NEEDED; i++) {
		leave_out(i);
		assert_int_equal(created(&s), -EIO);
	}
	leave_out(-1);
	assert_int_equal(created(&s), 0);
	lacking.without = 1;
	assert_int_equal(created(&s), -ENOMEM);
	lacking.without = 0;
	lacking.twice = 1;
	assert_int_equal(created(&s), -EIO);
	lacking.twice = 0;
	assert_int_equal(created(&s), 0);
	OSSL_PROVIDER_unload(test);
}

static void test_cipher_of_another_name_or_size_is_refused(void **state)
{
	struct srdma_suite s = *srdma_suite_by_name("aes-128-gcm");

	(void)state;
	s.algorithm = "no such algorithm";
	assert_int_equal(created(&s), -EIO);
	s.algorithm = "AES-256-GCM";
	assert_int_equal(created(&s), -EIO);
	s.algorithm = "aes-128-gcm"; /* case does not matter */
	assert_int_equal(created(&s), 0);
	s.algorithm = "id-aes128-GCM"; /* a second name of the same */
	assert_int_equal(created(&s), 0);
	s.iv_len = 13;
	assert_int_equal(created(&s), -EIO);
}

static void test_tag_to_open_is_needed_and_not_too_long(void **state)
{
	static const uint8_t bytes[EVP_MAX_BLOCK_LENGTH + 1];
	const enum srdma_suite_use use = SRDMA_SUITE_OPEN;
	struct srdma_openssl_cipher c;

	(void)state;
	assert_int_equal(srdma_openssl_cipher_create(
				 &c, srdma_suite_by_name("aes-128-gcm")),
			 0);
	assert_int_equal(srdma_openssl_cipher_key(&c, use, bytes), 0);
	assert_int_equal(srdma_openssl_cipher_begin(&c, use, bytes, bytes,
						    sizeof(bytes)),
			 -EIO);
	assert_int_equal(srdma_openssl_cipher_begin(&c, use, bytes, NULL, 16),
			 -EIO);
	assert_int_equal(srdma_openssl_cipher_begin(&c, use, bytes, bytes, 16),
			 0);
	srdma_openssl_cipher_destroy(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_cipher_of_another_name_or_size_is_refused),
		cmocka_unit_test(test_tag_to_open_is_needed_and_not_too_long),
		/* The last one: OpenSSL does not load its default provider
		 * once another one was loaded. */
		cmocka_unit_test(test_provider_that_lacks_something_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
