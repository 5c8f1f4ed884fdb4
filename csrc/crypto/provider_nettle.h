/*
 * Nettle 3: AES-GCM, GMAC, ChaCha20-Poly1305, Poly1305 and CMAC with few
 * instructions per call, for short packets and derivations of keys on ARM. It
 * runs on every CPU. Private to provider*.c and suite_nettle*.c.
 */
#ifndef SRDMA_PROVIDER_NETTLE_H
#define SRDMA_PROVIDER_NETTLE_H

#include "crypto/provider.h"

/* Errors as srdma_provider_create(). */
int srdma_nettle_create(struct srdma_provider **out);

/* 1 if Nettle is faster here than OpenSSL, so that it is used by default: the
 * CPU has ARM's instructions for AES and for polynomial multiplication. */
int srdma_nettle_suits(void);

extern const struct srdma_suite_verbs srdma_suite_nettle_aead;
extern const struct srdma_suite_verbs srdma_suite_nettle_aead_mac;
extern const struct srdma_suite_verbs srdma_suite_nettle_cmac;

#endif
