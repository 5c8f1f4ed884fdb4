/*
 * AES-GCM and ChaCha20-Poly1305 by Nettle, and OpenSSL for texts from which on
 * that is faster. GMAC and Poly1305 are the same with all input as associated
 * data.
 */
#include "crypto/provider_nettle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/nettle-meta.h>

#include "base/bytes.h"
#include "wire/wire.h"

enum {
	BLOCK = 16,
	LARGE = 768, /* docs/performance.md has the comparison */
};

static const struct algorithm {
	const char *name; /* as in struct srdma_suite */
	const struct nettle_aead *lib;
	size_t most; /* bytes of text, at most, that Nettle processes */
} algorithms[] = {
	{ "AES-128-GCM", &nettle_gcm_aes128, LARGE },
	{ "AES-192-GCM", &nettle_gcm_aes192, LARGE },
	{ "AES-256-GCM", &nettle_gcm_aes256, LARGE },
	{ "ChaCha20-Poly1305", &nettle_chacha_poly1305, SIZE_MAX },
};

enum { ALGORITHMS = sizeof(algorithms) / sizeof(algorithms[0]) };

/* Nettle and OpenSSL get the key when a packet needs them, so that a derived key
 * for one packet is set once. */
struct srdma_suite_ctx {
	const struct nettle_aead *lib;
	const struct srdma_suite *suite;
	size_t most;
	struct srdma_suite_ctx *openssl; /* NULL: Nettle processes all */
	enum srdma_suite_use use;
	uint32_t tag_len;
	uint8_t key[SRDMA_SUITE_MAX_KEY];
	uint8_t nettle_keyed, openssl_keyed; /* 1: has a key */
	_Alignas(16) uint8_t state[];	     /* lib->context_size bytes */
};

static void destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	c->suite->verbs->destroy(c->openssl);
	srdma_wipe(c, sizeof(*c) + c->lib->context_size);
	free(c);
}

static void key_nettle(struct srdma_suite_ctx *c)
{
	c->lib->set_encrypt_key(c->state, c->key);
	c->nettle_keyed = 1;
}

static int key_openssl(struct srdma_suite_ctx *c)
{
	const struct srdma_suite_key k = { c->suite, c->use, c->tag_len,
					   c->key };
	const int r = c->suite->verbs->again(c->openssl, &k);

	c->openssl_keyed = !r;
	return r;
}

static void take_key(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	c->tag_len = k->tag_len;
	memcpy(c->key, k->key, c->suite->key_len);
	c->use = k->use;
}

/* Replaces the key wherever the former one is. */
static int again(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	int r = 0;

	if (k->tag_len != c->tag_len &&
	    !srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	take_key(c, k);
	if (c->nettle_keyed)
		key_nettle(c);
	if (c->openssl_keyed)
		r = key_openssl(c);
	if (r)
		c->use = SRDMA_SUITE_NO_KEY;
	return r;
}

static int forget(struct srdma_suite_ctx *c)
{
	int r = 0;

	c->use = SRDMA_SUITE_NO_KEY;
	if (c->openssl_keyed)
		r = c->suite->verbs->forget(c->openssl);
	c->nettle_keyed = c->openssl_keyed = 0;
	srdma_wipe(c->key, sizeof(c->key));
	srdma_wipe(c->state, c->lib->context_size);
	return r;
}

/* NULL if Nettle has no such algorithm. */
static const struct algorithm *find(const char *name)
{
	for (int i = 0; i < ALGORITHMS; i++)
		if (strcmp(algorithms[i].name, name) == 0)
			return &algorithms[i];
	return NULL;
}

/* OpenSSL's context, without a key: packets allocate nothing. */
static int add_openssl(struct srdma_suite_ctx *c,
		       const struct srdma_suite_key *k)
{
	const struct srdma_suite_verbs *verbs = c->suite->verbs;
	const int r = verbs->create(&c->openssl, NULL, k);

	return r ? r : verbs->forget(c->openssl);
}

static int create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		  const struct srdma_suite_key *k)
{
	const struct algorithm *a = find(k->suite->algorithm);
	struct srdma_suite_ctx *c;
	int r;

	(void)p;
	*ctx = NULL;
	if (!a)
		return -EIO;
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c = calloc(1, sizeof(*c) + a->lib->context_size);
	if (!c)
		return -ENOMEM;
	c->lib = a->lib;
	c->suite = k->suite;
	c->most = a->most;
	take_key(c, k);
	r = c->most < SRDMA_MAX_PAYLOAD ? add_openssl(c, k) : 0;
	if (r) {
		destroy(c);
		return r;
	}
	*ctx = c;
	return 0;
}

/* Gives the key to the library that processes the packet: 1 for OpenSSL, 0 for
 * Nettle. -EIO: no library may, or it refused the key. */
static int choose(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		  const struct srdma_suite_io *io)
{
	if (c->use != use || !srdma_suite_complete(io))
		return -EIO;
	if (io->in_len > c->most)
		return !c->openssl_keyed && key_openssl(c) ? -EIO : 1;
	if (!c->nettle_keyed)
		key_nettle(c);
	return 0;
}

/* Begins a packet of an AEAD. */
static void begin(struct srdma_suite_ctx *c, const struct srdma_suite_io *io)
{
	c->lib->set_nonce(c->state, io->nonce);
	c->lib->update(c->state, io->ad_len, io->ad);
}

/* The tag over ad | in. Nettle takes associated data in pieces of whole blocks,
 * but for the last piece. */
static void authenticate(struct srdma_suite_ctx *c,
			 const struct srdma_suite_io *io, uint8_t *code)
{
	const size_t rest = io->ad_len % BLOCK, whole = io->ad_len - rest;
	size_t used = rest ? BLOCK - rest : 0;
	uint8_t between[BLOCK];

	c->lib->set_nonce(c->state, io->nonce);
	c->lib->update(c->state, whole, io->ad);
	if (used > io->in_len)
		used = io->in_len;
	if (rest) {
		memcpy(between, io->ad + whole, rest);
		if (used)
			memcpy(between + rest, io->in, used);
		c->lib->update(c->state, rest + used, between);
	}
	if (io->in_len > used)
		c->lib->update(c->state, io->in_len - used, io->in + used);
	c->lib->digest(c->state, c->tag_len, code);
}

static int aead_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *tag)
{
	int r = -EIO;

	if (!io->out && io->in_len)
		return r;
	r = choose(c, SRDMA_SUITE_SEAL, io);
	if (r > 0)
		return c->suite->verbs->seal(c->openssl, io, tag);
	if (r) {
		if (io->out)
			srdma_wipe(io->out, io->in_len);
		return r;
	}
	begin(c, io);
	c->lib->encrypt(c->state, io->in_len, io->out, io->in);
	c->lib->digest(c->state, c->tag_len, tag);
	return 0;
}

static int aead_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = -EIO;

	if (!io->out && io->in_len)
		return r;
	r = choose(c, SRDMA_SUITE_OPEN, io);
	if (r > 0)
		return c->suite->verbs->open(c->openssl, io, tag);
	if (!r) {
		begin(c, io);
		c->lib->decrypt(c->state, io->in_len, io->out, io->in);
		c->lib->digest(c->state, c->tag_len, code);
		r = srdma_suite_judge(0, code, tag, c->tag_len);
	}
	if (r && io->out)
		srdma_wipe(io->out, io->in_len);
	return r;
}

static int mac_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    uint8_t *tag)
{
	const int r = choose(c, SRDMA_SUITE_SEAL, io);

	if (r > 0)
		return c->suite->verbs->seal(c->openssl, io, tag);
	if (!r)
		authenticate(c, io, tag);
	return r;
}

static int mac_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	const int r = choose(c, SRDMA_SUITE_OPEN, io);

	if (r > 0)
		return c->suite->verbs->open(c->openssl, io, tag);
	if (!r)
		authenticate(c, io, code);
	return srdma_suite_judge(r, code, tag, c->tag_len);
}

const struct srdma_suite_verbs srdma_suite_nettle_aead = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = aead_seal,
	.open = aead_open,
	.destroy = destroy,
};

const struct srdma_suite_verbs srdma_suite_nettle_aead_mac = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = mac_seal,
	.open = mac_open,
	.destroy = destroy,
};
