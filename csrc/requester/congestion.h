/*
 * How many packets may be under way (docs/protocol.md 5.5). On a wire that may
 * drop what is too much, delay says when that is; loss only where there is a
 * queue too, for anybody can cause it. On one that holds back by itself the
 * window is as wide as it may be, but for the time after a new connection. It
 * knows neither packets nor clocks.
 */
#ifndef SRDMA_CONGESTION_H
#define SRDMA_CONGESTION_H

#include <stdint.h>

enum {
	SRDMA_CONGESTION_LEAST = 4, /* packets: the narrowest window */
	SRDMA_CONGESTION_FIRST = 16,
	/* ns of queue on a near path; parts are answered in bursts */
	SRDMA_CONGESTION_REQUESTS = 60000,
	SRDMA_CONGESTION_ANSWERS = 200000,
};

struct srdma_congestion {
	uint32_t most;	/* packets: the widest window */
	uint32_t queue; /* ns of queue, at least; 0: the wire holds back */
	uint32_t window, slow;	  /* 1/256 packets; narrower, it doubles */
	uint64_t base, next_base; /* least round trips, ns; 0: none yet */
	uint64_t since;		  /* when next_base began */
	uint64_t now;		  /* when a round trip was measured last */
	uint64_t cut;		  /* when the window narrowed last */
	/* A round takes a round trip. */
	uint64_t began, least;
	uint32_t came, lost; /* packets, in this round */
	uint32_t stood;	     /* rounds in a row with a queue */
	uint32_t above;	     /* the last one's round trip was too long */
	uint64_t looks;	     /* that of the round before few were sent; 0: no */
};

/* queue: see there. */
void srdma_congestion_init(struct srdma_congestion *c, uint32_t most,
			   uint32_t queue);
/* Packets that may be under way. */
uint32_t srdma_congestion_window(const struct srdma_congestion *c);
/* So many have arrived; used: while the window was in use. */
void srdma_congestion_arrived(struct srdma_congestion *c, uint32_t packets,
			      int used);
/* So many that left, or were asked for, then are lost. */
void srdma_congestion_lost(struct srdma_congestion *c, uint32_t packets,
			   uint64_t sent);
/* A round trip took so long. */
void srdma_congestion_rtt(struct srdma_congestion *c, uint64_t now,
			  uint64_t rtt);
/* A timer ran out. */
void srdma_congestion_timeout(struct srdma_congestion *c);
/* The wire is another one. */
void srdma_congestion_restart(struct srdma_congestion *c);

#endif
