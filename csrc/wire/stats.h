/*
 * Counters and gauges of a worker thread: one writer, any reader (docs/protocol.md
 * 13.2). The table below is the only list of their names.
 */
#ifndef SRDMA_STATS_H
#define SRDMA_STATS_H

#include <stdint.h>

#include "wire/reason.h"

/* Every way in which a datagram is dropped without an answer. */
#define SRDMA_REFUSALS(X)                                                      \
	X(SHORT, short)		  /* under 20 bytes or cut in a header */      \
	X(OPCODE, opcode)	  /* unknown, or flags illegal for it */       \
	X(HEADER, header)	  /* a fixed field of BTH, AETH, STH */        \
	X(LENGTH, length)	  /* payload length */                         \
	X(PAD, pad)		  /* PadCnt wrong or pad bytes not zero */     \
	X(ACK_BODY, ack_body)	  /* a field of the ack body */                \
	X(TAG_CODE, tag_code)	  /* tag size code is not the QP's */          \
	X(UNKNOWN_QP, unknown_qp) /* no such SRC QPN */                        \
	X(QP_STATE, qp_state)	  /* the QP takes no packets now */            \
	X(PN_RANGE, pn_range)	  /* packet number cannot be inferred */       \
	X(REPLAY, replay)	  /* seen, or too old for the window */        \
	X(REQUEST_ID, request_id) /* request id cannot be inferred */          \
	X(EPOCH, epoch)		  /* no live key epoch */                      \
	X(TAG, tag)		  /* tag did not verify */                     \
	X(PROVIDER, provider)	  /* could not be verified: no memory */       \
	X(GAP, gap)		  /* verified, beyond the position, no room */ \
	X(UNSOLICITED, unsolicited) /* verified answer to nothing asked */

enum srdma_refusal {
	SRDMA_REFUSED_NOT = 0,
#define X(NAME, name) SRDMA_REFUSED_##NAME,
	SRDMA_REFUSALS(X)
#undef X
		SRDMA_REFUSED_COUNT
};

#define SRDMA_COUNTS(X)                                                        \
	X(packets_sealed)                                                      \
	X(bytes_sealed) /* payload */                                          \
	X(packets_verified)                                                    \
	X(bytes_verified) /* payload */                                        \
	X(packets_unprotected_sent)                                            \
	X(packets_unprotected_received)                                        \
	X(wire_bytes_sent) /* of all packets: headers, payload, tags */        \
	X(packets_resent)  /* requests, OPEN */                                \
	X(timeouts)	   /* that made something be sent again, or a PING */  \
	X(timer_looks)	   /* at the clocks of a QP */                         \
	X(wires_lost)	   /* by QPs: ended, or not trusted any more */        \
	X(wires_dialed)	   /* again */                                         \
	X(duplicates)                                                          \
	X(kept) /* requests beyond the position */                             \
	X(atomics_executed)                                                    \
	X(atomics_repeated) /* answered from the results kept */               \
	X(acks_sent)                                                           \
	X(rnr_sent) /* of them, those of kind RNR */                           \
	X(rnr_received)                                                        \
	X(naks_sent)                                                           \
	X(naks_received)                                                       \
	X(descriptors)                                                         \
	X(completions)                                                         \
	X(completions_failed)                                                  \
	X(dma_read_bytes)                                                      \
	X(dma_written_bytes)                                                   \
	X(rekeys_sent)	   /* epochs that began, of what is sent */            \
	X(rekeys_received) /* the same of the peers */                         \
	X(proofs_made)                                                         \
	X(proofs_verified)                                                     \
	X(wakeups)

/* QPs of a key mode, and the bytes of their sessions (session.h). */
#define SRDMA_GAUGES_OF(X, mode)                                               \
	X(qps_##mode)                                                          \
	X(key_bytes_##mode)                                                    \
	X(nonce_bytes_##mode)                                                  \
	X(window_bytes_##mode)

/* What is there now; srdma_relay_stats_measure() looks. */
#define SRDMA_GAUGES(X)                                                        \
	SRDMA_GAUGES_OF(X, basic)                                              \
	SRDMA_GAUGES_OF(X, pd)                                                 \
	SRDMA_GAUGES_OF(X, mem)                                                \
	SRDMA_GAUGES_OF(X, pd_mem)                                             \
	X(legs)                                                                \
	X(key_bytes_legs) /* K_PD and K_PDmem */                               \
	X(key_cache_kept)                                                      \
	X(key_cache_hits) /* these two since the start */                      \
	X(key_cache_misses)

/* Datagrams that a UDP wire dropped or could not send (11a). */
#define SRDMA_WIRE_COUNTS(X)                                                   \
	X(wire_short)	 /* no room for BTH, STH and ICRC */                   \
	X(wire_long)	 /* longer than any packet */                          \
	X(wire_icrc)	 /* wrong ICRC */                                      \
	X(wire_source)	 /* from where nothing can be sent to */               \
	X(wire_full)	 /* verified, but no place for its address */          \
	X(wire_too_long) /* not sent: longer than the path's MTU */            \
	X(wire_unsent)	 /* not sent: the kernel refused it */

struct srdma_wire_counts {
#define X(name) uint64_t name;
	SRDMA_WIRE_COUNTS(X)
#undef X
};

struct srdma_stats {
#define X(name) uint64_t name;
	SRDMA_COUNTS(X)
	SRDMA_GAUGES(X)
	SRDMA_WIRE_COUNTS(X)
#undef X
	uint64_t refused[SRDMA_REFUSED_COUNT]; /* enum srdma_refusal */
	uint64_t reason[SRDMA_REASON_COUNT];   /* QPs and requests ended so */
};

/*
 * Name of counter i, in the order of the struct: "packets_sealed",
 * "refused_tag", "reason_BAD_RKEY"; NULL for holes; i from 0 to
 * srdma_stats_count() - 1. The value is ((const uint64_t *)stats)[i].
 */
const char *srdma_stats_name(unsigned i);
unsigned srdma_stats_count(void);

#endif
