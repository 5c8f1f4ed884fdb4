/*
 * Suites: one const row each (docs/protocol.md 3.3). A row is found by id
 * or name, self-tested before first use, and keyed into a context that does
 * one direction of one key. Adding an algorithm is adding a row.
 */
#ifndef SRDMA_SUITE_H
#define SRDMA_SUITE_H

#include <stddef.h>
#include <stdint.h>

struct srdma_provider;
struct srdma_suite_ctx; /* a keyed context; opaque, one thread at a time */

enum { SRDMA_SUITE_MAX_KEY = 64, SRDMA_SUITE_MAX_TAG = 64 }; /* bytes */
enum { SRDMA_SUITE_LANES = 4 }; /* codes that are asked for at once */

/* A known answer, bytes as string literals; the sizes not here are the row's.
 * MAC: the tag is over ad | in, and out is NULL. */
struct srdma_suite_answer {
	const char *key, *nonce, *ad, *in, *out, *tag;
	size_t ad_len, in_len; /* in_len <= 128 */
};

struct srdma_suite {
	uint8_t id;
	const char *name; /* "aes-128-gcm" */
	uint8_t levels;	  /* bit 1 << level for each enum srdma_level it has */
	uint8_t recommended; /* 1: "auto" may pick it, where it is the fastest */
	uint8_t key_len, iv_len, tag_len; /* bytes; tag_len is the default */
	uint8_t tag_min;       /* shortest tag length that may be asked for */
	uint64_t packets;      /* hard stop per key */
	uint64_t forgeries;    /* tags that may fail, with a tag of tag_len */
	const char *algorithm; /* what the strategy in verbs fetches */
	const char *primitive; /* MAC: its cipher or digest, else NULL */
	const struct srdma_suite_verbs *verbs;
	const struct srdma_suite_answer *answer; /* known, for the self-test */
};

/* What a keyed context is for; it does this and refuses the other. One without
 * a key refuses both. */
enum srdma_suite_use {
	SRDMA_SUITE_OPEN = 0,
	SRDMA_SUITE_SEAL = 1,
	SRDMA_SUITE_NO_KEY = 2,
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

/* Inputs of a MAC for many codes at once: n of them, of len bytes each, one
 * every stride bytes. */
struct srdma_suite_inputs {
	const uint8_t *in;
	size_t stride, len;
	unsigned n; /* 1 to SRDMA_SUITE_LANES */
};

/* What a context is made of. */
struct srdma_suite_key {
	const struct srdma_suite *suite;
	enum srdma_suite_use use; /* open or seal */
	uint32_t tag_len;	  /* the size of all its tags */
	const uint8_t *key;	  /* key_len bytes */
};

/*
 * The verbs of a strategy. create: 0, -EINVAL (tag length not of this row),
 * -ENOMEM, -EIO. again: a key for a context of the same row and provider, as if
 * it were new; 0, -EINVAL (likewise), or -EIO: it can only be destroyed then.
 * forget: the context has no key, and waits for the next; 0, or -EIO as above.
 * seal: 0 or -EIO (out is wiped). open: 0, -EBADMSG (the tag; out is wiped),
 * -EIO (out is wiped). A context of the other use, or without a key after forget
 * or an again that failed, is -EIO too.
 */
struct srdma_suite_verbs {
	/* p: the provider whose verbs these are; OpenSSL's take no notice. */
	int (*create)(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		      const struct srdma_suite_key *k);
	int (*again)(struct srdma_suite_ctx *ctx,
		     const struct srdma_suite_key *k);
	int (*forget)(struct srdma_suite_ctx *ctx);
	int (*seal)(struct srdma_suite_ctx *ctx,
		    const struct srdma_suite_io *io, uint8_t *tag);
	int (*open)(struct srdma_suite_ctx *ctx,
		    const struct srdma_suite_io *io, const uint8_t *tag);
	/* NULL, or: as so many seals of a MAC, in less time: codes of the tag's
	 * length, one behind the other. 0 or -EIO: out holds anything. */
	int (*seal_each)(struct srdma_suite_ctx *ctx,
			 const struct srdma_suite_inputs *each, uint8_t *out);
	/* NULL, or: ask for the memory that a short packet takes. */
	void (*ahead)(const struct srdma_suite_ctx *ctx);
	void (*destroy)(struct srdma_suite_ctx *ctx); /* wipes; NULL allowed */
};

/* OpenSSL's strategies: suite_aead.c and suite_mac.c. */
extern const struct srdma_suite_verbs srdma_suite_aead;	    /* text encrypted */
extern const struct srdma_suite_verbs srdma_suite_aead_mac; /* all as AD */
extern const struct srdma_suite_verbs srdma_suite_mac; /* EVP_MAC, truncated */

/* NULL if there is none. */
const struct srdma_suite *srdma_suite_by_id(uint8_t id);
const struct srdma_suite *srdma_suite_by_name(const char *name);
/* Row i of the table, NULL behind the last. */
const struct srdma_suite *srdma_suite_at(unsigned i);

/* 1 if the row may be used with tags of tag_len bytes. */
int srdma_suite_tag_ok(const struct srdma_suite *s, uint32_t tag_len);

/* How many tags of tag_len bytes may fail: fewer where they are short. */
uint64_t srdma_suite_forgeries(const struct srdma_suite *s, uint32_t tag_len);

/*
 * The end of opening with a MAC: r, or if that is 0, 0 where code begins with
 * the tag (in constant time) and else -EBADMSG. Wipes code: that of a forged
 * packet is a tag that would be accepted.
 */
int srdma_suite_judge(int r, uint8_t code[SRDMA_SUITE_MAX_TAG],
		      const uint8_t *tag, uint32_t tag_len);

/*
 * Known-answer test of one row as a provider computes it (NULL: OpenSSL): seal,
 * open, a flipped tag refused, and the same after another key.
 * Returns 0 or -EIO. The worker runs it for every row at its start.
 */
int srdma_suite_selftest(const struct srdma_suite *s, struct srdma_provider *p);

#endif
