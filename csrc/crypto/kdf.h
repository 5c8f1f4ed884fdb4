/*
 * Key derivation: SP 800-108r1 counter mode with CMAC (docs/protocol.md 3.1).
 */
#ifndef SRDMA_KDF_H
#define SRDMA_KDF_H

#include <stddef.h>
#include <stdint.h>

struct srdma_cmac;

struct srdma_kdf_info {
	const char *label; /* ASCII, at most 32 bytes */
	const uint8_t *context;
	size_t context_len; /* at most 64 bytes */
};

/*
 * Derives out_len (1..255) bytes from a parent key of 16 or 32 bytes.
 * Returns 0, -EINVAL (a length), -ENOMEM or -EIO; on failure out is wiped.
 */
int srdma_kdf(uint8_t *out, size_t out_len, const uint8_t *parent,
	      size_t parent_len, const struct srdma_kdf_info *info);

/*
 * As srdma_kdf(), but with a reusable context of the caller, which saves the
 * set-up. The parent has c->key_len bytes; out may be the same memory as
 * parent.
 */
int srdma_kdf_with(struct srdma_cmac *c, uint8_t *out, size_t out_len,
		   const uint8_t *parent, const struct srdma_kdf_info *info);

#endif
