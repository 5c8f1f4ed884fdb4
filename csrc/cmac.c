#include "cmac.h"

#include <errno.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "bytes.h"

/* A context without a key, or NULL. */
static EVP_MAC_CTX *unkeyed(size_t key_len)
{
	char cipher[] = "AES-128-CBC", cipher_256[] = "AES-256-CBC";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(
			OSSL_MAC_PARAM_CIPHER,
			key_len == 16 ? cipher : cipher_256, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "CMAC", NULL);
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;

	EVP_MAC_free(mac);
	if (ctx && EVP_MAC_CTX_set_params(ctx, params) == 1)
		return ctx;
	EVP_MAC_CTX_free(ctx);
	return NULL;
}

int srdma_cmac_create(struct srdma_cmac *c, size_t key_len)
{
	*c = (struct srdma_cmac){ 0 };
	if (key_len != 16 && key_len != 32)
		return -EINVAL;
	c->ctx = unkeyed(key_len);
	if (!c->ctx)
		return -EIO;
	c->key_len = key_len;
	return 0;
}

void srdma_cmac_destroy(struct srdma_cmac *c)
{
	EVP_MAC_CTX_free(c->ctx); /* cleanses the key schedule */
	*c = (struct srdma_cmac){ 0 };
}

int srdma_cmac_key(struct srdma_cmac *c, const uint8_t *key)
{
	if (!c->ctx)
		c->ctx = unkeyed(c->key_len);
	if (c->ctx && EVP_MAC_init(c->ctx, key, c->key_len, NULL) == 1)
		return 0;
	/* OpenSSL 3.0 crashes on a context whose last key failed. */
	EVP_MAC_CTX_free(c->ctx);
	c->ctx = NULL;
	return -EIO;
}

void srdma_cmac_forget(struct srdma_cmac *c)
{
	static const uint8_t zero[32];

	/* One that fails is without a context, and so without a key. */
	(void)srdma_cmac_key(c, zero);
}

int srdma_cmac_sum(struct srdma_cmac *c, uint8_t out[SRDMA_CMAC_LEN],
		   const uint8_t *in, size_t len)
{
	size_t n = 0;

	if (c->ctx && EVP_MAC_init(c->ctx, NULL, 0, NULL) == 1 &&
	    EVP_MAC_update(c->ctx, in, len) == 1 &&
	    EVP_MAC_final(c->ctx, out, &n, SRDMA_CMAC_LEN) == 1 &&
	    n == SRDMA_CMAC_LEN)
		return 0;
	srdma_wipe(out, SRDMA_CMAC_LEN);
	return -EIO;
}
