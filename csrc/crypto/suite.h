/*
 * Cipher suites, one const row each (docs/protocol.md 3.3). A row is found by
 * id or name, passes a known-answer test before first use, and is keyed into a
 * context for one direction and one key. A new algorithm is a new row.
 */
#ifndef SRDMA_SUITE_H
#define SRDMA_SUITE_H

#include <stddef.h>
#include <stdint.h>

struct srdma_provider;
struct srdma_suite_ctx; /* keyed context, one thread at a time */

enum { SRDMA_SUITE_MAX_KEY = 64, SRDMA_SUITE_MAX_TAG = 64 }; /* bytes */
enum { SRDMA_SUITE_LANES = 4 }; /* inputs of one srdma_suite_inputs */

/* A known answer: byte strings as literals. key, nonce, tag: sizes of the row.
 * out: in_len bytes, NULL for a MAC, whose tag covers ad | in. */
struct srdma_suite_answer {
	const char *key, *nonce, *ad, *in, *out, *tag;
	size_t ad_len, in_len; /* bytes; in_len <= 128 */
};

struct srdma_suite {
	uint8_t id;
	const char *name;    /* "aes-128-gcm" */
	uint8_t levels;	     /* bit 1 << enum srdma_level if supported */
	uint8_t recommended; /* 1: `auto` may choose it if it is the fastest */
	uint8_t key_len, iv_len, tag_len; /* bytes; tag_len is the default */
	uint8_t tag_min;    /* shortest tag length allowed, bytes */
	uint64_t packets;   /* hard limit of packets per key */
	uint64_t forgeries; /* limit of failed tags at full tag length */
	/* name for EVP_CIPHER_fetch() or EVP_MAC_fetch() */
	const char *algorithm;
	const char *primitive; /* EVP_MAC only: cipher or digest; else NULL */
	const struct srdma_suite_verbs *verbs;
	const struct srdma_suite_answer *answer; /* for the self-test */
};

/* Use of a keyed context. seal() and open() fail unless the use matches. A
 * context without a key does neither. */
enum srdma_suite_use {
	SRDMA_SUITE_OPEN = 0,
	SRDMA_SUITE_SEAL = 1,
	SRDMA_SUITE_NO_KEY = 2,
};

/* Input and output of one seal or open. */
struct srdma_suite_io {
	const uint8_t *nonce; /* iv_len bytes; NULL if iv_len is 0 */
	const uint8_t *ad;
	size_t ad_len;
	const uint8_t *in; /* AEAD: text; MAC: bytes authenticated after ad */
	size_t in_len;
	uint8_t *out; /* AEAD: in_len bytes, no overlap with in; MAC: unused */
};

/* 1 if a suite with nonces may follow the pointers of io. Libraries do not
 * check them, or give NULL another meaning. An AEAD also needs out. */
static inline int srdma_suite_complete(const struct srdma_suite_io *io)
{
	return io->nonce && (io->ad || !io->ad_len) && (io->in || !io->in_len);
}

/* Inputs of several MACs: input i is the len bytes at in + i * stride. */
struct srdma_suite_inputs {
	const uint8_t *in;
	size_t stride, len;
	unsigned n; /* 1 to SRDMA_SUITE_LANES */
};

/* Parameters of a keyed context. */
struct srdma_suite_key {
	const struct srdma_suite *suite;
	enum srdma_suite_use use; /* open or seal */
	uint32_t tag_len;	  /* bytes, for all its tags */
	const uint8_t *key;	  /* key_len bytes */
};

/*
 * Operations of an implementation of suites, called "verbs" here (not those of
 * libibverbs). -EIO: the implementation failed. create: makes a keyed context.
 * 0, -EINVAL (the row does not allow this tag length), -ENOMEM, -EIO. again:
 * gives a context a new key of the same row and provider. 0, -EINVAL as above,
 * or -EIO; after -EIO only destroy is allowed. forget: wipes the key; the
 * context can be keyed again. 0, or -EIO as above. seal: 0 or -EIO (out is
 * wiped). open: 0, -EBADMSG (wrong tag; out is wiped), -EIO (out is wiped).
 * seal and open return -EIO as well if the context was keyed for the other use
 * or has no key, open also if tag is NULL.
 */
struct srdma_suite_verbs {
	/* p: the provider of these operations; OpenSSL's ignore it. */
	int (*create)(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		      const struct srdma_suite_key *k);
	int (*again)(struct srdma_suite_ctx *ctx,
		     const struct srdma_suite_key *k);
	int (*forget)(struct srdma_suite_ctx *ctx);
	int (*seal)(struct srdma_suite_ctx *ctx,
		    const struct srdma_suite_io *io, uint8_t *tag);
	int (*open)(struct srdma_suite_ctx *ctx,
		    const struct srdma_suite_io *io, const uint8_t *tag);
	/* Optional. Computes the tags of several MAC inputs faster than as many
	 * seals; tags lie in out one after the other. 0 or -EIO (the content of
	 * out is undefined). */
	int (*seal_each)(struct srdma_suite_ctx *ctx,
			 const struct srdma_suite_inputs *each, uint8_t *out);
	/* Optional. Prefetches the memory that sealing or opening a short
	 * packet reads. */
	void (*prefetch)(const struct srdma_suite_ctx *ctx);
	void (*destroy)(struct srdma_suite_ctx *ctx); /* wipes; NULL allowed */
};

/* OpenSSL implementations: suite_aead.c and suite_mac.c. */
extern const struct srdma_suite_verbs srdma_suite_aead;	    /* text encrypted */
extern const struct srdma_suite_verbs srdma_suite_aead_mac; /* all as AD */
extern const struct srdma_suite_verbs srdma_suite_mac; /* EVP_MAC, truncated */

/* Lookup of a row; NULL if there is none. */
const struct srdma_suite *srdma_suite_by_id(uint8_t id);
const struct srdma_suite *srdma_suite_by_name(const char *name);
/* Row i of the table; NULL after the last one. */
const struct srdma_suite *srdma_suite_at(unsigned i);

/* 1 if the row may be used with tags of tag_len bytes. */
int srdma_suite_tag_ok(const struct srdma_suite *s, uint32_t tag_len);

/* Limit of failed tags for tags of tag_len bytes; lower for short tags. */
uint64_t srdma_suite_forgeries(const struct srdma_suite *s, uint32_t tag_len);

/*
 * Last step of opening with a MAC: compares the computed code with the tag in
 * constant time. Returns r if it is not 0, -EIO if tag is NULL, 0 if code begins
 * with tag, else -EBADMSG. Wipes code, because the code of a forged packet is a
 * valid tag.
 */
int srdma_suite_judge(int r, uint8_t code[SRDMA_SUITE_MAX_TAG],
		      const uint8_t *tag, uint32_t tag_len);

/*
 * Last step of sealing with a MAC that is longer than its tag: the tag is the
 * beginning of the computed code. Returns r, and writes no tag if it is not 0.
 * Wipes code.
 */
int srdma_suite_shorten(int r, uint8_t code[SRDMA_SUITE_MAX_TAG], uint8_t *tag,
			uint32_t tag_len);

/*
 * Known-answer test of one row as computed by p (NULL: OpenSSL): seal, open,
 * and refusal of a wrong tag. Each context had another key before, and each
 * test runs twice on it. Returns 0 or -EIO. The worker tests every row at its
 * start.
 */
int srdma_suite_selftest(const struct srdma_suite *s, struct srdma_provider *p);

#endif
