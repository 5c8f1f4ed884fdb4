/*
 * Runs a key derivation test with OpenSSL and with the fastest provider of this
 * machine, for both key lengths.
 */
#ifndef CMAC_KEYS_H
#define CMAC_KEYS_H

#include "crypto/provider.h"

static inline void cmac_keys(void (*check)(struct srdma_provider *provider,
					   size_t key_len))
{
	struct srdma_provider *fastest;

	assert_int_equal(srdma_provider_create(&fastest, NULL), 0);
	for (size_t len = 16; len <= 32; len += 16) {
		check(NULL, len);
		check(fastest, len);
	}
	srdma_provider_destroy(fastest);
}

#endif
