/*
 * Counters and gauges of one worker process, with one writer and any number of
 * readers (docs/local-interface.md 3.7). The tables below are the only list of their
 * names.
 */
#ifndef SRDMA_STATS_H
#define SRDMA_STATS_H

#include <stdint.h>

#include "wire/reason.h"

/* Reasons for which a datagram is dropped without a response. */
#define SRDMA_REFUSALS(X)                                                      \
	X(SHORT, short)		  /* < 20 bytes, or truncated header */        \
	X(OPCODE, opcode)	  /* unknown, or illegal flags */              \
	X(HEADER, header)	  /* wrong fixed field of BTH, AETH, STH */    \
	X(LENGTH, length)	  /* illegal payload length */                 \
	X(PAD, pad)		  /* wrong PadCnt, or pad bytes not 0 */       \
	X(ACK_BODY, ack_body)	  /* illegal field of the ack body */          \
	X(TAG_CODE, tag_code)	  /* not the QP's tag length */                \
	X(UNKNOWN_QP, unknown_qp) /* no QP with this SRC QPN */                \
	X(QP_STATE, qp_state)	  /* QP does not receive in its state */       \
	X(PN_RANGE, pn_range)	  /* packet number not inferable */            \
	X(REPLAY, replay)	  /* seen before, or before the window */      \
	X(REQUEST_ID, request_id) /* request id not inferable */               \
	X(EPOCH, epoch)		  /* no live key epoch */                      \
	X(TAG, tag)		  /* the tag did not verify */                 \
	X(PROVIDER, provider)	  /* provider failed, or no memory */          \
	X(GAP, gap) /* after the position, reorder buffer full */              \
	X(UNSOLICITED, unsolicited) /* response without a request */

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
	X(wire_bytes_sent) /* all packets: headers, payload, tags */           \
	X(packets_resent)  /* requests and OPEN */                             \
	X(timeouts)	   /* timers that caused a resend or a PING */         \
	X(timer_looks)	   /* timer evaluations of QPs */                      \
	X(wires_lost)	   /* ended, or no longer trusted, per QP */           \
	X(wires_dialed)	   /* connected again */                               \
	X(duplicates)                                                          \
	X(kept) /* request packets put into the reorder buffer */              \
	X(atomics_executed)                                                    \
	X(atomics_repeated) /* responses from kept results */                  \
	X(acks_sent)                                                           \
	X(rnr_sent) /* the part of acks_sent of kind RNR */                    \
	X(rnr_received)                                                        \
	X(naks_sent)                                                           \
	X(naks_received)                                                       \
	X(descriptors)                                                         \
	X(completions)                                                         \
	X(completions_failed)                                                  \
	X(dma_read_bytes)                                                      \
	X(dma_written_bytes)                                                   \
	X(rekeys_sent)	   /* new epochs for sending */                        \
	X(rekeys_received) /* new epochs of peers */                           \
	X(proofs_made)                                                         \
	X(proofs_verified)                                                     \
	X(wakeups)                                                             \
	X(resumptions_refused)	/* wrong proofs of peers (8.6) */              \
	X(path_packets_held)	/* the limit of a path was used up (7.3) */    \
	X(path_changes)		/* a QP sends to another UDP address */        \
	X(path_changes_refused) /* the present UDP address was kept */         \
	X(path_returns)		/* to the address that the peer named */

/* QPs of one key mode and bytes of their sessions (session.h). */
#define SRDMA_GAUGES_OF(X, mode)                                               \
	X(qps_##mode)                                                          \
	X(key_bytes_##mode)                                                    \
	X(nonce_bytes_##mode)                                                  \
	X(window_bytes_##mode)

/* Current values, updated by srdma_relay_stats_measure(). */
#define SRDMA_GAUGES(X)                                                        \
	SRDMA_GAUGES_OF(X, basic)                                              \
	SRDMA_GAUGES_OF(X, pd)                                                 \
	SRDMA_GAUGES_OF(X, mem)                                                \
	SRDMA_GAUGES_OF(X, pd_mem)                                             \
	X(legs)                                                                \
	X(key_bytes_legs) /* K_PD and K_PDmem */                               \
	X(key_cache_kept)                                                      \
	X(key_cache_hits) /* since the start, as key_cache_misses */           \
	X(key_cache_misses)

/* Datagrams that a UDP wire dropped or could not send (11a). */
#define SRDMA_WIRE_COUNTS(X)                                                   \
	X(wire_short)	 /* too short for BTH, STH and ICRC */                 \
	X(wire_long)	 /* longer than the longest packet */                  \
	X(wire_icrc)	 /* wrong ICRC */                                      \
	X(wire_source)	 /* source address is not usable */                    \
	X(wire_full)	 /* verified, but no entry for its address */          \
	X(wire_too_long) /* not sent: longer than the path MTU */              \
	X(wire_unsent)	 /* not sent: refused by the kernel */

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
	uint64_t reason[SRDMA_REASON_COUNT];   /* failed QPs and requests */
};

/*
 * Name of counter i, 0 <= i < srdma_stats_count(), in the order of struct
 * srdma_stats: "packets_sealed", "refused_tag", "reason_BAD_RKEY". NULL for an
 * index without a counter. Its value is ((const uint64_t *)stats)[i].
 */
const char *srdma_stats_name(unsigned i);
unsigned srdma_stats_count(void);

#endif
