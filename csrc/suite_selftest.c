#include "suite.h"

#include <errno.h>
#include <string.h>

#include "wire.h"

enum { TEXT_MAX = 128 };

static const uint8_t *bytes(const char *literal)
{
	return (const uint8_t *)literal;
}

/* What is sealed: the text of an AEAD, nothing of a MAC. */
static size_t out_len(const struct srdma_suite_answer *a)
{
	return a->out ? a->in_len : 0;
}

static int seal_is_right(const struct srdma_suite *s,
			 struct srdma_suite_ctx *ctx)
{
	const struct srdma_suite_answer *a = s->answer;
	uint8_t out[TEXT_MAX], tag[SRDMA_MAX_TAG];
	const struct srdma_suite_io io = {
		.nonce = bytes(a->nonce),
		.ad = bytes(a->ad),
		.ad_len = a->ad_len,
		.in = bytes(a->in),
		.in_len = a->in_len,
		.out = out,
	};

	return s->verbs->seal(ctx, &io, tag) == 0 &&
	       memcmp(tag, a->tag, s->tag_len) == 0 &&
	       (!a->out || memcmp(out, a->out, out_len(a)) == 0);
}

/* Open with one bit of the tag flipped by flip; is the outcome want? */
static int open_is_right(const struct srdma_suite *s,
			 struct srdma_suite_ctx *ctx, uint8_t flip, int want)
{
	static const uint8_t wiped[TEXT_MAX];
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
	return s->verbs->open(ctx, &io, tag) == want &&
	       memcmp(out, want ? wiped : bytes(a->in), out_len(a)) == 0;
}

/* Twice with each context: a packet must leave nothing to the next. */
int srdma_suite_selftest(const struct srdma_suite *s)
{
	const uint8_t *key = bytes(s->answer->key);
	struct srdma_suite_ctx *seal = NULL, *open = NULL;
	int ok =
		s->answer->in_len <= TEXT_MAX &&
		s->verbs->key(&seal, s, SRDMA_SUITE_SEAL, key, s->tag_len) ==
			0 &&
		s->verbs->key(&open, s, SRDMA_SUITE_OPEN, key, s->tag_len) == 0;

	for (int i = 0; ok && i < 2; i++)
		ok = seal_is_right(s, seal) && open_is_right(s, open, 0, 0) &&
		     open_is_right(s, open, 0x01, -EBADMSG);
	s->verbs->destroy(seal);
	s->verbs->destroy(open);
	return ok ? 0 : -EIO;
}
