/*
 * AEAD suites by OpenSSL's EVP_CIPHER. GMAC and Poly1305 are the same ciphers
 * with all input as associated data and an empty text (docs/protocol.md 4.5).
 * All rows have tags of 16 bytes, EVP's default. OCB encodes the tag length in
 * the nonce, so another length would have to be set before the nonce.
 */
#include "crypto/suite.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/bytes.h"

struct srdma_suite_ctx {
	EVP_CIPHER_CTX *cipher; /* keyed; each packet sets the nonce */
	enum srdma_suite_use use;
	int tag_len;
};

static void aead_destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	EVP_CIPHER_CTX_free(c->cipher); /* wipes the key schedule */
	free(c);
}

/* Sets cipher, direction and key, and checks that OpenSSL's sizes are the
 * row's. */
static int set_key(EVP_CIPHER_CTX *ctx, const struct srdma_suite *s,
		   enum srdma_suite_use use, const uint8_t *key)
{
	EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, s->algorithm, NULL);
	int ok = cipher && EVP_CIPHER_get_key_length(cipher) == s->key_len &&
		 EVP_CIPHER_get_iv_length(cipher) == s->iv_len &&
		 EVP_CipherInit_ex2(ctx, cipher, key, NULL, use, NULL) == 1;

	EVP_CIPHER_free(cipher);
	return ok ? 0 : -EIO;
}

static int aead_create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		       const struct srdma_suite_key *k)
{
	struct srdma_suite_ctx *c;
	int r;

	(void)p;
	*ctx = NULL;
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->use = k->use;
	c->tag_len = (int)k->tag_len;
	c->cipher = EVP_CIPHER_CTX_new();
	r = c->cipher ? set_key(c->cipher, k->suite, k->use, k->key) : -ENOMEM;
	if (r) {
		aead_destroy(c);
		return r;
	}
	*ctx = c;
	return 0;
}

static int aead_again(struct srdma_suite_ctx *c,
		      const struct srdma_suite_key *k)
{
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c->use = SRDMA_SUITE_NO_KEY;
	if (EVP_CipherInit_ex2(c->cipher, NULL, k->key, NULL, k->use, NULL) !=
	    1)
		return -EIO;
	c->tag_len = (int)k->tag_len;
	c->use = k->use;
	return 0;
}

/* Overwrites the key schedule with that of an all-zero key. */
static int aead_forget(struct srdma_suite_ctx *c)
{
	static const uint8_t zero[SRDMA_SUITE_MAX_KEY];

	c->use = SRDMA_SUITE_NO_KEY;
	return EVP_CipherInit_ex2(c->cipher, NULL, zero, NULL, -1, NULL) == 1
		       ? 0
		       : -EIO;
}

/* One EVP update. out NULL: associated data. An empty input is skipped. */
static int update(EVP_CIPHER_CTX *ctx, uint8_t *out, int *done,
		  const uint8_t *in, size_t len)
{
	*done = 0;
	if (len == 0)
		return 1;
	return len <= INT_MAX &&
	       EVP_CipherUpdate(ctx, out, done, in, (int)len) == 1;
}

/* Sets the nonce, adds the associated data and processes the text into out
 * (NULL: the text is more associated data). *done: bytes written to out; OCB
 * holds back an incomplete last block. */
static int start(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		 const struct srdma_suite_io *io, uint8_t *out, int *done)
{
	return c->use == use &&
	       EVP_CipherInit_ex2(c->cipher, NULL, NULL, io->nonce, -1, NULL) ==
		       1 &&
	       update(c->cipher, NULL, done, io->ad, io->ad_len) &&
	       update(c->cipher, out, done, io->in, io->in_len);
}

/* Writes the rest of the text and computes or checks the tag. 0; -EBADMSG if
 * EVP refuses, as it does for a wrong tag; -EIO if the length of the text is
 * wrong. */
static int finish(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		  uint8_t *out, int done)
{
	uint8_t nothing[EVP_MAX_BLOCK_LENGTH];
	int n;

	if (EVP_CipherFinal_ex(c->cipher, out ? out + done : nothing, &n) != 1)
		return -EBADMSG;
	return out && (size_t)done + (size_t)n != io->in_len ? -EIO : 0;
}

static int seal_into(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *out, uint8_t *tag)
{
	int done;

	if (start(c, SRDMA_SUITE_SEAL, io, out, &done) &&
	    finish(c, io, out, done) == 0 &&
	    EVP_CIPHER_CTX_ctrl(c->cipher, EVP_CTRL_AEAD_GET_TAG, c->tag_len,
				tag) == 1)
		return 0;
	if (out)
		srdma_wipe(out, io->in_len);
	return -EIO;
}

static int open_into(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *out, const uint8_t *tag)
{
	uint8_t expected[EVP_MAX_BLOCK_LENGTH];
	int done, r = -EIO;

	memcpy(expected, tag, (size_t)c->tag_len); /* the ctrl is not const */
	if (start(c, SRDMA_SUITE_OPEN, io, out, &done) &&
	    EVP_CIPHER_CTX_ctrl(c->cipher, EVP_CTRL_AEAD_SET_TAG, c->tag_len,
				expected) == 1)
		r = finish(c, io, out, done);
	if (r && out)
		srdma_wipe(out, io->in_len);
	return r;
}

static int aead_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *tag)
{
	return seal_into(c, io, io->out, tag);
}

static int aead_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     const uint8_t *tag)
{
	return open_into(c, io, io->out, tag);
}

static int aead_mac_seal(struct srdma_suite_ctx *c,
			 const struct srdma_suite_io *io, uint8_t *tag)
{
	return seal_into(c, io, NULL, tag);
}

static int aead_mac_open(struct srdma_suite_ctx *c,
			 const struct srdma_suite_io *io, const uint8_t *tag)
{
	return open_into(c, io, NULL, tag);
}

const struct srdma_suite_verbs srdma_suite_aead = {
	.create = aead_create,
	.again = aead_again,
	.forget = aead_forget,
	.seal = aead_seal,
	.open = aead_open,
	.destroy = aead_destroy,
};

const struct srdma_suite_verbs srdma_suite_aead_mac = {
	.create = aead_create,
	.again = aead_again,
	.forget = aead_forget,
	.seal = aead_mac_seal,
	.open = aead_mac_open,
	.destroy = aead_destroy,
};
