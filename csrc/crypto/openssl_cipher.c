#include "crypto/openssl_cipher.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/provider.h>

/* names: the names of one algorithm, separated by colons. */
static int has_name(const char *names, const char *name)
{
	const size_t len = strlen(name);

	for (; names; names = strchr(names, ':')) {
		names += *names == ':';
		if (strncasecmp(names, name, len) == 0 &&
		    (names[len] == ':' || !names[len]))
			return 1;
	}
	return 0;
}

static void take(struct srdma_openssl_cipher *c, const OSSL_DISPATCH *f)
{
	for (; f->function_id; f++) {
		switch (f->function_id) {
		case OSSL_FUNC_CIPHER_NEWCTX:
			c->new_ctx = OSSL_FUNC_cipher_newctx(f);
			break;
		case OSSL_FUNC_CIPHER_FREECTX:
			c->free_ctx = OSSL_FUNC_cipher_freectx(f);
			break;
		case OSSL_FUNC_CIPHER_ENCRYPT_INIT:
			c->init[SRDMA_SUITE_SEAL] =
				OSSL_FUNC_cipher_encrypt_init(f);
			break;
		case OSSL_FUNC_CIPHER_DECRYPT_INIT:
			c->init[SRDMA_SUITE_OPEN] =
				OSSL_FUNC_cipher_decrypt_init(f);
			break;
		case OSSL_FUNC_CIPHER_UPDATE:
			c->update = OSSL_FUNC_cipher_update(f);
			break;
		case OSSL_FUNC_CIPHER_FINAL:
			c->final = OSSL_FUNC_cipher_final(f);
			break;
		case OSSL_FUNC_CIPHER_GET_CTX_PARAMS:
			c->get = OSSL_FUNC_cipher_get_ctx_params(f);
			break;
		}
	}
}

/* The only entry of the list with this name; NULL if there is none, or if there
 * are several. */
static const OSSL_ALGORITHM *only(const OSSL_ALGORITHM *list, const char *name)
{
	const OSSL_ALGORITHM *found = NULL;

	for (; list && list->algorithm_names; list++) {
		if (!has_name(list->algorithm_names, name))
			continue;
		if (found)
			return NULL;
		found = list;
	}
	return found;
}

/* Takes the functions of the algorithm from the cipher's provider. Returns 1 if
 * all are there. */
static int find(struct srdma_openssl_cipher *c, const char *algorithm)
{
	const OSSL_PROVIDER *p = EVP_CIPHER_get0_provider(c->cipher);
	int no_store = 0;
	const OSSL_ALGORITHM *list =
		OSSL_PROVIDER_query_operation(p, OSSL_OP_CIPHER, &no_store);
	const OSSL_ALGORITHM *a = only(list, algorithm);

	if (a)
		take(c, a->implementation);
	OSSL_PROVIDER_unquery_operation(p, OSSL_OP_CIPHER, list);
	return c->new_ctx && c->free_ctx && c->init[SRDMA_SUITE_SEAL] &&
	       c->init[SRDMA_SUITE_OPEN] && c->update && c->final && c->get;
}

static int make(struct srdma_openssl_cipher *c, const struct srdma_suite *s)
{
	c->cipher = EVP_CIPHER_fetch(NULL, s->algorithm, NULL);
	if (!c->cipher || EVP_CIPHER_get_key_length(c->cipher) != s->key_len ||
	    EVP_CIPHER_get_iv_length(c->cipher) != s->iv_len ||
	    !find(c, s->algorithm))
		return -EIO;
	c->key_len = s->key_len;
	c->iv_len = s->iv_len;
	c->ctx = c->new_ctx(OSSL_PROVIDER_get0_provider_ctx(
		EVP_CIPHER_get0_provider(c->cipher)));
	return c->ctx ? 0 : -ENOMEM;
}

int srdma_openssl_cipher_create(struct srdma_openssl_cipher *c,
				const struct srdma_suite *s)
{
	int r;

	*c = (struct srdma_openssl_cipher){ 0 };
	r = make(c, s);
	if (r)
		srdma_openssl_cipher_destroy(c);
	return r;
}

void srdma_openssl_cipher_destroy(struct srdma_openssl_cipher *c)
{
	if (c->ctx)
		c->free_ctx(c->ctx);
	EVP_CIPHER_free(c->cipher);
	*c = (struct srdma_openssl_cipher){ 0 };
}

int srdma_openssl_cipher_key(struct srdma_openssl_cipher *c,
			     enum srdma_suite_use use, const uint8_t *key)
{
	return c->init[use](c->ctx, key, c->key_len, NULL, 0, NULL) == 1 ? 0
									 : -EIO;
}

static int begin(struct srdma_openssl_cipher *c, enum srdma_suite_use use,
		 const uint8_t *nonce, const OSSL_PARAM *params)
{
	return c->init[use](c->ctx, NULL, 0, nonce, c->iv_len, params) == 1
		       ? 0
		       : -EIO;
}

int srdma_openssl_cipher_begin(struct srdma_openssl_cipher *c,
			       enum srdma_suite_use use, const uint8_t *nonce,
			       const uint8_t *tag, size_t tag_len)
{
	uint8_t expected[EVP_MAX_BLOCK_LENGTH]; /* parameters are not const */

	if (use == SRDMA_SUITE_SEAL)
		return begin(c, use, nonce, NULL);
	if (!tag || tag_len > sizeof(expected))
		return -EIO;
	memcpy(expected, tag, tag_len);
	return begin(c, use, nonce,
		     (const OSSL_PARAM[]){
			     OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG,
						     expected, tag_len),
			     OSSL_PARAM_END });
}

int srdma_openssl_cipher_add(struct srdma_openssl_cipher *c, const uint8_t *ad,
			     size_t len)
{
	size_t done;

	/* The output's size is not that of a buffer: nothing is written. */
	return !len || c->update(c->ctx, NULL, &done,
				 len + EVP_MAX_BLOCK_LENGTH, ad, len) == 1
		       ? 0
		       : -EIO;
}

int srdma_openssl_cipher_text(struct srdma_openssl_cipher *c, uint8_t *out,
			      size_t *done, const uint8_t *in, size_t len)
{
	*done = 0;
	return !len || c->update(c->ctx, out, done, len, in, len) == 1 ? 0
								       : -EIO;
}

int srdma_openssl_cipher_end(struct srdma_openssl_cipher *c, uint8_t *out,
			     size_t room, size_t *done)
{
	return c->final(c->ctx, out, done, room) == 1 ? 0 : -EIO;
}

int srdma_openssl_cipher_judge(struct srdma_openssl_cipher *c, uint8_t *out,
			       size_t room, size_t *done)
{
	return c->final(c->ctx, out, done, room) == 1 ? 0 : -EBADMSG;
}

int srdma_openssl_cipher_tag(struct srdma_openssl_cipher *c, uint8_t *tag,
			     size_t tag_len)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag,
					tag_len),
		OSSL_PARAM_END,
	};

	return c->get(c->ctx, params) == 1 ? 0 : -EIO;
}
