/*
 * MAC suites by OpenSSL's EVP_MAC: HMAC and CMAC, truncated to the tag length
 * (docs/protocol.md 4.5).
 */
#include "crypto/suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "wire/wire.h"

struct srdma_suite_ctx {
	EVP_MAC_CTX *mac; /* keyed */
	enum srdma_suite_use use;
	int ready; /* 1: the key was set, which also starts a message */
	size_t key_len;
	size_t full; /* output bytes of the algorithm */
	uint32_t tag_len;
};

static void mac_destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	EVP_MAC_CTX_free(c->mac); /* wipes the key schedule */
	free(c);
}

/* Returns a keyed context, or NULL on failure. */
static EVP_MAC_CTX *keyed(const struct srdma_suite *s, const uint8_t *key)
{
	char primitive[32] = "";
	OSSL_PARAM params[3]; /* CMAC reads the cipher, HMAC the digest */
	EVP_MAC *mac = EVP_MAC_fetch(NULL, s->algorithm, NULL);
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;

	strncpy(primitive, s->primitive, sizeof(primitive) - 1);
	params[0] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER,
						     primitive, 0);
	params[1] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST,
						     primitive, 0);
	params[2] = OSSL_PARAM_construct_end();
	if (ctx && EVP_MAC_init(ctx, key, s->key_len, params) != 1) {
		EVP_MAC_CTX_free(ctx);
		ctx = NULL;
	}
	EVP_MAC_free(mac);
	return ctx;
}

static int mac_create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		      const struct srdma_suite_key *k)
{
	const struct srdma_suite *s = k->suite;
	struct srdma_suite_ctx *c;

	(void)p;
	*ctx = NULL;
	if (!srdma_suite_tag_ok(s, k->tag_len))
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->use = k->use;
	c->key_len = s->key_len;
	c->full = s->tag_len;
	c->tag_len = k->tag_len;
	c->mac = keyed(s, k->key);
	if (!c->mac || EVP_MAC_CTX_get_mac_size(c->mac) != c->full) {
		mac_destroy(c);
		return -EIO;
	}
	c->ready = 1;
	*ctx = c;
	return 0;
}

static int mac_again(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c->use = SRDMA_SUITE_NO_KEY;
	if (EVP_MAC_init(c->mac, k->key, c->key_len, NULL) != 1)
		return -EIO;
	c->ready = 1;
	c->tag_len = k->tag_len;
	c->use = k->use;
	return 0;
}

/* Overwrites the key schedule with that of an all-zero key. */
static int mac_forget(struct srdma_suite_ctx *c)
{
	static const uint8_t zero[SRDMA_SUITE_MAX_KEY];

	c->use = SRDMA_SUITE_NO_KEY;
	return EVP_MAC_init(c->mac, zero, c->key_len, NULL) == 1 ? 0 : -EIO;
}

/* Starts a message, unless the call that set the key did. Returns 1 or 0. */
static int start(struct srdma_suite_ctx *c)
{
	const int ready = c->ready;

	c->ready = 0;
	return ready || EVP_MAC_init(c->mac, NULL, 0, NULL) == 1;
}

/* Computes the MAC of ad | in at full length. */
static int compute(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		   const struct srdma_suite_io *io, uint8_t *code)
{
	size_t n = 0;

	if (c->use != use || !start(c) ||
	    EVP_MAC_update(c->mac, io->ad, io->ad_len) != 1 ||
	    (io->in_len && EVP_MAC_update(c->mac, io->in, io->in_len) != 1) ||
	    EVP_MAC_final(c->mac, code, &n, SRDMA_MAX_TAG) != 1 || n != c->full)
		return -EIO;
	return 0;
}

static int mac_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = compute(c, SRDMA_SUITE_SEAL, io, code);

	return srdma_suite_shorten(r, code, tag, c->tag_len);
}

static int mac_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = compute(c, SRDMA_SUITE_OPEN, io, code);

	return srdma_suite_judge(r, code, tag, c->tag_len);
}

const struct srdma_suite_verbs srdma_suite_mac = {
	.create = mac_create,
	.again = mac_again,
	.forget = mac_forget,
	.seal = mac_seal,
	.open = mac_open,
	.destroy = mac_destroy,
};
