/* AES-128-CMAC and AES-256-CMAC by Nettle. */
#include "crypto/provider_nettle.h"

#include <errno.h>
#include <stdlib.h>

#include <nettle/nettle-meta.h>

#include "base/bytes.h"
#include "wire/wire.h"

enum { LONG_KEY = 32 };

struct srdma_suite_ctx {
	const struct nettle_mac *lib;
	enum srdma_suite_use use;
	uint32_t tag_len;
	_Alignas(16) uint8_t state[]; /* lib->context_size bytes */
};

static void destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	srdma_wipe(c, sizeof(*c) + c->lib->context_size);
	free(c);
}

static void set_key(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	c->tag_len = k->tag_len;
	c->lib->set_key(c->state, k->key);
	c->use = k->use;
}

static int again(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	if (k->tag_len != c->tag_len &&
	    !srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	set_key(c, k);
	return 0;
}

static int forget(struct srdma_suite_ctx *c)
{
	c->use = SRDMA_SUITE_NO_KEY;
	srdma_wipe(c->state, c->lib->context_size);
	return 0;
}

static int create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		  const struct srdma_suite_key *k)
{
	const struct nettle_mac *lib = k->suite->key_len == LONG_KEY
					       ? &nettle_cmac_aes256
					       : &nettle_cmac_aes128;
	struct srdma_suite_ctx *c;

	(void)p;
	*ctx = NULL;
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c = calloc(1, sizeof(*c) + lib->context_size);
	if (!c)
		return -ENOMEM;
	c->lib = lib;
	set_key(c, k);
	*ctx = c;
	return 0;
}

/* MAC of ad | in at full length: of a shorter one Nettle keeps the full one in
 * its context. The end of a message begins the next one. */
static int compute(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		   const struct srdma_suite_io *io, uint8_t *code)
{
	if (c->use != use)
		return -EIO;
	c->lib->update(c->state, io->ad_len, io->ad);
	if (io->in_len)
		c->lib->update(c->state, io->in_len, io->in);
	c->lib->digest(c->state, c->lib->digest_size, code);
	return 0;
}

static int mac_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r;

	if (c->tag_len == c->lib->digest_size)
		return compute(c, SRDMA_SUITE_SEAL, io, tag);
	r = compute(c, SRDMA_SUITE_SEAL, io, code);
	return srdma_suite_shorten(r, code, tag, c->tag_len);
}

static int mac_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = compute(c, SRDMA_SUITE_OPEN, io, code);

	return srdma_suite_judge(r, code, tag, c->tag_len);
}

const struct srdma_suite_verbs srdma_suite_nettle_cmac = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = mac_seal,
	.open = mac_open,
	.destroy = destroy,
};
