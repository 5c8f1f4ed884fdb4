/* The relay's part of a QP: its place in the relay's lists, and its liveness.
 * Written by the folder relay/ only. */
#ifndef SRDMA_RELAY_ENTRY_IMPL_H
#define SRDMA_RELAY_ENTRY_IMPL_H

#include <stdint.h>

struct srdma_kept_node;
struct srdma_leg;
struct srdma_qp;

struct srdma_relay_entry {
	/* Each packet touches the first fields. */
	uint64_t last_work;	 /* relay_idle.c, ns */
	uint8_t responses_first; /* order of the next turn: pump.c */
	uint8_t reset;		 /* RESET was answered */
	/* relay_keep.c: its place among the QPs of kept, and in KEEP. */
	uint8_t kept_at, kept_index;

	uint32_t mtu; /* most payload of a packet that is taken, bytes */
	struct srdma_qp *hash_next;	     /* by SRC QPN */
	struct srdma_qp *leg_next, **leg_at; /* list of its leg, and the
						pointer to this QP */
	struct srdma_leg *leg;
	/* The same for the list of its identity's account, from KEYS on. */
	struct srdma_qp *identity_next, **identity_at;
	uint64_t closing; /* start of its removal, ns; 0: not begun */
	uint64_t pinged;  /* last PING of its liveness, ns */
	uint64_t life;	  /* time of its end by LIFE, ns; 0: none */
	/* expire.c: number of own and peer's requests at the last activity, and
	 * the time until which tables are kept without activity, ns. */
	uint64_t worked;
	uint64_t rested;
	struct srdma_kept_node *kept; /* NULL: none */
};

/* qp/layout.c */
struct srdma_relay_entry *srdma_qp_entry(const struct srdma_qp *qp);

#endif
