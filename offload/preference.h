/*
 * Which suite a client had best ask for: the recommended ones, measured on
 * this machine, fastest first (docs/protocol.md 10, HELLO).
 */
#ifndef OFFLOAD_PREFERENCE_H
#define OFFLOAD_PREFERENCE_H

#include <stdint.h>

#include "ctl.h"
#include "crypto/provider.h"

/*
 * As a provider computes them (NULL: OpenSSL). Ids of all suites, then zeros: first the recommended ones in the order of
 * what sealing 2 KiB costs here, then the others in that of the table. Takes
 * a few milliseconds.
 */
void preference_measure(uint8_t suites[SRDMA_CTL_SUITES_LEN],
			struct srdma_provider *provider);

#endif
