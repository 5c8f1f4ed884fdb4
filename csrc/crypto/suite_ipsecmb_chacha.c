/* ChaCha20-Poly1305 by intel-ipsec-mb. Poly1305 is the same with all input as
 * associated data. */
#include "crypto/provider_ipsecmb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { KEY = 32, TAG = 16 };

struct srdma_suite_ctx {
	uint8_t key[KEY];
	struct srdma_ipsecmb *mb;
	enum srdma_suite_use use;
	uint32_t iv_len;
};

static void destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	srdma_wipe(c, sizeof(*c));
	free(c);
}

static int again(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	if (k->tag_len != TAG)
		return -EINVAL;
	c->use = k->use;
	memcpy(c->key, k->key, sizeof(c->key));
	return 0;
}

static int forget(struct srdma_suite_ctx *c)
{
	c->use = SRDMA_SUITE_NO_KEY;
	srdma_wipe(c->key, sizeof(c->key));
	return 0;
}

static int create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		  const struct srdma_suite_key *k)
{
	struct srdma_suite_ctx *c;
	int r;

	*ctx = NULL;
	if (k->suite->key_len != KEY)
		return -EINVAL;
	c = malloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct srdma_suite_ctx){ .mb = (struct srdma_ipsecmb *)p,
				       .iv_len = k->suite->iv_len };
	r = again(c, k);
	if (r) {
		destroy(c);
		return r;
	}
	*ctx = c;
	return 0;
}

/* Input and output of one job; code: the computed tag, TAG bytes. */
struct text {
	const uint8_t *ad, *in;
	size_t ad_len, len;
	uint8_t *out;
	uint8_t *code;
};

static int run(struct srdma_suite_ctx *c, enum srdma_suite_use use,
	       const uint8_t *nonce, const struct text *t)
{
	IMB_JOB *job;

	if (c->use != use)
		return -EIO;
	job = IMB_GET_NEXT_JOB(c->mb->mgr);
	job->cipher_mode = IMB_CIPHER_CHACHA20_POLY1305;
	job->hash_alg = IMB_AUTH_CHACHA20_POLY1305;
	job->cipher_direction =
		use == SRDMA_SUITE_SEAL ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
	job->chain_order = use == SRDMA_SUITE_SEAL ? IMB_ORDER_CIPHER_HASH
						   : IMB_ORDER_HASH_CIPHER;
	job->enc_keys = job->dec_keys = c->key;
	job->key_len_in_bytes = KEY;
	job->iv = nonce;
	job->iv_len_in_bytes = c->iv_len;
	job->u.CHACHA20_POLY1305.aad = t->ad;
	job->u.CHACHA20_POLY1305.aad_len_in_bytes = t->ad_len;
	job->src = t->in;
	job->dst = t->out;
	job->cipher_start_src_offset_in_bytes = 0;
	job->msg_len_to_cipher_in_bytes = t->len;
	job->hash_start_src_offset_in_bytes = 0;
	job->msg_len_to_hash_in_bytes = t->len;
	job->auth_tag_output = t->code;
	job->auth_tag_output_len_in_bytes = TAG;
	return srdma_ipsecmb_do(c->mb->mgr);
}

static int run_aead(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		    const struct srdma_suite_io *io, uint8_t *code)
{
	const struct text t = { io->ad,	    io->in,  io->ad_len,
				io->in_len, io->out, code };

	return srdma_suite_complete(io) && (io->out || !io->in_len)
		       ? run(c, use, io->nonce, &t)
		       : -EIO;
}

static int aead_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     uint8_t *tag)
{
	int r = run_aead(c, SRDMA_SUITE_SEAL, io, tag);

	if (r && io->out)
		srdma_wipe(io->out, io->in_len);
	return r;
}

static int aead_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		     const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = srdma_suite_judge(run_aead(c, SRDMA_SUITE_OPEN, io, code), code,
				  tag, TAG);

	if (r && io->out)
		srdma_wipe(io->out, io->in_len);
	return r;
}

/* The text is empty, but the library requires a valid pointer for it. */
static int compute(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		   const struct srdma_suite_io *io, uint8_t *code)
{
	uint8_t nothing[1] = { 0 };
	struct text t = { .ad_len = io->ad_len + io->in_len,
			  .in = nothing,
			  .out = nothing,
			  .code = code };

	if (srdma_suite_complete(io))
		t.ad = srdma_ipsecmb_join(c->mb, io);
	return t.ad ? run(c, use, io->nonce, &t) : -EIO;
}

static int mac_seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    uint8_t *tag)
{
	return compute(c, SRDMA_SUITE_SEAL, io, tag);
}

static int mac_open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		    const uint8_t *tag)
{
	uint8_t code[SRDMA_MAX_TAG];
	int r = compute(c, SRDMA_SUITE_OPEN, io, code);

	return srdma_suite_judge(r, code, tag, TAG);
}

const struct srdma_suite_verbs srdma_suite_ipsecmb_chacha = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = aead_seal,
	.open = aead_open,
	.destroy = destroy,
};

const struct srdma_suite_verbs srdma_suite_ipsecmb_poly1305 = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = mac_seal,
	.open = mac_open,
	.destroy = destroy,
};
