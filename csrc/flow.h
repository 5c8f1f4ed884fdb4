/*
 * A flow: one direction of a session. It has the traffic key, or derives it
 * when a packet needs it, and makes the nonce and the associated data of each
 * packet (docs/protocol.md 3.2, 3.4, 4.3, 4.4). Inside csrc only; session.h is
 * what others use.
 */
#ifndef SRDMA_FLOW_H
#define SRDMA_FLOW_H

#include <stdint.h>

#include "keycache.h"
#include "pdkeys.h"
#include "session.h"
#include "suite.h"

enum {
	SRDMA_AD_FIXED = 80, /* up to the BTH, which ends there */
	SRDMA_AD_MAX = 255,
};

/* In a mode with PD: what S comes from, with the ends in the flow's ad. */
struct srdma_flow_root {
	const struct srdma_pdkeys *pd;
	struct srdma_keycache *cache;
	struct srdma_keyslot *slot; /* what the cache keeps now, or NULL */
	uint8_t *secret;	    /* S as the peer gave it; NULL: from pd */
};

struct srdma_flow {
	const struct srdma_suite *suite; /* NULL: level none */
	enum srdma_suite_use use;
	union {
		struct srdma_keyed own;	     /* modes without PD */
		struct srdma_flow_root root; /* modes with it */
	};
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

/* Bytes of a direction's secret (3.2). */
static inline uint8_t srdma_flow_secret_len(const struct srdma_suite *s)
{
	return s->key_len <= 16 ? 16 : 32;
}

/*
 * Lay down what all packets of a direction have in common, and derive its key
 * but in a mode with PD. suite NULL: level none. Returns 0, -EINVAL, -ENOMEM,
 * -EIO; the caller destroys f in any case.
 */
int srdma_flow_create(struct srdma_flow *f, const struct srdma_suite *suite,
		      const struct srdma_session_params *params,
		      enum srdma_suite_use use);

/* Forget the key. */
void srdma_flow_destroy(struct srdma_flow *f);

/*
 * Make the associated data of *p, which was parsed or built and has its 62-bit
 * pn and 64-bit request id, in f->ad. Returns its length.
 */
uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p);

/* How much of f->claim the proof of the packet bound last covers. */
uint32_t srdma_flow_claim_len(const struct srdma_packet *p);

/*
 * Seal or open, whichever the flow is for, the packet bound last. The caller
 * fills in, in_len, out and ad_len of io, and knows the tag. 0; open: -EBADMSG
 * if the tag is wrong; -EIO, -ENOMEM: the provider failed. Failed: out is
 * wiped, or holds what it did.
 */
int srdma_flow_seal(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, uint8_t *tag);
int srdma_flow_open(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, const uint8_t *tag);

/* Bytes of keys and of IVs that the flow itself stores. */
uint32_t srdma_flow_key_bytes(const struct srdma_flow *f);
uint32_t srdma_flow_iv_bytes(const struct srdma_flow *f);

#endif
