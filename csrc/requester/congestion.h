/*
 * Congestion window: how many packets may be under way (docs/protocol.md 5.5).
 * On a wire that may drop packets, a growing delay narrows the window. Loss
 * narrows it only together with delay, because anybody can cause loss. On a
 * wire that has flow control of its own the window is as wide as it may be,
 * except after a new connection. This file knows neither packets nor clocks.
 */
#ifndef SRDMA_CONGESTION_H
#define SRDMA_CONGESTION_H

#include <stdint.h>

enum {
	SRDMA_CONGESTION_LEAST = 4,  /* packets: the narrowest window */
	SRDMA_CONGESTION_FIRST = 16, /* packets: the first window */
	/* Queueing delay on a short path, ns. Read chunks are answered in
	 * bursts. */
	SRDMA_CONGESTION_REQUESTS = 60000,
	SRDMA_CONGESTION_RESPONSES = 200000,
};

struct srdma_congestion {
	uint32_t most; /* packets: the widest window */
	uint32_t
		queue; /* accepted queueing delay, ns; 0: wire with flow control */
	uint32_t window,
		slow; /* 1/256 packets; below slow the window doubles */
	uint64_t base, next_base; /* least round-trip times, ns; 0: none yet */
	uint64_t since;		  /* start of next_base, ns */
	uint64_t now;		  /* last measurement, ns */
	uint64_t cut;		  /* when the window was narrowed last, ns */
	/* The present round, one round-trip time long. */
	uint64_t began, least;
	uint32_t came, lost; /* packets of this round */
	uint32_t stood;	     /* rounds in a row with queueing delay */
	uint32_t above;	     /* 1: the last round's delay was too long */
	uint64_t looks; /* delay before the window was closed to look at the
				    path, ns; 0: not looking */
};

/* most, queue: the fields. */
void srdma_congestion_init(struct srdma_congestion *c, uint32_t most,
			   uint32_t queue);
/* The window, packets. */
uint32_t srdma_congestion_window(const struct srdma_congestion *c);
/* Packets were acknowledged. used: 1 if the window was in use then. */
void srdma_congestion_arrived(struct srdma_congestion *c, uint32_t packets,
			      int used);
/* Packets that left, or were requested, at a time are lost. */
void srdma_congestion_lost(struct srdma_congestion *c, uint32_t packets,
			   uint64_t sent);
/* A round-trip time was measured. */
void srdma_congestion_rtt(struct srdma_congestion *c, uint64_t now,
			  uint64_t rtt);
/* A timer ran out. */
void srdma_congestion_timeout(struct srdma_congestion *c);
/* The path is another one. */
void srdma_congestion_restart(struct srdma_congestion *c);

#endif
