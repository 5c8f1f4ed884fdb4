/*
 * A flow: one direction of a session. It makes the nonce and the associated
 * data (AD) of each packet (docs/protocol.md 4.3, 4.4) and uses the keys of
 * epoch.h. Private to csrc; other code uses session.h.
 */
#ifndef SRDMA_FLOW_H
#define SRDMA_FLOW_H

#include <stdint.h>

#include "session/epoch.h"
#include "session/session.h"

enum {
	SRDMA_AD_FIXED = 80, /* bytes up to the end of the BTH */
	SRDMA_AD_MAX = 255,
};

struct srdma_flow {
	struct srdma_epochs epochs;
	union {
		struct {
			uint8_t generation[SRDMA_GENERATION_LEN];
			/* AD; the fields that are fixed for the session are
			 * written once (4.4). */
			uint8_t ad[SRDMA_AD_MAX];
		};
		/* The bytes that a proof covers are its first bytes (6.1). */
		uint8_t claim[SRDMA_GENERATION_LEN + SRDMA_AD_MAX];
	};
};

/*
 * Sets up the fixed part of the AD and the keys of one direction. suite NULL:
 * level none. Returns 0, -EINVAL, -ENOMEM, -EIO. The caller calls
 * srdma_flow_destroy() after a failure, too.
 */
int srdma_flow_create(struct srdma_flow *f, const struct srdma_suite *suite,
		      const struct srdma_session_params *params,
		      enum srdma_suite_use use);

/* Wipes the keys. */
void srdma_flow_destroy(struct srdma_flow *f);

/* Prefetches what the next packet reads, except the key. */
void srdma_flow_ahead(const struct srdma_flow *f);

/*
 * Writes the AD of *p to f->ad. *p was parsed or built and has its full packet
 * number and request id. Returns the length of the AD in bytes.
 */
uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p,
			 uint32_t epoch);

/* Length of the part of f->claim that the proof of *p covers, in bytes. */
uint32_t srdma_flow_claim_len(const struct srdma_packet *p);

/*
 * Seals or opens the packet of the last srdma_flow_bind(); at: the key slot.
 * The caller fills in, in_len, out and ad_len of io. Returns 0; -EBADMSG (open:
 * wrong tag); -EIO or -ENOMEM (the provider failed). On failure out is wiped or
 * unchanged.
 */
int srdma_flow_seal(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, uint8_t *tag);
int srdma_flow_open(struct srdma_flow *f, enum srdma_epoch_at at, uint64_t pn,
		    struct srdma_suite_io *io, const uint8_t *tag);

#endif
