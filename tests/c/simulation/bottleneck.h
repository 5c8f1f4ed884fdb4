/*
 * Several pairs of relays share a link with a rate limit and a short queue, in
 * virtual time, to measure their shares (docs/protocol.md 5.5). Each flow is
 * one QP that always has data to send.
 */
#ifndef BOTTLENECK_H
#define BOTTLENECK_H

#include "support/relay_pair.h"

enum { BOTTLENECK_FLOWS = 8 };

struct bottleneck_flow {
	struct pair p;
	uint64_t start;		/* start time, slightly random */
	uint64_t posted, ended; /* requests */
	uint64_t before;	/* requests completed before the measurement */
};

struct bottleneck {
	/* Input. All other fields are 0. */
	uint64_t random; /* seed */
	uint32_t flows;
	uint64_t rate;	  /* bytes per us */
	uint64_t queue;	  /* length of the queue, ns */
	uint64_t latency; /* ns, one way, without the queue */
	uint64_t spread;  /* interval between the starts of flows, ns */
	uint64_t warm;	  /* from the last start to the measurement, ns */
	uint64_t ns;	  /* duration of the measurement, ns */
	uint32_t one_in;  /* one in so many packets is lost; 0: none */
	uint8_t op;	  /* SRDMA_DESC_WRITE or SRDMA_DESC_READ */

	/* output */
	double jain;	/* Jain's fairness index; 1 is even */
	double used;	/* share of the rate used by payload */
	double dropped; /* share of packets dropped by the queue */

	struct bottleneck_flow flow[BOTTLENECK_FLOWS];
	struct srdma_mem_way way[2];
	uint64_t now;
};

void bottleneck_run(struct bottleneck *b);

#endif
