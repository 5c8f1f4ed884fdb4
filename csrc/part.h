/*
 * Parts: what an initiator has asked for of its READs, and what of it has
 * come (docs/protocol.md 5.3). An answer is placed once, in any order; what
 * is missing is asked for again, as parts of their own. In the order in which
 * they were asked. An atomic is one part too.
 */
#ifndef SRDMA_PART_H
#define SRDMA_PART_H

#include <stdint.h>

#include "base/table.h"
#include "wire/wire.h"

enum { SRDMA_PLACES = SRDMA_READ_PART / 256 }; /* 256: the least mtu */

#define SRDMA_NO_FLIGHT UINT64_MAX

enum srdma_part_state {
	SRDMA_PART_NEW,	   /* cut; its request has not left */
	SRDMA_PART_ASKED,  /* on the wire */
	SRDMA_PART_WANTED, /* to be asked again */
	SRDMA_PART_CUT,	   /* the same, cut: about to leave */
};

struct srdma_part {
	struct srdma_part *next, *before;
	uint64_t request_id;
	uint64_t flight;      /* of its request; SRDMA_NO_FLIGHT: none */
	uint64_t asked;	      /* when its request left last, ns */
	uint64_t since;	      /* nothing was heard of it, ns */
	uint64_t late;	      /* an answer passed it then, ns; 0: none */
	uint32_t start, end;  /* offsets in the message */
	uint32_t from, until; /* of them, what is asked for now */
	uint32_t left;	      /* places that are empty */
	uint8_t state;	      /* enum srdma_part_state */
	uint8_t executed;     /* the peer has its request */
	uint8_t later;	      /* answers to younger parts that came since */
	uint64_t atomic;      /* number of the atomic, from 1; 0: of a READ */
	uint8_t filled[SRDMA_PLACES / 8];
};

struct srdma_part_chunk;

struct srdma_parts {
	struct srdma_table_memory *memory;
	struct srdma_part_chunk *chunks; /* of room parts in all */
	uint32_t room;
	struct srdma_part *free;
	struct srdma_part *head, *tail; /* oldest, youngest */
	uint32_t size, count;
	uint32_t mtu;	  /* payload of an answer: a place */
	uint32_t results; /* of atomics: the peer keeps so many */
	uint32_t due;	  /* answers that have not come */
	uint32_t wanted;  /* parts WANTED */
	uint64_t late;	  /* no part is late since earlier; 0: none is */
	uint64_t atomics; /* asked so far */
	uint64_t oldest;  /* no atomic before this one waits for its answer */
	int ordered;	  /* the wire keeps order */
};

struct srdma_part_answer {
	uint64_t request_id;
	uint32_t offset, len;
	uint64_t now;
	uint64_t patience; /* with what is late where order may change, ns */
	uint64_t flights;  /* those before this one have ended */
	int atomic;	   /* to an atomic: of SRDMA_ATOMIC_LEN bytes */
};

/* Of size parts at most; the memory, which outlives it, is taken for as many
 * as there were at a time. */
void srdma_part_create(struct srdma_parts *t, struct srdma_table_memory *memory,
		       uint32_t size);
void srdma_part_destroy(struct srdma_parts *t);
void srdma_part_clear(struct srdma_parts *t);
/* Give the memory back, if there is none. */
void srdma_part_shrink(struct srdma_parts *t);

/* Answers that a part of len bytes takes. */
uint32_t srdma_part_answers(const struct srdma_parts *t, uint32_t len);
/* One more, NEW; NULL: no room, or no memory for it. */
struct srdma_part *srdma_part_add(struct srdma_parts *t, uint64_t id,
				  uint32_t start, uint32_t end);
/*
 * The same of an atomic. NULL also if the peer, which keeps the results of
 * the last atomics, would then not keep that of the oldest one here.
 */
struct srdma_part *srdma_part_add_atomic(struct srdma_parts *t, uint64_t id);
/* The one that asks for this range and waits to be sent; NULL: none does. */
struct srdma_part *srdma_part_find(const struct srdma_parts *t, uint64_t id,
				   uint32_t from, uint32_t until);
/* Its request left, for the first time (a flight) or again: the youngest. */
void srdma_part_asked(struct srdma_parts *t, struct srdma_part *part,
		      uint64_t flight, uint64_t now);
/* The first WANTED one, which is CUT now; NULL: none. */
struct srdma_part *srdma_part_next(struct srdma_parts *t);
/* It could not be cut: WANTED as before. */
void srdma_part_not_yet(struct srdma_parts *t, struct srdma_part *part);
/* The flight of its request has ended; told of the oldest one at least. */
void srdma_part_executed(struct srdma_part *part, uint64_t now);

/*
 * An answer came: the flight of its request has ended, if it had one. 0: its
 * place was empty; -ENOENT: nobody asked for it, or not any more.
 */
int srdma_part_fill(struct srdma_parts *t, const struct srdma_part_answer *a,
		    uint64_t *flight);
/* Ask again for what has been late for too long. When to come again;
 * UINT64_MAX: nothing is late. */
uint64_t srdma_part_expire(struct srdma_parts *t, uint64_t now,
			   uint64_t patience);
/* The oldest part's answers are lost: ask again. */
void srdma_part_lose(struct srdma_parts *t);

#endif
