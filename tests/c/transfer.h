/*
 * A transfer between two relays over a wire with latency and a rate, in
 * virtual time and from one seed: requests of every kind in both directions,
 * while somebody sits on the wire. Each request must end once, in order, with
 * the right data; what ended may change nothing any more.
 */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "relay_pair.h"

enum transfer_fault {
	TRANSFER_FLIP = 1 << 0, /* a bit */
	TRANSFER_DROP = 1 << 1,
	TRANSFER_TWICE = 1 << 2,
	TRANSFER_REPLACE = 1 << 3, /* by an older one of the same direction */
	TRANSFER_SWAP = 1 << 4,	   /* with the next one */
	TRANSFER_FAULTS = 5,
};

enum {
	TRANSFER_SLOTS = 1024, /* requests of a side under way, at most */
	TRANSFER_SLOT = 8192,
	TRANSFER_CAUGHT = 16,
};

struct transfer_request {
	uint64_t posted; /* when */
	uint8_t op;
	uint32_t len, imm;
	uint32_t sum;		   /* of the data */
	uint64_t swap_add, result; /* of an atomic; what it leaves there */
};

struct transfer_side {
	uint64_t posted, ended; /* requests */
	uint64_t messages;	/* of them, those that take a RECV */
	uint64_t receives, received;
	uint32_t failed; /* reason of the first that did not succeed */
	int over;	 /* the QP event came */
	struct transfer_request request[TRANSFER_SLOTS];
	struct transfer_request message[TRANSFER_SLOTS]; /* takes a RECV */
	struct {
		uint32_t len;
		uint8_t data[SRDMA_MAX_PACKET];
	} caught[TRANSFER_CAUGHT];
};

struct transfer {
	/* To be set; the rest zero. */
	uint64_t seed;
	uint64_t requests; /* of each side, */
	uint64_t packets;  /* or until so many were sent; 0: the other counts */
	uint32_t ops;	   /* bits of enum srdma_desc_op; 0: all */
	uint32_t kinds;	   /* bits of enum transfer_fault */
	uint32_t one_in;   /* so many packets are hit; 0: none */
	uint32_t cut_every;	/* packets, about: the wire is cut; 0: never */
	uint64_t hole_at;	/* packets; then it is a black hole ... */
	uint32_t hole;		/* ... for side 0 (bit 0), side 1 (bit 1) */
	uint32_t timeout_ms;	/* 0: 30 s */
	int window;		/* 1024: a wire that may reorder */
	uint64_t rekey_packets; /* 0: the default */
	uint8_t mode, shared;	/* key mode; policy of PD */
	uint64_t latency;	/* ns, one way; 0: 5 us */
	uint32_t bufs;		/* of each host port; 0: 1,024 */
	uint32_t depth;		/* requests of a side under way; 0: 512 */

	/* What came of it. */
	uint64_t sent;	  /* packets */
	uint64_t hit;	  /* of them */
	uint64_t cuts;	  /* of the wire */
	uint64_t rekeys;  /* epochs that began */
	uint64_t ns;	  /* virtual, from the first post to the last end */
	uint64_t slowest; /* ns from post to end of a request */
	uint64_t dark;	  /* when the hole began */
	struct srdma_stats stats[2];

	struct pair p;
	struct transfer_side side[2];
	uint64_t random, begin;
	uint64_t cut_at; /* packets */
};

/* All of it. A request may fail only behind a hole; then all behind it do. */
void transfer_run(struct transfer *t);

#endif
