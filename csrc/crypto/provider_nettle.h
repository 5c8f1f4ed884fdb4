/*
 * Nettle 3: AES-GCM, GMAC, ChaCha20-Poly1305, Poly1305 and CMAC with few
 * instructions per call, for short packets and derivations of keys on ARM. It
 * runs on every CPU; on one without instructions for AES and GHASH it uses
 * tables (docs/security.md). Private to provider*.c and suite_nettle*.c.
 */
#ifndef SRDMA_PROVIDER_NETTLE_H
#define SRDMA_PROVIDER_NETTLE_H

#include "crypto/provider.h"

/* nettle_set_key_func for the contexts of nettle_gcm_aes*, nettle_cmac_aes*. On
 * a CPU with ARM's instructions for AES no memory is read at an address that
 * depends on the key. */
void srdma_nettle_key_gcm128(void *ctx, const uint8_t *key);
void srdma_nettle_key_gcm192(void *ctx, const uint8_t *key);
void srdma_nettle_key_gcm256(void *ctx, const uint8_t *key);
void srdma_nettle_key_cmac128(void *ctx, const uint8_t *key);
void srdma_nettle_key_cmac256(void *ctx, const uint8_t *key);

/* Errors as srdma_provider_create(). */
int srdma_nettle_create(struct srdma_provider **out);

/* 1 if Nettle is used by default: it takes fewer instructions than OpenSSL, and
 * reads no table, because the CPU has ARM's instructions for AES and for
 * polynomial multiplication, and this library uses them. */
int srdma_nettle_suits(void);

extern const struct srdma_suite_verbs srdma_suite_nettle_aead;
extern const struct srdma_suite_verbs srdma_suite_nettle_aead_mac;
extern const struct srdma_suite_verbs srdma_suite_nettle_cmac;

#endif
