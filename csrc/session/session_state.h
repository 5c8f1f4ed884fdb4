/* What a session is, for session.c, seal.c and open.c only. */
#ifndef SRDMA_SESSION_STATE_H
#define SRDMA_SESSION_STATE_H

#include <stdint.h>

#include "session/flow.h"
#include "session/session.h"
#include "crypto/suite.h"
#include "session/window.h"

struct srdma_session {
	const struct srdma_suite *suite; /* NULL: level none */
	uint8_t level, tag_len;
	uint32_t mtu;
	uint32_t local_qpn, peer_qpn;
	struct srdma_cmac *cmac; /* the caller's; NULL: no memory proofs */

	/* seal */
	struct srdma_flow tx;
	uint64_t tx_pn;		     /* next to spend */
	uint64_t own_next;	     /* 1 + highest request id sealed */
	uint64_t tx_first;	     /* number of the epoch's first packet */
	uint64_t sealed, sealed_max; /* packets of the epoch */
	uint64_t bytes;		     /* of their payload */
	uint64_t began;		     /* when the first of them was due */
	uint64_t due;		     /* when rekey.c looks again */
	struct {
		uint64_t packets, bytes, ns;
	} rekey; /* limits of an epoch that let another one be wanted */

	/* open */
	struct srdma_flow rx;
	struct srdma_window window;
	uint64_t peer_next;    /* 1 + highest request id verified */
	uint64_t rx_first;     /* number of the epoch's first verified packet */
	uint64_t rx_passed;    /* behind it the epoch before is over */
	uint64_t forgeries[4]; /* of each live epoch, by its 2 bits */
	uint64_t forgeries_max;
	uint8_t spent; /* one of them reached it */
};

/* The last packets that an epoch permits: of NAK and CLOSE (3.5). */
enum { SRDMA_LAST_WORDS = 8 };

/* rekey.c: a packet of the epoch with these bits had a wrong tag. */
void srdma_session_forged(struct srdma_session *s, uint8_t bits);
/* rekey.c: the first packet of the peer's next epoch verified, by this key. */
void srdma_session_follow(struct srdma_session *s, enum srdma_epoch_at at,
			  uint64_t pn);

/* Bytes of a packet's payload that the tag covers (4.5). */
static inline uint32_t srdma_session_covered(const struct srdma_session *s,
					     uint32_t payload_len)
{
	return s->level == SRDMA_LEVEL_HEADER ? 0 : payload_len;
}

#endif
