/*
 * AES-CMAC (SP 800-38B) with a reusable context: setting a new key takes 1/5 of
 * the time of creating a context.
 */
#ifndef SRDMA_CMAC_H
#define SRDMA_CMAC_H

#include <stddef.h>
#include <stdint.h>

enum { SRDMA_CMAC_LEN = 16 };

struct srdma_provider;
struct srdma_suite;
struct srdma_suite_ctx;
struct srdma_suite_inputs;
struct srdma_suite_verbs;

struct srdma_cmac {
	const struct srdma_suite *suite;
	const struct srdma_suite_verbs *verbs;
	struct srdma_provider *provider;
	struct srdma_suite_ctx *ctx; /* NULL after keying failed */
	size_t key_len;
};

/* For keys of 16 or 32 bytes. provider (NULL: OpenSSL) must outlive c.
 * Returns 0, -EINVAL (key_len), -EIO or -ENOMEM; on failure c is all zero. */
int srdma_cmac_create(struct srdma_cmac *c, size_t key_len,
		      struct srdma_provider *provider);

/* Wipes the key. An all-zero c is allowed. */
void srdma_cmac_destroy(struct srdma_cmac *c);

/* Sets the key (key_len bytes) for the following sums. Returns 0, -EIO or
 * -ENOMEM; on failure c has no key, and another key may be set. */
int srdma_cmac_key(struct srdma_cmac *c, const uint8_t *key);

/* Wipes the key. Sums return -EIO until a key is set. */
void srdma_cmac_forget(struct srdma_cmac *c);

/* CMAC of len bytes. Returns 0 or -EIO (out is wiped). */
int srdma_cmac_sum(struct srdma_cmac *c, uint8_t out[SRDMA_CMAC_LEN],
		   const uint8_t *in, size_t len);

/* CMACs of each->n inputs, written one after the other to out. Returns 0 or
 * -EIO (out is wiped). */
int srdma_cmac_sums(struct srdma_cmac *c, uint8_t *out,
		    const struct srdma_suite_inputs *each);

#endif
