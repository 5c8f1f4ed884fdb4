/*
 * OpenSSL's functions of ciphers are called directly only if the cipher's
 * provider has all of them.
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

/* --- a provider whose cipher has no functions for packets in pieces -------- */

static int context;

static void *new_context(void *provider)
{
	return provider;
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
	static const OSSL_DISPATCH functions[] = {
		{ OSSL_FUNC_CIPHER_NEWCTX, (void (*)(void))new_context },
		{ OSSL_FUNC_CIPHER_FREECTX, (void (*)(void))free_context },
		{ OSSL_FUNC_CIPHER_CIPHER, (void (*)(void))cipher },
		{ OSSL_FUNC_CIPHER_GET_PARAMS, (void (*)(void))sizes },
		{ 0, NULL },
	};
	static const OSSL_ALGORITHM list[] = {
		{ "other:test-lacking", "provider=test", functions, "" },
		{ NULL, NULL, NULL, NULL },
	};

	(void)provider;
	*no_store = 0;
	return operation == OSSL_OP_CIPHER ? list : NULL;
}

static int start(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *core,
		 const OSSL_DISPATCH **functions, void **provider)
{
	static const OSSL_DISPATCH own[] = {
		{ OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query },
		{ 0, NULL },
	};

	(void)handle;
	(void)core;
	*functions = own;
	*provider = &context;
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

static void test_cipher_without_a_function_is_refused(void **state)
{
	struct srdma_suite s = *srdma_suite_by_name("aes-128-gcm");
	OSSL_PROVIDER *lacking, *normal;
	EVP_CIPHER *found;

	(void)state;
	assert_int_equal(OSSL_PROVIDER_add_builtin(NULL, "lacking", start), 1);
	normal = OSSL_PROVIDER_load(NULL, "default");
	lacking = OSSL_PROVIDER_load(NULL, "lacking");
	assert_true(normal && lacking);
	assert_int_equal(created(&s), 0);
	s.algorithm = "test-lacking";
	found = EVP_CIPHER_fetch(NULL, s.algorithm, NULL);
	assert_non_null(found); /* EVP accepts it */
	EVP_CIPHER_free(found);
	assert_int_equal(created(&s), -EIO);
	OSSL_PROVIDER_unload(lacking);
	OSSL_PROVIDER_unload(normal);
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

static void test_tag_that_is_too_long_is_refused(void **state)
{
	static const uint8_t bytes[EVP_MAX_BLOCK_LENGTH + 1];
	struct srdma_openssl_cipher c;

	(void)state;
	assert_int_equal(srdma_openssl_cipher_create(
				 &c, srdma_suite_by_name("aes-128-gcm")),
			 0);
	assert_int_equal(srdma_openssl_cipher_key(&c, SRDMA_SUITE_OPEN, bytes),
			 0);
	assert_int_equal(
		srdma_openssl_cipher_begin(&c, bytes, bytes, sizeof(bytes)),
		-EIO);
	assert_int_equal(srdma_openssl_cipher_begin(&c, bytes, bytes, 16), 0);
	srdma_openssl_cipher_destroy(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_cipher_of_another_name_or_size_is_refused),
		cmocka_unit_test(test_tag_that_is_too_long_is_refused),
		/* It is the last: it unloads the default provider. */
		cmocka_unit_test(test_cipher_without_a_function_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
