/*
 * Order in which a client should prefer suites: the recommended ones, measured
 * on this machine, fastest first (docs/local-interface.md 3, HELLO).
 */
#ifndef OFFLOAD_PREFERENCE_H
#define OFFLOAD_PREFERENCE_H

#include <stdint.h>

#include "relay/ctl.h"
#include "crypto/provider.h"

/*
 * Fill suites with the ids of all suites, then zeros: first the recommended
 * ones in the order of their time to seal 2 KiB with provider (NULL: OpenSSL),
 * then the others in the order of the suite table. Takes a few milliseconds.
 */
void preference_measure(uint8_t suites[SRDMA_CTL_SUITES_LEN],
			struct srdma_provider *provider);

#endif
