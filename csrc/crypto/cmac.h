/*
 * AES-CMAC (SP 800-38B) by a context that is keyed again and again: a new
 * key costs a fifth of a new context.
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
	struct srdma_suite_ctx *ctx; /* NULL where none could be keyed */
	size_t key_len;
};

/* For keys of 16 or 32 bytes, by a provider (NULL: OpenSSL) that outlives c.
 * Returns 0, -EINVAL, -EIO, -ENOMEM; c is whole or zero. */
int srdma_cmac_create(struct srdma_cmac *c, size_t key_len,
		      struct srdma_provider *provider);

/* Forgets the key of the last srdma_cmac_key(), which c holds until then. */
void srdma_cmac_destroy(struct srdma_cmac *c);

/* The key of the sums that follow, of key_len bytes. Returns 0, -EIO, -ENOMEM:
 * there is none then, and another may be set. */
int srdma_cmac_key(struct srdma_cmac *c, const uint8_t *key);

/* Let c hold no key: sums are -EIO until there is one. */
void srdma_cmac_forget(struct srdma_cmac *c);

/* Returns 0, -EIO; then out is wiped. */
int srdma_cmac_sum(struct srdma_cmac *c, uint8_t out[SRDMA_CMAC_LEN],
		   const uint8_t *in, size_t len);

/* The sums of each->n inputs, one behind the other in out. Returns 0, -EIO; then
 * out is wiped. */
int srdma_cmac_sums(struct srdma_cmac *c, uint8_t *out,
		    const struct srdma_suite_inputs *each);

#endif
