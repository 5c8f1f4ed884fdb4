/* AES-GCM by intel-ipsec-mb. GMAC is GCM with all input as associated data. */
#include "crypto/provider_ipsecmb.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/prefetch.h"

/* Library functions for one key length. */
struct calls {
	aes_gcm_pre_t pre;
	aes_gcm_enc_dec_t enc, dec;
	aes_gmac_init_t mac_init;
	aes_gmac_update_t mac_update;
	aes_gmac_finalize_t mac_finalize;
};

struct srdma_suite_ctx {
	struct gcm_key_data key;
	struct gcm_context_data scratch;
	struct calls calls;
	IMB_MGR *mgr;
	enum srdma_suite_use use;
	uint32_t tag_len, iv_len;
};

static struct calls calls_of(const IMB_MGR *m, uint8_t key_len)
{
	switch (key_len) {
	case 16:
		return (struct calls){ m->gcm128_pre,	  m->gcm128_enc,
				       m->gcm128_dec,	  m->gmac128_init,
				       m->gmac128_update, m->gmac128_finalize };
	case 24:
		return (struct calls){ m->gcm192_pre,	  m->gcm192_enc,
				       m->gcm192_dec,	  m->gmac192_init,
				       m->gmac192_update, m->gmac192_finalize };
	default:
		return (struct calls){ m->gcm256_pre,	  m->gcm256_enc,
				       m->gcm256_dec,	  m->gmac256_init,
				       m->gmac256_update, m->gmac256_finalize };
	}
}

static void destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	srdma_wipe(c, sizeof(*c));
	free(c);
}

static int again(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	if (k->tag_len != c->tag_len &&
	    !srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c->use = SRDMA_SUITE_NO_KEY;
	c->tag_len = k->tag_len;
	c->calls.pre(k->key, &c->key);
	if (imb_get_errno(c->mgr))
		return -EIO;
	c->use = k->use;
	return 0;
}

static int forget(struct srdma_suite_ctx *c)
{
	c->use = SRDMA_SUITE_NO_KEY;
	srdma_wipe(&c->key, sizeof(c->key));
	srdma_wipe(&c->scratch, sizeof(c->scratch));
	return 0;
}

static int create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		  const struct srdma_suite_key *k)
{
	const size_t align = 64; /* alignment of gcm_key_data */
	const size_t size = (sizeof(**ctx) + align - 1) / align * align;
	struct srdma_suite_ctx *c;
	int r;

	*ctx = NULL;
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c = aligned_alloc(align, size);
	if (!c)
		return -ENOMEM;
	c->mgr = ((struct srdma_ipsecmb *)p)->mgr;
	c->calls = calls_of(c->mgr, k->suite->key_len);
	c->iv_len = k->suite->iv_len;
	c->tag_len = 0;
	r = again(c, k);
	if (r) {
		destroy(c);
		return r;
	}
	*ctx = c;
	return 0;
}

/*
 * Checks the pointers that the library would refuse; lengths are limited by the
 * packet size. The library's own error code is one variable of the process that
 * each call resets. Reading it per packet takes 50 ns if other threads' calls
 * reset it as well.
 */
static int complete(const struct srdma_suite_io *io, const uint8_t *tag)
{
	return tag && srdma_suite_complete(io);
}

static int gcm_complete(const struct srdma_suite_io *io, const uint8_t *tag)
{
	return complete(io, tag) && (io->out || !io->in_len);
}

static int gcm_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    uint8_t *tag)
{
	if (c->use == SRDMA_SUITE_SEAL && gcm_complete(io, tag)) {
		c->calls.enc(&c->key, &c->scratch, io->out, io->in, io->in_len,
			     io->nonce, io->ad, io->ad_len, tag, c->tag_len);
		return 0;
	}
	if (io->out)
		srdma_wipe(io->out, io->in_len);
	return -EIO;
}

static int gcm_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = -EIO;

	if (c->use == SRDMA_SUITE_OPEN && gcm_complete(io, tag)) {
		c->calls.dec(&c->key, &c->scratch, io->out, io->in, io->in_len,
			     io->nonce, io->ad, io->ad_len, code, c->tag_len);
		r = srdma_suite_judge(0, code, tag, c->tag_len);
	}
	if (r && io->out)
		srdma_wipe(io->out, io->in_len);
	return r;
}

static int compute(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		   const struct srdma_suite_io *io, uint8_t *code)
{
	if (c->use != use || !complete(io, code))
		return -EIO;
	if (io->in_len) {
		c->calls.mac_init(&c->key, &c->scratch, io->nonce, c->iv_len);
		c->calls.mac_update(&c->key, &c->scratch, io->ad, io->ad_len);
		c->calls.mac_update(&c->key, &c->scratch, io->in, io->in_len);
		c->calls.mac_finalize(&c->key, &c->scratch, code, c->tag_len);
	} else { /* one call instead of three takes 2/3 of the time */
		c->calls.enc(&c->key, &c->scratch, NULL, NULL, 0, io->nonce,
			     io->ad, io->ad_len, code, c->tag_len);
	}
	return 0;
}

static int gmac_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *tag)
{
	return compute(c, SRDMA_SUITE_SEAL, io, tag);
}

static int gmac_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = compute(c, SRDMA_SUITE_OPEN, io, code);

	return srdma_suite_judge(r, code, tag, c->tag_len);
}

/* A short packet reads the round keys at the start of the key data and the low
 * powers of H at its end. */
static void prefetch(const struct srdma_suite_ctx *c)
{
	enum { ROUND_KEYS = 11 * 16, POWERS = 16 * 16 };
	const uint8_t *end = (const uint8_t *)(&c->key + 1);

	srdma_prefetch(&c->key, ROUND_KEYS);
	srdma_prefetch(end - POWERS, POWERS + sizeof(*c) - sizeof(c->key));
}

const struct srdma_suite_verbs srdma_suite_ipsecmb_gcm = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = gcm_seal,
	.open = gcm_open,
	.prefetch = prefetch,
	.destroy = destroy,
};

const struct srdma_suite_verbs srdma_suite_ipsecmb_gmac = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = gmac_seal,
	.open = gmac_open,
	.prefetch = prefetch,
	.destroy = destroy,
};
