/*
 * Flights: the request packets that left and that the peer has not executed
 * yet, in order of their positions, and which of them are lost
 * (docs/protocol.md 5.1). This file knows neither payloads nor keys nor timers.
 * Acks come from a verified packet of a peer that may lie: an ack costs at most
 * one look at each flight, and cannot create flights.
 */
#ifndef SRDMA_REQUESTER_FLIGHT_H
#define SRDMA_REQUESTER_FLIGHT_H

#include <stdint.h>

#include "base/table.h"
#include "wire/wire.h"
#include "wire/position.h"

enum srdma_flight_state {
	SRDMA_FLIGHT_UNDER_WAY, /* its newest packet was not reported on */
	SRDMA_FLIGHT_LOST,	/* to be sent again */
	SRDMA_FLIGHT_AGAIN,	/* its payload is being fetched again */
	SRDMA_FLIGHT_HELD,	/* the peer has it */
	SRDMA_FLIGHT_OVER,	/* ended before earlier flights */
};

struct srdma_flight {
	uint64_t id;
	uint64_t pn;   /* of its newest packet */
	uint64_t sent; /* when that left, ns */
	uint32_t offset, len;
	uint32_t responses; /* that it requests */
	uint8_t state;	    /* enum srdma_flight_state */
	uint8_t probe;	    /* to be sent with flag A */
	uint8_t missed;	    /* in a gap, but it may still arrive */
	uint8_t tries;	    /* times that it was sent again */
};

struct srdma_flights {
	struct srdma_table_memory *memory;
	struct srdma_flight *ring;
	uint32_t size; /* most flights */
	uint32_t room; /* of the ring, a power of two; 0: no ring */
	uint32_t head, count;
	uint32_t waiting; /* of them, neither HELD nor OVER */
	uint32_t losts;	  /* of those, LOST */
	uint32_t held;	  /* responses that HELD ones request */
	uint64_t first;	  /* serial number of the flight at head */
	uint64_t lost;	  /* no LOST one has a lower serial number */
	uint64_t judged;  /* packet number of the newest ack */
	uint64_t ended;	  /* highest packet number of ended flights */
	uint64_t probe;	  /* packet number of the last one that a timer sent
			     again; 0: it ended */
	uint64_t missed; /* no missed one left earlier, ns; 0: none is missed */
};

/* An ack, its numbers widened to 64 bits (5.1). */
struct srdma_flight_ack {
	uint64_t pn; /* of the ack itself */
	struct srdma_position position;
	uint64_t highest; /* packet number */
	const struct srdma_gap *gap;
	uint32_t gaps;
	int skips; /* gaps before these are not listed */
	uint64_t now;
	uint64_t patience; /* a missed packet is lost after it, ns */
	int ordered;	   /* the wire keeps order */
};

/* At most size flights. Memory is taken from *memory, which outlives them, as
 * they come. */
void srdma_flight_create(struct srdma_flights *f,
			 struct srdma_table_memory *memory, uint32_t size);
void srdma_flight_destroy(struct srdma_flights *f);

/* Makes room for n more, as far as size permits. 0 or -ENOMEM. */
int srdma_flight_make_room(struct srdma_flights *f, uint32_t n);
/* Gives the memory back if there is no flight. */
void srdma_flight_shrink(struct srdma_flights *f);

/* A packet left, after all others; there is room for it. Returns its serial
 * number. */
uint64_t srdma_flight_add(struct srdma_flights *f,
			  const struct srdma_flight *flight);
/* The flight of a serial number; NULL: it has ended. */
struct srdma_flight *srdma_flight_at(const struct srdma_flights *f,
				     uint64_t serial);
/* When the packet of a number left; 0: it has ended, or is hard to find. */
uint64_t srdma_flight_sent(const struct srdma_flights *f, uint64_t pn);
/* The payload of a LOST one is being fetched again. */
void srdma_flight_again(struct srdma_flights *f, struct srdma_flight *flight);
/* It was sent again under packet number pn. */
void srdma_flight_resent(struct srdma_flights *f, struct srdma_flight *flight,
			 uint64_t pn, uint64_t now);
/* A response shows that the peer has executed it. */
void srdma_flight_over(struct srdma_flights *f, uint64_t serial);

/* Ends all flights before a position. Returns how many. */
uint32_t srdma_flight_acknowledge(struct srdma_flights *f,
				  struct srdma_position position);
/* Marks the remaining ones lost or held. 1: the ack told something new. An ack
 * older than a previous one tells nothing. */
int srdma_flight_judge(struct srdma_flights *f,
		       const struct srdma_flight_ack *ack);

/* Declares lost what was missed and left that long ago. When to call again;
 * SRDMA_NEVER: nothing is missed. */
uint64_t srdma_flight_expire(struct srdma_flights *f, uint64_t now,
			     uint64_t patience);

/* The first LOST one and its serial number; NULL: none. */
struct srdma_flight *srdma_flight_next_lost(struct srdma_flights *f,
					    uint64_t *serial);
/* The first one that is neither HELD nor OVER; NULL: none. */
struct srdma_flight *srdma_flight_oldest(const struct srdma_flights *f);
/* A timer ran out: it is LOST, and sent again with flag A. */
void srdma_flight_lose(struct srdma_flights *f, struct srdma_flight *flight);

#endif
