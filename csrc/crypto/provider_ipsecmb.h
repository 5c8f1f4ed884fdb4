/*
 * intel-ipsec-mb: AES-GCM, GMAC, CMAC and ChaCha20-Poly1305 by the vector units
 * of x86-64. Its HMAC is faster only for many packets at a time, so OpenSSL's
 * is used. Private to provider*.c and suite_ipsecmb*.c.
 */
#ifndef SRDMA_PROVIDER_IPSECMB_H
#define SRDMA_PROVIDER_IPSECMB_H

#include <intel-ipsec-mb.h>

#include "crypto/provider.h"
#include "wire/wire.h"

enum { SRDMA_IPSECMB_INPUT = 255 + SRDMA_MAX_PAYLOAD };

struct srdma_ipsecmb {
	struct srdma_provider provider;
	IMB_MGR *mgr; /* uses all CPU features */
	/* Limited to AVX2, for CMAC jobs submitted one at a time: the library
	 * computes all AES lanes for each of them, and AVX2 has fewer lanes. */
	IMB_MGR *narrow;
	/* Scratch for input that must be contiguous. */
	uint8_t input[SRDMA_IPSECMB_INPUT];
};

/* Errors as srdma_provider_create(). */
int srdma_ipsecmb_create(struct srdma_provider **out);

/* Returns ad | in of io as contiguous bytes, copied to mb->input if in is not
 * empty. NULL if longer than any packet. */
const uint8_t *srdma_ipsecmb_join(struct srdma_ipsecmb *mb,
				  const struct srdma_suite_io *io);

/* Runs the job that the caller filled in after IMB_GET_NEXT_JOB. 0 or -EIO. */
int srdma_ipsecmb_do(IMB_MGR *mgr);

extern const struct srdma_suite_verbs srdma_suite_ipsecmb_gcm;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_gmac;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_chacha;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_poly1305;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_cmac;

#endif
