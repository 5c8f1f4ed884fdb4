/* State of a session. Private to session.c, seal.c, open.c and rekey.c. */
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
	struct srdma_cmac *cmac; /* borrowed; NULL: no memory proofs */

	/* seal */
	uint64_t tx_pn;		     /* next packet number */
	uint64_t own_next;	     /* 1 + highest request id sealed */
	uint64_t tx_first;	     /* first packet number of the TX epoch */
	uint64_t sealed, sealed_max; /* packets of the epoch and their limit */
	uint64_t bytes;		     /* payload bytes of the epoch */
	uint64_t began;		     /* time at which the epoch began, ns */
	uint64_t due;		     /* next time at which rekey.c checks, ns */
	struct {
		uint64_t packets, bytes, ns;
	} rekey; /* limits after which a new epoch is wanted */
	struct srdma_flow tx;

	/* open */
	uint64_t peer_next; /* 1 + highest request id verified */
	uint64_t rx_first;  /* first verified packet number of the epoch */
	/* a verified number >= this ends the previous epoch */
	uint64_t rx_passed;
	uint8_t spent;	/* 1: forgeries_max was reached */
	uint8_t closed; /* 1: the RX keys are wiped; no packet is opened */
	struct srdma_flow rx;
	struct srdma_window window;

	/* No good packet needs these: srdma_session_prefetch() ends here. */
	uint64_t forgeries[4]; /* per live epoch, by its low 2 bits */
	uint64_t forgeries_max;
	/* renewal.c */
	struct {
		uint8_t key[SRDMA_RENEWAL_LEN];
		uint8_t live; /* 0: level none, or the QP has ended */
	} renewal;
	uint32_t renewals[2]; /* new secrets given: RX, TX */
};

/* Packets at the end of an epoch's limit that are reserved for NAK and CLOSE
 * (3.5). */
enum { SRDMA_LAST_WORDS = 8 };

/* rekey.c: counts a failed tag for the epoch with these low 2 bits. */
void srdma_session_forged(struct srdma_session *s, uint8_t bits);
/* rekey.c: the first packet of the peer's next epoch, pn, was verified with the
 * key in `at`, which becomes the current key. */
void srdma_session_follow(struct srdma_session *s, enum srdma_epoch_at at,
			  uint64_t pn);

/* Number of payload bytes that the tag covers (4.5). */
static inline uint32_t srdma_session_covered(const struct srdma_session *s,
					     uint32_t payload_len)
{
	return s->level == SRDMA_LEVEL_HEADER ? 0 : payload_len;
}

#endif
