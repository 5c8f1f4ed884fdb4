#include "crypto/cmac.h"

#include <errno.h>

#include "base/bytes.h"
#include "crypto/provider.h"

int srdma_cmac_create(struct srdma_cmac *c, size_t key_len,
		      struct srdma_provider *provider)
{
	static const uint8_t zero[SRDMA_SUITE_MAX_KEY];
	int r;

	*c = (struct srdma_cmac){ 0 };
	if (key_len != 16 && key_len != 32)
		return -EINVAL;
	c->suite = srdma_suite_by_name(key_len == 16 ? "aes-128-cmac"
						     : "aes-256-cmac");
	c->verbs = srdma_provider_verbs(provider, c->suite);
	c->provider = provider;
	c->key_len = key_len;
	r = srdma_cmac_key(c, zero);
	if (r)
		*c = (struct srdma_cmac){ 0 };
	return r;
}

static void drop(struct srdma_cmac *c)
{
	if (c->ctx)
		c->verbs->destroy(c->ctx);
	c->ctx = NULL;
}

void srdma_cmac_destroy(struct srdma_cmac *c)
{
	drop(c);
	*c = (struct srdma_cmac){ 0 };
}

int srdma_cmac_key(struct srdma_cmac *c, const uint8_t *key)
{
	const struct srdma_suite_key k = {
		.suite = c->suite,
		.use = SRDMA_SUITE_SEAL,
		.tag_len = SRDMA_CMAC_LEN,
		.key = key,
	};
	const int r = c->ctx ? c->verbs->again(c->ctx, &k)
			     : c->verbs->create(&c->ctx, c->provider, &k);

	if (r)
		drop(c);
	return r;
}

void srdma_cmac_forget(struct srdma_cmac *c)
{
	if (c->ctx && c->verbs->forget(c->ctx))
		drop(c);
}

int srdma_cmac_sum(struct srdma_cmac *c, uint8_t out[SRDMA_CMAC_LEN],
		   const uint8_t *in, size_t len)
{
	const struct srdma_suite_io io = { .ad = in, .ad_len = len };

	if (c->ctx && c->verbs->seal(c->ctx, &io, out) == 0)
		return 0;
	srdma_wipe(out, SRDMA_CMAC_LEN);
	return -EIO;
}

static int one_by_one(struct srdma_cmac *c, uint8_t *out,
		      const struct srdma_suite_inputs *each)
{
	int r = 0;

	for (unsigned i = 0; !r && i < each->n; i++)
		r = srdma_cmac_sum(c, out + (size_t)i * SRDMA_CMAC_LEN,
				   each->in + i * each->stride, each->len);
	return r;
}

int srdma_cmac_sums(struct srdma_cmac *c, uint8_t *out,
		    const struct srdma_suite_inputs *each)
{
	const int r = c->ctx && c->verbs->seal_each
			      ? c->verbs->seal_each(c->ctx, each, out)
			      : one_by_one(c, out, each);

	if (r)
		srdma_wipe(out, (size_t)each->n * SRDMA_CMAC_LEN);
	return r;
}
