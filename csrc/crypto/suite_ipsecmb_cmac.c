/* AES-128-CMAC and AES-256-CMAC by intel-ipsec-mb. */
#include "crypto/provider_ipsecmb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { LONG_KEY = 32, ROUND_KEYS = 15, BLOCK = 16 };

struct srdma_suite_ctx {
	/* The library requires an alignment of 16 bytes. */
	uint8_t round_keys[ROUND_KEYS * BLOCK], subkey_1[BLOCK],
		subkey_2[BLOCK];
	struct srdma_ipsecmb *mb;
	enum srdma_suite_use use;
	uint8_t key_len;
	uint32_t tag_len;
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
	_Alignas(BLOCK) uint8_t unused[ROUND_KEYS * BLOCK];
	IMB_MGR *m = c->mb->narrow;

	if (k->tag_len != c->tag_len &&
	    !srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c->use = SRDMA_SUITE_NO_KEY;
	c->tag_len = k->tag_len;
	if (c->key_len == LONG_KEY) {
		IMB_AES_KEYEXP_256(m, k->key, c->round_keys, unused);
		IMB_AES_CMAC_SUBKEY_GEN_256(m, c->round_keys, c->subkey_1,
					    c->subkey_2);
	} else {
		IMB_AES_KEYEXP_128(m, k->key, c->round_keys, unused);
		IMB_AES_CMAC_SUBKEY_GEN_128(m, c->round_keys, c->subkey_1,
					    c->subkey_2);
	}
	srdma_wipe(unused, sizeof(unused));
	if (imb_get_errno(m))
		return -EIO;
	c->use = k->use;
	return 0;
}

static int forget(struct srdma_suite_ctx *c)
{
	c->use = SRDMA_SUITE_NO_KEY;
	srdma_wipe(c->round_keys, sizeof(c->round_keys));
	srdma_wipe(c->subkey_1, sizeof(c->subkey_1));
	srdma_wipe(c->subkey_2, sizeof(c->subkey_2));
	return 0;
}

static int create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		  const struct srdma_suite_key *k)
{
	const size_t size = (sizeof(**ctx) + BLOCK - 1) / BLOCK * BLOCK;
	struct srdma_suite_ctx *c;
	int r;

	*ctx = NULL;
	if (!srdma_suite_tag_ok(k->suite, k->tag_len))
		return -EINVAL;
	c = aligned_alloc(BLOCK, size);
	if (!c)
		return -ENOMEM;
	c->mb = (struct srdma_ipsecmb *)p;
	c->key_len = k->suite->key_len;
	c->tag_len = 0;
	r = again(c, k);
	if (r) {
		destroy(c);
		return r;
	}
	*ctx = c;
	return 0;
}

/* Fills the manager's next job: MAC of input, tag_len bytes to code. */
static void fill(struct srdma_suite_ctx *c, const uint8_t *input, size_t len,
		 uint8_t *code)
{
	IMB_JOB *job = IMB_GET_NEXT_JOB(c->mb->narrow);

	job->cipher_mode = IMB_CIPHER_NULL;
	job->cipher_direction = IMB_DIR_ENCRYPT;
	job->chain_order = IMB_ORDER_HASH_CIPHER;
	job->hash_alg = c->key_len == LONG_KEY ? IMB_AUTH_AES_CMAC_256
					       : IMB_AUTH_AES_CMAC;
	job->u.CMAC._key_expanded = c->round_keys;
	job->u.CMAC._skey1 = c->subkey_1;
	job->u.CMAC._skey2 = c->subkey_2;
	job->src = input;
	job->hash_start_src_offset_in_bytes = 0;
	job->msg_len_to_hash_in_bytes = len;
	job->auth_tag_output = code;
	job->auth_tag_output_len_in_bytes = c->tag_len;
}

/* MAC of ad | in. */
static int compute(struct srdma_suite_ctx *c, enum srdma_suite_use use,
		   const struct srdma_suite_io *io, uint8_t *code)
{
	const uint8_t *input = srdma_ipsecmb_join(c->mb, io);

	if (c->use != use || !input)
		return -EIO;
	fill(c, input, io->ad_len + io->in_len, code);
	return srdma_ipsecmb_do(c->mb->narrow);
}

/* The library computes several jobs in parallel lanes: two codes take little
 * longer than one. */
static int mac_seal_each(struct srdma_suite_ctx *c,
			 const struct srdma_suite_inputs *each, uint8_t *out)
{
	IMB_MGR *m = c->mb->narrow;
	unsigned failed = 0, done = 0;
	IMB_JOB *job;

	if (c->use != SRDMA_SUITE_SEAL)
		return -EIO;
	for (unsigned i = 0; i < each->n; i++) {
		fill(c, each->in + i * each->stride, each->len,
		     out + (size_t)i * c->tag_len);
		job = IMB_SUBMIT_JOB(m);
		done += job != NULL;
		failed += job && job->status != IMB_STATUS_COMPLETED;
	}
	while ((job = IMB_FLUSH_JOB(m)) != NULL) {
		done++;
		failed += job->status != IMB_STATUS_COMPLETED;
	}
	return done == each->n && !failed ? 0 : -EIO;
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

	return srdma_suite_judge(r, code, tag, c->tag_len);
}

const struct srdma_suite_verbs srdma_suite_ipsecmb_cmac = {
	.create = create,
	.again = again,
	.forget = forget,
	.seal = mac_seal,
	.open = mac_open,
	.seal_each = mac_seal_each,
	.destroy = destroy,
};
