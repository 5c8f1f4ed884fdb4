/*
 * How many packets may be under way (docs/protocol.md 5.5). On a wire that may
 * drop what is too much, delay says when that is; loss says nothing, for
 * anybody can cause it. On one that holds back by itself the window is as wide
 * as it may be, but for the time after a new connection. It knows neither
 * packets nor clocks.
 */
#ifndef SRDMA_CONGESTION_H
#define SRDMA_CONGESTION_H

#include <stdint.h>

enum {
	SRDMA_CONGESTION_LEAST = 4, /* packets: the narrowest window */
	SRDMA_CONGESTION_FIRST = 16,
};

struct srdma_congestion {
	uint32_t most;	 /* packets: the widest window */
	uint32_t window; /* in 1/256 packets, like the next one */
	uint32_t slow;	 /* below it the window doubles in a round trip */
	uint8_t ordered; /* the wire holds back: delay says nothing */
	uint8_t above;	 /* the last round trip was too long */
	uint64_t base, next_base; /* least round trips, ns; 0: none yet */
	uint64_t since;		  /* when next_base began */
	uint64_t cut;		  /* when the window narrowed last */
};

void srdma_congestion_init(struct srdma_congestion *c, uint32_t most,
			   int ordered);
/* Packets that may be under way. */
uint32_t srdma_congestion_window(const struct srdma_congestion *c);
/* So many have arrived, while the window was in use. */
void srdma_congestion_arrived(struct srdma_congestion *c, uint32_t packets);
/* A round trip took so long. */
void srdma_congestion_rtt(struct srdma_congestion *c, uint64_t now,
			  uint64_t rtt);
/* A timer ran out. */
void srdma_congestion_timeout(struct srdma_congestion *c);
/* The wire is another one. */
void srdma_congestion_restart(struct srdma_congestion *c);

#endif
