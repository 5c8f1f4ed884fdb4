/*
 * A flow: one direction of a session. It has the traffic key, and makes the
 * nonce and the associated data of each packet (docs/protocol.md 3.2, 4.3,
 * 4.4). Inside csrc only; session.h is what others use.
 */
#ifndef SRDMA_FLOW_H
#define SRDMA_FLOW_H

#include <stdint.h>

#include "session.h"
#include "suite.h"

enum {
	SRDMA_NONCE_LEN = 12,
	SRDMA_AD_FIXED = 80, /* up to the BTH, which ends there */
	SRDMA_AD_MAX = 255,
};

struct srdma_flow {
	struct srdma_suite_ctx *ctx; /* NULL: level none */
	uint8_t direction; /* 0: packets of the client, 1: of the server */
	uint8_t iv[SRDMA_NONCE_LEN];
	uint8_t nonce[SRDMA_NONCE_LEN]; /* of the packet that was bound last */
	uint8_t ad[SRDMA_AD_MAX];	/* the session's bytes stay, 4.4 */
};

/*
 * Derive the key of a direction and lay down what all its packets have in
 * common. suite NULL: level none. Returns 0, -EINVAL, -ENOMEM, -EIO; the
 * caller destroys f in any case.
 */
int srdma_flow_create(struct srdma_flow *f, const struct srdma_suite *suite,
		      const struct srdma_session_params *params,
		      enum srdma_suite_use use);

/* Forget the key. */
void srdma_flow_destroy(struct srdma_flow *f, const struct srdma_suite *suite);

/*
 * Make nonce and associated data of *p, which was parsed or built and has
 * its 62-bit pn and 64-bit request id. Returns the length of the data.
 */
uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p);

#endif
