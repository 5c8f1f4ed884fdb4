#include "crypto/suite.h"

#include <errno.h>
#include <string.h>

#include "crypto/provider.h"
#include "wire/wire.h"

enum { TEXT_MAX = 128 };

struct tested {
	const struct srdma_suite *suite;
	const struct srdma_suite_verbs *verbs;
	struct srdma_provider *provider;
};

static const uint8_t *bytes(const char *literal)
{
	return (const uint8_t *)literal;
}

/* Length of the ciphertext: that of the text for an AEAD, 0 for a MAC. */
static size_t out_len(const struct srdma_suite_answer *a)
{
	return a->out ? a->in_len : 0;
}

static int seal_is_right(const struct tested *t, struct srdma_suite_ctx *ctx)
{
	const struct srdma_suite_answer *a = t->suite->answer;
	uint8_t out[TEXT_MAX], tag[SRDMA_MAX_TAG];
	const struct srdma_suite_io io = {
		.nonce = bytes(a->nonce),
		.ad = bytes(a->ad),
		.ad_len = a->ad_len,
		.in = bytes(a->in),
		.in_len = a->in_len,
		.out = out,
	};

	return t->verbs->seal(ctx, &io, tag) == 0 &&
	       memcmp(tag, a->tag, t->suite->tag_len) == 0 &&
	       (!a->out || memcmp(out, a->out, out_len(a)) == 0);
}

/* Opens the known answer with `flip` applied to the tag's last byte. Returns 1
 * if the result is `want` and the output is as it must be. */
static int open_is_right(const struct tested *t, struct srdma_suite_ctx *ctx,
			 uint8_t flip, int want)
{
	static const uint8_t wiped[TEXT_MAX];
	const struct srdma_suite *s = t->suite;
	const struct srdma_suite_answer *a = s->answer;
	uint8_t out[TEXT_MAX], tag[SRDMA_MAX_TAG];
	const struct srdma_suite_io io = {
		.nonce = bytes(a->nonce),
		.ad = bytes(a->ad),
		.ad_len = a->ad_len,
		.in = bytes(a->out ? a->out : a->in),
		.in_len = a->in_len,
		.out = out,
	};

	memcpy(tag, a->tag, s->tag_len);
	tag[s->tag_len - 1] ^= flip;
	return t->verbs->open(ctx, &io, tag) == want &&
	       memcmp(out, want ? wiped : bytes(a->in), out_len(a)) == 0;
}

/* Makes a context with another key and use, then gives it the key to be tested,
 * so that a rest of the old key would be detected. */
static int keyed(const struct tested *t, struct srdma_suite_ctx **ctx,
		 enum srdma_suite_use use)
{
	static const uint8_t other[SRDMA_SUITE_MAX_KEY] = { 0x5a };
	struct srdma_suite_key k = {
		.suite = t->suite,
		.use = !use,
		.tag_len = t->suite->tag_len,
		.key = other,
	};

	if (t->verbs->create(ctx, t->provider, &k) || t->verbs->forget(*ctx))
		return 0;
	k.use = use;
	k.key = bytes(t->suite->answer->key);
	return t->verbs->again(*ctx, &k) == 0;
}

/* Each context is used twice, to detect state left by a previous packet. */
int srdma_suite_selftest(const struct srdma_suite *s, struct srdma_provider *p)
{
	const struct tested t = { s, srdma_provider_verbs(p, s), p };
	struct srdma_suite_ctx *seal = NULL, *open = NULL;
	int ok = s->answer->in_len <= TEXT_MAX &&
		 keyed(&t, &seal, SRDMA_SUITE_SEAL) &&
		 keyed(&t, &open, SRDMA_SUITE_OPEN);

	for (int i = 0; ok && i < 2; i++)
		ok = seal_is_right(&t, seal) && open_is_right(&t, open, 0, 0) &&
		     open_is_right(&t, open, 0x01, -EBADMSG);
	t.verbs->destroy(seal);
	t.verbs->destroy(open);
	return ok ? 0 : -EIO;
}
