/*
 * intel-ipsec-mb: AES-GCM and GMAC, CMAC, ChaCha20-Poly1305 by the vector units
 * of x86-64. Its HMAC is faster only for many packets at a time, and is
 * OpenSSL's here. Inside csrc, for provider*.c and suite_ipsecmb*.c only.
 */
#ifndef SRDMA_PROVIDER_IPSECMB_H
#define SRDMA_PROVIDER_IPSECMB_H

#include <intel-ipsec-mb.h>

#include "crypto/provider.h"
#include "wire/wire.h"

enum { SRDMA_IPSECMB_INPUT = 255 + SRDMA_MAX_PAYLOAD };

struct srdma_ipsecmb {
	struct srdma_provider provider;
	IMB_MGR *mgr;	 /* all that the CPU has */
	IMB_MGR *narrow; /* AVX2: for jobs that are done one at a time and
			    fill the lanes of AES; fewer lanes cost less */
	/* What is authenticated, in one piece where that is asked for. */
	uint8_t input[SRDMA_IPSECMB_INPUT];
};

int srdma_ipsecmb_create(struct srdma_provider **out);

/* ad | in of io in one piece. NULL: longer than any packet. */
const uint8_t *srdma_ipsecmb_join(struct srdma_ipsecmb *mb,
				  const struct srdma_suite_io *io);

/* Do one job, which the caller filled from IMB_GET_NEXT_JOB. 0 or -EIO. */
int srdma_ipsecmb_do(IMB_MGR *mgr);

extern const struct srdma_suite_verbs srdma_suite_ipsecmb_gcm;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_gmac;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_chacha;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_poly1305;
extern const struct srdma_suite_verbs srdma_suite_ipsecmb_cmac;

#endif
