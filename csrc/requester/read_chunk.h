/*
 * Parts: what an initiator has asked for of its READs, and what of it has
 * come (docs/protocol.md 5.3). An answer is placed once, in any order; what
 * is missing is asked for again, as parts of their own. In the order in which
 * they were asked. An atomic is one part too.
 */
#ifndef SRDMA_READ_CHUNK_H
#define SRDMA_READ_CHUNK_H

#include <stdint.h>

#include "table.h"
#include "wire.h"

enum { SRDMA_PLACES = SRDMA_MAX_READ_CHUNK / 256 }; /* 256: the least mtu */

#define SRDMA_NO_FLIGHT UINT64_MAX

enum srdma_read_chunk_state {
	SRDMA_READ_CHUNK_NEW,	   /* cut; its request has not left */
	SRDMA_READ_CHUNK_ASKED,  /* on the wire */
	SRDMA_READ_CHUNK_WANTED, /* to be asked again */
	SRDMA_READ_CHUNK_CUT,	   /* the same, cut: about to leave */
};

struct srdma_read_chunk {
	struct srdma_read_chunk *next, *before;
	uint64_t request_id;
	uint64_t flight;      /* of its request; SRDMA_NO_FLIGHT: none */
	uint64_t asked;	      /* when its request left last, ns */
	uint64_t since;	      /* nothing was heard of it, ns */
	uint64_t late;	      /* an answer passed it then, ns; 0: none */
	uint32_t start, end;  /* offsets in the message */
	uint32_t from, until; /* of them, what is asked for now */
	uint32_t left;	      /* places that are empty */
	uint8_t state;	      /* enum srdma_read_chunk_state */
	uint8_t executed;     /* the peer has its request */
	uint8_t later;	      /* answers to younger parts that came since */
	uint64_t atomic;      /* number of the atomic, from 1; 0: of a READ */
	uint8_t filled[SRDMA_PLACES / 8];
};

struct srdma_read_chunk_slab;

struct srdma_read_chunks {
	struct srdma_table_memory *memory;
	struct srdma_read_chunk_slab *chunks; /* of room parts in all */
	uint32_t room;
	struct srdma_read_chunk *free;
	struct srdma_read_chunk *head, *tail; /* oldest, youngest */
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

struct srdma_read_chunk_response {
	uint64_t request_id;
	uint32_t offset, len;
	uint64_t now;
	uint64_t patience; /* with what is late where order may change, ns */
	uint64_t flights;  /* those before this one have ended */
	int atomic;	   /* to an atomic: of SRDMA_ATOMIC_LEN bytes */
};

/* Of size parts at most; the memory, which outlives it, is taken for as many
 * as there were at a time. */
void srdma_read_chunk_create(struct srdma_read_chunks *t, struct srdma_table_memory *memory,
		       uint32_t size);
void srdma_read_chunk_destroy(struct srdma_read_chunks *t);
void srdma_read_chunk_clear(struct srdma_read_chunks *t);
/* Give the memory back, if there is none. */
void srdma_read_chunk_shrink(struct srdma_read_chunks *t);

/* Answers that a part of len bytes takes. */
uint32_t srdma_read_chunk_responses(const struct srdma_read_chunks *t, uint32_t len);
/* One more, NEW; NULL: no room, or no memory for it. */
struct srdma_read_chunk *srdma_read_chunk_add(struct srdma_read_chunks *t, uint64_t id,
				  uint32_t start, uint32_t end);
/*
 * The same of an atomic. NULL also if the peer, which keeps the results of
 * the last atomics, would then not keep that of the oldest one here.
 */
struct srdma_read_chunk *srdma_read_chunk_add_atomic(struct srdma_read_chunks *t, uint64_t id);
/* The one that asks for this range and waits to be sent; NULL: none does. */
struct srdma_read_chunk *srdma_read_chunk_find(const struct srdma_read_chunks *t, uint64_t id,
				   uint32_t from, uint32_t until);
/* Its request left, for the first time (a flight) or again: the youngest. */
void srdma_read_chunk_asked(struct srdma_read_chunks *t, struct srdma_read_chunk *part,
		      uint64_t flight, uint64_t now);
/* The first WANTED one, which is CUT now; NULL: none. */
struct srdma_read_chunk *srdma_read_chunk_next(struct srdma_read_chunks *t);
/* It could not be cut: WANTED as before. */
void srdma_read_chunk_not_yet(struct srdma_read_chunks *t, struct srdma_read_chunk *part);
/* The flight of its request has ended; told of the oldest one at least. */
void srdma_read_chunk_executed(struct srdma_read_chunk *part, uint64_t now);

/*
 * An answer came: the flight of its request has ended, if it had one. 0: its
 * place was empty; -ENOENT: nobody asked for it, or not any more.
 */
int srdma_read_chunk_fill(struct srdma_read_chunks *t, const struct srdma_read_chunk_response *a,
		    uint64_t *flight);
/* Ask again for what has been late for too long. When to come again;
 * UINT64_MAX: nothing is late. */
uint64_t srdma_read_chunk_expire(struct srdma_read_chunks *t, uint64_t now,
			   uint64_t patience);
/* The oldest part's answers are lost: ask again. */
void srdma_read_chunk_lose(struct srdma_read_chunks *t);

#endif
