/* What a session is, for session.c, seal.c and open.c only. */
#ifndef SRDMA_SESSION_STATE_H
#define SRDMA_SESSION_STATE_H

#include <stdint.h>

#include "flow.h"
#include "session.h"
#include "suite.h"
#include "window.h"

struct srdma_session {
	const struct srdma_suite *suite; /* NULL: level none */
	uint8_t level, tag_len;
	uint32_t mtu;
	uint32_t local_qpn, peer_qpn;
	struct srdma_cmac *cmac; /* the caller's; NULL: no memory proofs */

	/* seal */
	struct srdma_flow tx;
	uint64_t tx_pn; /* next to spend */
	uint64_t sealed, sealed_max;
	uint64_t own_next; /* 1 + highest request id sealed */

	/* open */
	struct srdma_flow rx;
	struct srdma_window window;
	uint64_t peer_next; /* 1 + highest request id verified */
	uint64_t forgeries, forgeries_max;
};

/* Bytes of a packet's payload that the tag covers (4.5). */
static inline uint32_t srdma_session_covered(const struct srdma_session *s,
					     uint32_t payload_len)
{
	return s->level == SRDMA_LEVEL_HEADER ? 0 : payload_len;
}

#endif
