/*
 * A transfer between two relays over a wire with latency and a rate, in virtual
 * time, determined by one seed: requests of every kind in both directions, with
 * an attacker on the wire. Each request must complete once, in order, with the
 * correct data. A completed request must not change memory any more.
 */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "support/relay_pair.h"

enum transfer_fault {
	TRANSFER_FLIP = 1 << 0, /* of a bit */
	TRANSFER_DROP = 1 << 1,
	TRANSFER_TWICE = 1 << 2,
	/* by an older packet of the same direction */
	TRANSFER_REPLACE = 1 << 3,
	TRANSFER_SWAP = 1 << 4, /* with the next packet */
	TRANSFER_FAULTS = 5,
};

enum {
	TRANSFER_SLOTS = 1024, /* maximum of outstanding requests per side */
	TRANSFER_SLOT = 8192,
	TRANSFER_CAUGHT = 16,
};

struct transfer_request {
	uint64_t posted; /* time */
	uint8_t op;
	uint32_t len, imm;
	uint32_t sum;		   /* CRC-32 of the data */
	uint64_t swap_add, result; /* operand of an atomic; value after it */
};

struct transfer_side {
	uint64_t posted, ended; /* requests */
	uint64_t messages;	/* requests that consume a RECV */
	uint64_t receives, received;
	uint32_t failed; /* reason of the first failure */
	int over;	 /* 1 once the QP event arrived */
	struct transfer_request request[TRANSFER_SLOTS];
	struct transfer_request message[TRANSFER_SLOTS]; /* consume a RECV */
	struct {
		uint32_t len;
		uint8_t data[SRDMA_MAX_PACKET];
	} caught[TRANSFER_CAUGHT];
};

struct transfer {
	/* Input. All other fields are 0. */
	uint64_t seed;
	uint64_t requests; /* stop after so many requests per side, */
	uint64_t packets;  /* or after so many packets; 0: no limit */
	uint32_t ops;	   /* bits of enum srdma_desc_op; 0: all */
	uint32_t kinds;	   /* bits of enum transfer_fault */
	uint32_t one_in;   /* one in so many packets is hit; 0: none */
	/* average packets between cuts of the wire; 0: never */
	uint32_t cut_every;
	uint64_t hole_at; /* packets sent before the black hole begins */
	/*
	 * sides whose packets the black hole drops: bit 0: side 0, bit 1: side
	 * 1
	 */
	uint32_t hole;
	uint32_t timeout_ms;	/* 0: 30 s */
	int window;		/* 1024: the wire may reorder */
	uint64_t rekey_packets; /* 0: default */
	uint8_t mode, shared;	/* key mode; 1: one K_PD for the trust group */
	uint64_t latency;	/* one way, ns; 0: 5 us */
	uint32_t bufs;		/* per host port; 0: 1,024 */
	uint32_t depth;		/* outstanding requests per side; 0: 512 */

	/* output */
	uint64_t sent;	  /* packets */
	uint64_t hit;	  /* packets hit by a fault */
	uint64_t cuts;	  /* cuts of the wire */
	uint64_t rekeys;  /* epochs begun */
	uint64_t ns;	  /* virtual time from begin to last completion, ns */
	uint64_t slowest; /* longest time from post to completion, ns */
	uint64_t dark;	  /* time at which the black hole began, ns */
	struct srdma_stats stats[2];

	struct pair p;
	struct transfer_side side[2];
	uint64_t random, begin;
	uint64_t cut_at; /* packets */
};

/*
 * Runs the whole transfer. Requests may fail only after a black hole began, and
 * then all later ones fail.
 */
void transfer_run(struct transfer *t);

#endif
