/* The relay's part of a QP: its place in the relay's lists, and its liveness.
 * Written by the folder relay/ only. */
#ifndef SRDMA_RELAY_ENTRY_IMPL_H
#define SRDMA_RELAY_ENTRY_IMPL_H

#include <stdint.h>

struct srdma_leg;
struct srdma_qp;

struct srdma_relay_entry {
	struct srdma_qp *hash_next;	     /* by SRC QPN */
	struct srdma_qp *leg_next, **leg_at; /* of its leg, and what points
						to it */
	struct srdma_leg *leg;
	uint64_t first_pn;
	uint64_t closing;	 /* when its removal began, ns; 0: it has not */
	uint64_t pinged;	 /* last PING of its liveness, ns */
	uint64_t worked;	 /* requests, own and the peer's, when it ... */
	uint64_t rested;	 /* ... has been idle for long enough, ns */
	uint32_t mtu;		 /* payload taken */
	uint8_t responses_first; /* the wire was full of acks: pump.c */
};

/* qp/layout.c */
struct srdma_relay_entry *srdma_qp_entry(const struct srdma_qp *qp);

#endif
