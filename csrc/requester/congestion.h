/*
 * Congestion window: how many packets may be under way (docs/protocol.md 5.5).
 * On a wire that may drop packets, a growing delay narrows the window. Loss
 * narrows it together with delay, or if more than a quarter of a round is lost:
 * an attacker can cause loss without delay. On a wire with flow control the
 * window is always the widest, except after a change of path. This file knows
 * neither packets nor clocks.
 */
#ifndef SRDMA_CONGESTION_H
#define SRDMA_CONGESTION_H

#include <stdint.h>

enum {
	SRDMA_CONGESTION_LEAST = 4,  /* packets: the narrowest window */
	SRDMA_CONGESTION_FIRST = 16, /* packets: the first window */
	/* Accepted queueing delay on a short path, ns: of requests, and of
	 * responses, which come in bursts. */
	SRDMA_CONGESTION_REQUESTS = 60000,
	SRDMA_CONGESTION_RESPONSES = 200000,
};

/* The first fields, up to `looks`, are those that each ack touches. */
struct srdma_congestion {
	/* 1/256 packets; a window below slow doubles per round. */
	uint32_t window, slow;
	uint32_t queue;	     /* accepted queueing delay, ns; 0: wire with flow
			   control */
	uint32_t most;	     /* packets: the widest window */
	uint32_t came, lost; /* packets of this round */
	uint32_t stood;	     /* rounds in a row with queueing delay */
	uint32_t above;	     /* 1: the last round's delay is not accepted */
	uint64_t looks; /* least round-trip time before look(), ns; 0: look() is
			   not measuring */
	uint64_t base, next_base; /* least round-trip times, ns; 0: none yet */
	uint64_t since;		  /* start of next_base, ns */
	uint64_t now;		  /* last measurement, ns */
	uint64_t cut;		  /* when the window was narrowed last, ns */
	/* The present round, one round-trip time long: its start, and its least
	 * round-trip time, ns. */
	uint64_t began, least;
};

/* most, queue: see the fields. */
void srdma_congestion_init(struct srdma_congestion *c, uint32_t most,
			   uint32_t queue);
/* The window, packets. */
uint32_t srdma_congestion_window(const struct srdma_congestion *c);
/* Packets were acknowledged. used: 1 if the window was in use then. */
void srdma_congestion_arrived(struct srdma_congestion *c, uint32_t packets,
			      int used);
/* Packets are lost that left, or responses that were requested, at `sent`, ns.
 * Losses from before the last narrowing do not count. */
void srdma_congestion_lost(struct srdma_congestion *c, uint32_t packets,
			   uint64_t sent);
/* A round-trip time was measured. */
void srdma_congestion_rtt(struct srdma_congestion *c, uint64_t now,
			  uint64_t rtt);
/* A timer ran out, and no packet of the peer arrives at all. */
void srdma_congestion_timeout(struct srdma_congestion *c);
/* The path is another one. */
void srdma_congestion_restart(struct srdma_congestion *c);

#endif
