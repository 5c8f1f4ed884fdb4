/*
 * Flights: what a sender keeps of each request packet that the peer has not
 * executed yet, and when it is sent again (docs/protocol.md 5.1). In order
 * of (id, offset). It knows nothing of payloads, keys or timers; what it is
 * told comes from a verified packet, of a peer that may lie: no claim costs
 * more than one look at each flight, and none makes more of them.
 */
#ifndef SRDMA_FLIGHT_H
#define SRDMA_FLIGHT_H

#include <stdint.h>

#include "base/table.h"
#include "wire/wire.h"

enum srdma_flight_state {
	SRDMA_FLIGHT_UNDER_WAY, /* nothing said about its newest number */
	SRDMA_FLIGHT_LOST,	/* to be sent again */
	SRDMA_FLIGHT_AGAIN,	/* its payload is being fetched again */
	SRDMA_FLIGHT_HELD,	/* the peer has it */
	SRDMA_FLIGHT_OVER,	/* ended before those in front of it */
};

struct srdma_flight {
	uint64_t id;
	uint64_t pn;   /* of its newest packet */
	uint64_t sent; /* when that left, ns */
	uint32_t offset, len;
	uint32_t answers; /* that it asks for */
	uint8_t state;	  /* enum srdma_flight_state */
	uint8_t probe;	  /* to be sent with flag A */
	uint8_t missed;	  /* in a gap, but it may be about to come */
	uint8_t tries;	  /* times that it was sent again */
};

struct srdma_flights {
	struct srdma_table_memory *memory;
	struct srdma_flight *ring;
	uint32_t size; /* flights at most */
	uint32_t room; /* of the ring, a power of two; 0: no ring */
	uint32_t head, count;
	uint32_t waiting; /* of them, neither held nor over */
	uint32_t losts;	  /* of those, LOST */
	uint32_t held;	  /* answers that held ones ask for */
	uint64_t first;	  /* serial number of the one at head */
	uint64_t lost;	  /* no LOST one has a lower serial number */
	uint64_t judged;  /* packet number of the newest ack judged by */
	uint64_t ended;	  /* highest packet number of those that have ended */
	uint64_t probe;	  /* that of what a timer sent again last; 0: ended */
	uint64_t missed;  /* no missed one left before, ns; 0: none is */
};

/* What an ack says, widened (5.1). */
struct srdma_flight_word {
	uint64_t pn; /* of the ack itself */
	uint64_t id; /* position */
	uint32_t offset;
	uint64_t highest; /* packet number */
	const struct srdma_gap *gap;
	uint32_t gaps;
	int skips; /* there are gaps before these */
	uint64_t now;
	uint64_t patience; /* after which one that is missed is lost, ns */
	int ordered;	   /* the wire keeps order */
};

/* Of size flights at most; the memory, which outlives it, is taken for as many
 * as there are. */
void srdma_flight_create(struct srdma_flights *f,
			 struct srdma_table_memory *memory, uint32_t size);
void srdma_flight_destroy(struct srdma_flights *f);

/* Make room for n more, or as many as there may be. 0 or -ENOMEM. */
int srdma_flight_make_room(struct srdma_flights *f, uint32_t n);
/* Give the memory back, if there is none. */
void srdma_flight_shrink(struct srdma_flights *f);

/* A packet left; it is behind all others, and there is room. Returns its
 * serial number. */
uint64_t srdma_flight_add(struct srdma_flights *f,
			  const struct srdma_flight *flight);
/* Flight of that number; NULL: it has ended. */
struct srdma_flight *srdma_flight_at(const struct srdma_flights *f,
				     uint64_t serial);
/* When the packet of that number left; 0: it has ended, or is hard to find. */
uint64_t srdma_flight_sent(const struct srdma_flights *f, uint64_t pn);
/* A LOST one is fetched again. */
void srdma_flight_again(struct srdma_flights *f, struct srdma_flight *flight);
/* It is sent again: sealed under pn, at a time. */
void srdma_flight_resent(struct srdma_flights *f, struct srdma_flight *flight,
			 uint64_t pn, uint64_t now);
/* The peer has executed it, as its answer shows. */
void srdma_flight_over(struct srdma_flights *f, uint64_t serial);

/* All before a position end. Returns how many. */
uint32_t srdma_flight_acknowledge(struct srdma_flights *f, uint64_t id,
				  uint32_t offset);
/* Sort those that remain into lost and held. 1: it told something new. An
 * ack older than one that came before says nothing. */
int srdma_flight_judge(struct srdma_flights *f,
		       const struct srdma_flight_word *w);

/* Those that are missed and left so long ago are lost. When to come again;
 * UINT64_MAX: none is missed. */
uint64_t srdma_flight_expire(struct srdma_flights *f, uint64_t now,
			     uint64_t patience);

/* The first LOST one and its serial number; NULL: none. */
struct srdma_flight *srdma_flight_next_lost(struct srdma_flights *f,
					    uint64_t *serial);
/* The first one that is not held; NULL: none. */
struct srdma_flight *srdma_flight_oldest(const struct srdma_flights *f);
/* A timer says that it is lost: it is sent again with flag A. */
void srdma_flight_lose(struct srdma_flights *f, struct srdma_flight *flight);

/* --- the round-trip time (RFC 6298), ns --- */

struct srdma_rtt {
	uint64_t srtt, var;  /* srtt 0: nothing measured yet */
	uint64_t sent;	     /* when the last packet to be measured left */
	uint64_t pn;	     /* its number; 0: it was answered, or given up */
	uint32_t backoff;    /* doublings, until an ack moves something */
	uint32_t unanswered; /* the same of parts, until an answer comes */
};

/* 1: the next packet may be measured. */
int srdma_rtt_wants(const struct srdma_rtt *r, uint64_t now);
/* A packet with flag A left. */
void srdma_rtt_sent(struct srdma_rtt *r, uint64_t pn, uint64_t now);
/* Nothing is under way, so no timer has given up what is measured: if it is
 * overdue, it was lost. */
void srdma_rtt_doubt(struct srdma_rtt *r, uint64_t now);
/* The peer told its highest number; that packet left then (0: unknown). What a
 * timer may have given up is measured too, where there is no doubt: else a path
 * that is longer than the time-out never would be. */
void srdma_rtt_told(struct srdma_rtt *r, uint64_t highest, uint64_t sent,
		    uint64_t now);

/* How much later than others a packet may come on a wire that may reorder. */
uint64_t srdma_rtt_patience(const struct srdma_rtt *r);
void srdma_rtt_sample(struct srdma_rtt *r, uint64_t ns);
/* The time-out after so many doublings; of packets. */
uint64_t srdma_rtt_doubled(const struct srdma_rtt *r, uint32_t doublings);
uint64_t srdma_rtt_rto(const struct srdma_rtt *r);
/* A timer of one kind or the other ran out. */
void srdma_rtt_back_off(uint32_t *doublings);
/* An ack moved something, an answer came: the doublings of that end, if there
 * is a round trip to go by. */
void srdma_rtt_moved(struct srdma_rtt *r);
void srdma_rtt_answered(struct srdma_rtt *r);
/* It is lost, and no timer ran out since. */
void srdma_rtt_reset(struct srdma_rtt *r);

#endif
