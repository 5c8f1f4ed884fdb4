/*
 * Suites: one const row each (docs/protocol.md 3.3). A row is found by id
 * or name, self-tested before first use, and keyed into a context that does
 * one direction of one key. Adding an algorithm is adding a row.
 */
#ifndef SRDMA_SUITE_H
#define SRDMA_SUITE_H

#include <stddef.h>
#include <stdint.h>

struct srdma_suite_ctx; /* a keyed context; opaque, one thread at a time */

struct srdma_suite {
	uint8_t id;
	const char *name; /* "aes-128-gcm" */
	uint8_t levels; /* bit 1 << level for each enum srdma_level it has */
	uint8_t key_len, iv_len, tag_len; /* bytes; tag_len is the default */
	uint8_t tag_min; /* shortest tag length that may be asked for */
	uint64_t packets; /* hard stop per key */
	uint64_t forgeries; /* tags that may fail */
	const void *algorithm; /* of the strategy in verbs */
	const struct srdma_suite_verbs *verbs;
};

/* What one call works on. */
struct srdma_suite_io {
	const uint8_t *nonce; /* iv_len bytes, NULL if 0 */
	const uint8_t *ad;
	size_t ad_len;
	const uint8_t *in; /* AEAD: text; MAC: bytes authenticated behind ad */
	size_t in_len;
	uint8_t *out; /* AEAD: in_len bytes, not overlapping in; MAC: unused */
};

/*
 * The four verbs of a strategy. tag_len was fixed at key time and is the
 * size of tag. key: 0, -EINVAL (tag length not of this row), -ENOMEM, -EIO.
 * seal: 0 or -EIO. open: 0, -EBADMSG (the tag; out is wiped), -EIO.
 */
struct srdma_suite_verbs {
	int (*key)(struct srdma_suite_ctx **ctx, const struct srdma_suite *s,
		   const uint8_t *key, uint32_t tag_len);
	int (*seal)(struct srdma_suite_ctx *ctx,
		    const struct srdma_suite_io *io, uint8_t *tag);
	int (*open)(struct srdma_suite_ctx *ctx,
		    const struct srdma_suite_io *io, const uint8_t *tag);
	void (*destroy)(struct srdma_suite_ctx *ctx); /* wipes; NULL allowed */
};

/* NULL if there is none. */
const struct srdma_suite *srdma_suite_by_id(uint8_t id);
const struct srdma_suite *srdma_suite_by_name(const char *name);
/* Row i of the table, NULL behind the last. */
const struct srdma_suite *srdma_suite_at(unsigned i);

/*
 * Known-answer test of one row: seal, open, and a flipped tag refused.
 * Returns 0 or -EIO. The worker runs it for every row at its start.
 */
int srdma_suite_selftest(const struct srdma_suite *s);

#endif
