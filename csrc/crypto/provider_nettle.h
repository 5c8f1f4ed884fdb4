/*
 * Nettle 3: AES-GCM, GMAC, ChaCha20-Poly1305, Poly1305 and CMAC with few
 * instructions per call, for short packets and derivations of keys on ARM. It
 * runs on every CPU. Its key schedule of AES reads a table; on a CPU without
 * instructions for AES and GHASH each block does (docs/security.md). Private to
 * provider*.c and suite_nettle*.c.
 */
#ifndef SRDMA_PROVIDER_NETTLE_H
#define SRDMA_PROVIDER_NETTLE_H

#include "crypto/provider.h"

/* Errors as srdma_provider_create(). */
int srdma_nettle_create(struct srdma_provider **out);

/* 1 if Nettle is used by default: it takes fewer instructions than OpenSSL, and
 * reads no table but when it sets a key, because the CPU has ARM's instructions
 * for AES and for polynomial multiplication, and this library uses them. */
int srdma_nettle_suits(void);

extern const struct srdma_suite_verbs srdma_suite_nettle_aead;
extern const struct srdma_suite_verbs srdma_suite_nettle_aead_mac;
extern const struct srdma_suite_verbs srdma_suite_nettle_cmac;

#endif
