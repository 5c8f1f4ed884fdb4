/*
 * A flow: one direction of a session. It makes the nonce and the associated
 * data of each packet (docs/protocol.md 4.3, 4.4); its keys, one of each epoch
 * that is live, are those of epoch.h. Inside csrc only; session.h is what
 * others use.
 */
#ifndef SRDMA_FLOW_H
#define SRDMA_FLOW_H

#include <stdint.h>

#include "session/epoch.h"
#include "session/session.h"

enum {
	SRDMA_AD_FIXED = 80, /* up to the BTH, which ends there */
	SRDMA_AD_MAX = 255,
};

struct srdma_flow {
	struct srdma_epochs epochs;
	union {
		struct {
			uint8_t generation[SRDMA_GENERATION_LEN];
			uint8_t ad[SRDMA_AD_MAX]; /* the session's bytes stay,
						     4.4 */
		};
		/* what a proof covers (6.1), from the start */
		uint8_t claim[SRDMA_GENERATION_LEN + SRDMA_AD_MAX];
	};
};

/*
 * Lay down what all packets of a direction have in common, and its keys. suite
 * NULL: level none. Returns 0, -EINVAL, -ENOMEM, -EIO; the caller destroys f in
 * any case.
 */
int srdma_flow_create(struct srdma_flow *f, const struct srdma_suite *suite,
		      const struct srdma_session_params *params,
		      enum srdma_suite_use use);

/* Forget the keys. */
void srdma_flow_destroy(struct srdma_flow *f);

/* A packet is about to come: ask for what it takes, but for the key. */
void srdma_flow_ahead(const struct srdma_flow *f);

/*
 * Make the associated data of *p, which was parsed or built and has its 62-bit
 * pn and 64-bit request id, in f->ad. Returns its length.
 */
uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p,
			 uint32_t epoch);

/* How much of f->claim the proof of the packet bound last covers. */
uint32_t srdma_flow_claim_len(const struct srdma_packet *p);

/*
 * Seal or open, whichever the flow is for, the packet bound last, by the key in
 * a place. The caller fills in, in_len, out and ad_len of io, and knows the
 * tag. 0; open: -EBADMSG if the tag is wrong; -EIO, -ENOMEM: the provider
 * failed. Failed: out is wiped, or holds what it did.
 */
int srdma_flow_seal(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, uint8_t *tag);
int srdma_flow_open(struct srdma_flow *f, enum srdma_epoch_at at, uint64_t pn,
		    struct srdma_suite_io *io, const uint8_t *tag);

#endif
