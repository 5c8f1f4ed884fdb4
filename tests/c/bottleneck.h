/*
 * Several pairs of relays over one way with a rate and a short queue, in
 * virtual time: who gets how much of it (docs/protocol.md 5.5). Each flow is a
 * QP that has always something to send; all else about it is its own.
 */
#ifndef BOTTLENECK_H
#define BOTTLENECK_H

#include "relay_pair.h"

enum { BOTTLENECK_FLOWS = 8 };

struct bottleneck_flow {
	struct pair p;
	uint64_t start;		/* when; a little by chance */
	uint64_t posted, ended; /* requests */
	uint64_t before;	/* of them, those that ended before it counts */
};

struct bottleneck {
	/* To be set; the rest zero. */
	uint64_t random; /* the seed */
	uint32_t flows;
	uint64_t rate;	  /* bytes per us */
	uint64_t queue;	  /* ns */
	uint64_t latency; /* ns, one way, without the queue */
	uint64_t spread; /* ns: so much later than the one before starts each */
	uint64_t warm;	 /* ns from the last start to where it counts */
	uint64_t ns;	 /* that count */
	uint32_t one_in; /* so many packets are lost to an attacker; 0: none */
	uint8_t op;	 /* SRDMA_DESC_WRITE or SRDMA_DESC_READ */

	/* What came of it. */
	double jain;	/* index of the flows' shares: 1 is even */
	double used;	/* of the way's rate, by payload */
	double dropped; /* of the packets, by the queue */

	struct bottleneck_flow flow[BOTTLENECK_FLOWS];
	struct srdma_mem_way way[2];
	uint64_t now;
};

void bottleneck_run(struct bottleneck *b);

#endif
