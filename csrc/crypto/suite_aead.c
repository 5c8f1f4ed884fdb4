/*
 * AEAD suites by OpenSSL. GMAC and Poly1305 are the same ciphers with all input
 * as associated data and an empty text (docs/protocol.md 4.5). All rows have
 * tags of 16 bytes, OpenSSL's default. OCB encodes the tag length in the nonce,
 * so another length would have to be set before the nonce.
 */
#include "crypto/suite.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "crypto/openssl_cipher.h"

struct srdma_suite_ctx {
	struct srdma_openssl_cipher cipher; /* each packet sets the nonce */
	enum srdma_suite_use use;
	uint32_t tag_len;
};

static void aead_destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	srdma_openssl_cipher_destroy(&c->cipher);
	free(c);
}

static int aead_again(struct srdma_suite_ctx *c,
		      const struct srdma_suite_key *k)
{
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c->use = SRDMA_SUITE_NO_KEY;
	if (srdma_openssl_cipher_key(&c->cipher, k->use, k->key))
		return -EIO;
	c->tag_len = k->tag_len;
	c->use = k->use;
	return 0;
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
	r = srdma_openssl_cipher_create(&c->cipher, k->suite);
	if (!r)
		r = aead_again(c, k);
	if (r) {
		aead_destroy(c);
		return r;
	}
	*ctx = c;
	return 0;
}

/* Overwrites the key schedule with that of an all-zero key. */
static int aead_forget(struct srdma_suite_ctx *c)
{
	static const uint8_t zero[SRDMA_SUITE_MAX_KEY];

	c->use = SRDMA_SUITE_NO_KEY;
	return srdma_openssl_cipher_key(&c->cipher, SRDMA_SUITE_SEAL, zero);
}

static int end(struct srdma_openssl_cipher *c, enum srdma_suite_use use,
	       uint8_t *out, size_t room, size_t *done)
{
	return use == SRDMA_SUITE_OPEN
		       ? srdma_openssl_cipher_judge(c, out, room, done)
		       : srdma_openssl_cipher_end(c, out, room, done);
}

/* Processes a packet up to its tag. out NULL: the text is more associated data.
 * tag: as srdma_openssl_cipher_begin(). 0, -EIO, or -EBADMSG if OpenSSL refuses
 * the tag of a packet to open. */
static int process(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		   const struct srdma_suite_io *io, uint8_t *out,
		   const uint8_t *tag)
{
	struct srdma_openssl_cipher *cipher = &c->cipher;
	uint8_t nothing[EVP_MAX_BLOCK_LENGTH];
	size_t done = 0, rest;
	int r;

	if (srdma_openssl_cipher_begin(cipher, use, io->nonce, tag,
				       c->tag_len) ||
	    srdma_openssl_cipher_add(cipher, io->ad, io->ad_len) ||
	    (out ? srdma_openssl_cipher_text(cipher, out, &done, io->in,
					     io->in_len)
		 : srdma_openssl_cipher_add(cipher, io->in, io->in_len)))
		return -EIO;
	if (!out)
		return end(cipher, use, nothing, sizeof(nothing), &rest);
	r = end(cipher, use, out + done, io->in_len - done, &rest);
	return !r && done + rest != io->in_len ? -EIO : r;
}

static int seal_into(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *out, uint8_t *tag)
{
	if (c->use == SRDMA_SUITE_SEAL && srdma_suite_complete(io) &&
	    !process(c, SRDMA_SUITE_SEAL, io, out, NULL) &&
	    !srdma_openssl_cipher_tag(&c->cipher, tag, c->tag_len))
		return 0;
	if (out)
		srdma_wipe(out, io->in_len);
	return -EIO;
}

static int open_into(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *out, const uint8_t *tag)
{
	int r = -EIO;

	if (c->use == SRDMA_SUITE_OPEN && srdma_suite_complete(io))
		r = process(c, SRDMA_SUITE_OPEN, io, out, tag);
	if (r && out)
		srdma_wipe(out, io->in_len);
	return r;
}

static int aead_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *tag)
{
	return io->out || !io->in_len ? seal_into(c, io, io->out, tag) : -EIO;
}

static int aead_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     const uint8_t *tag)
{
	return io->out || !io->in_len ? open_into(c, io, io->out, tag) : -EIO;
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
