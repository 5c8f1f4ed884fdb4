/*
 * Read chunks: the ranges of READs that a requester has requested, and which of
 * their responses have arrived (docs/protocol.md 5.3), in the order in which
 * they were requested. A response is accepted once, in any order; missing
 * ranges are requested again as chunks of their own. An atomic is one chunk.
 *
 * A *place* is the range of one response: mtu bytes of the chunk.
 */
#ifndef SRDMA_READ_CHUNK_H
#define SRDMA_READ_CHUNK_H

#include <stdint.h>

#include "base/table.h"
#include "wire/wire.h"

enum { SRDMA_PLACES = SRDMA_MAX_READ_CHUNK / 256 }; /* 256: least mtu */

#define SRDMA_NO_FLIGHT UINT64_MAX

enum srdma_read_chunk_state {
	SRDMA_READ_CHUNK_NEW,	 /* segmented; its request has not left */
	SRDMA_READ_CHUNK_ASKED,	 /* its request left */
	SRDMA_READ_CHUNK_WANTED, /* to be requested again */
	SRDMA_READ_CHUNK_CUT,	 /* the same, segmented: about to leave */
};

struct srdma_read_chunk {
	struct srdma_read_chunk *next, *before;
	uint64_t request_id;
	uint64_t flight; /* of its request, or SRDMA_NO_FLIGHT */
	uint64_t asked;	 /* when its request left last, ns */
	uint64_t since;	 /* no response to it since then, ns */
	uint64_t late;	 /* first overtaken by a response then, ns; 0: not */
	uint32_t start, end;  /* offsets in the message */
	uint32_t from, until; /* of them, the range requested now */
	uint32_t left;	      /* empty places */
	uint8_t state;	      /* enum srdma_read_chunk_state */
	uint8_t executed;     /* the peer has executed its request */
	uint8_t later;	 /* responses to younger chunks that arrived since */
	uint64_t atomic; /* number of the atomic, from 1; 0: READ */
	uint8_t filled[SRDMA_PLACES / 8];
};

struct srdma_read_chunk_slab;

struct srdma_read_chunks {
	struct srdma_table_memory *memory;
	struct srdma_read_chunk_slab *chunks; /* of room chunks in all */
	uint32_t room;
	struct srdma_read_chunk *free;
	struct srdma_read_chunk *head, *tail; /* oldest, youngest */
	uint32_t size, count;
	uint32_t mtu;	  /* payload of a response */
	uint32_t results; /* of atomics, that the peer keeps */
	uint32_t due;	  /* responses that have not arrived */
	uint32_t wanted;  /* chunks WANTED */
	uint64_t late;	  /* no chunk is late since an earlier time; 0: none */
	uint64_t atomics; /* requested so far */
	uint64_t oldest;  /* number: all earlier atomics are answered */
	int ordered;	  /* the wire keeps order */
};

struct srdma_read_chunk_response {
	uint64_t request_id;
	uint32_t offset, len;
	uint64_t now;
	uint64_t patience; /* after which a late chunk is lost where packets
			      may overtake each other, ns */
	uint64_t flights;  /* all flights with lower serial numbers ended */
	int atomic; /* response to an atomic, of SRDMA_ATOMIC_LEN bytes */
};

/* At most size chunks. Memory is taken from *memory, which outlives them, as
 * they come. */
void srdma_read_chunk_create(struct srdma_read_chunks *t,
			     struct srdma_table_memory *memory, uint32_t size);
void srdma_read_chunk_destroy(struct srdma_read_chunks *t);
void srdma_read_chunk_clear(struct srdma_read_chunks *t);
/* Gives the memory back if there is no chunk. */
void srdma_read_chunk_shrink(struct srdma_read_chunks *t);

/* Responses to a chunk of len bytes. */
uint32_t srdma_read_chunk_responses(const struct srdma_read_chunks *t,
				    uint32_t len);
/* Adds a NEW chunk; NULL: no room, or no memory. */
struct srdma_read_chunk *srdma_read_chunk_add(struct srdma_read_chunks *t,
					      uint64_t id, uint32_t start,
					      uint32_t end);
/*
 * The same for an atomic. NULL also if the peer would drop the result of the
 * oldest atomic that is not answered: it keeps a limited number of results.
 */
struct srdma_read_chunk *
srdma_read_chunk_add_atomic(struct srdma_read_chunks *t, uint64_t id);
/* The chunk of this range that waits to be sent; NULL: none. */
struct srdma_read_chunk *
srdma_read_chunk_find(const struct srdma_read_chunks *t, uint64_t id,
		      uint32_t from, uint32_t until);
/* Its request left, for the first time (with a flight) or again; it is the
 * youngest now. */
void srdma_read_chunk_asked(struct srdma_read_chunks *t,
			    struct srdma_read_chunk *chunk, uint64_t flight,
			    uint64_t now);
/* The first WANTED chunk, which becomes CUT; NULL: none. */
struct srdma_read_chunk *srdma_read_chunk_next(struct srdma_read_chunks *t);
/* It could not be segmented: WANTED again. */
void srdma_read_chunk_not_yet(struct srdma_read_chunks *t,
			      struct srdma_read_chunk *chunk);
/* The flight of its request has ended. Called for the oldest chunk at least. */
void srdma_read_chunk_executed(struct srdma_read_chunk *chunk, uint64_t now);

/*
 * A response arrived. 0: its place was empty, and *flight is the flight of its
 * request, which has ended, or SRDMA_NO_FLIGHT. -ENOENT: it was not requested,
 * or arrived before.
 */
int srdma_read_chunk_fill(struct srdma_read_chunks *t,
			  const struct srdma_read_chunk_response *a,
			  uint64_t *flight);
/* Requests again what has been late for too long. When to call again;
 * SRDMA_NEVER: nothing is late. */
uint64_t srdma_read_chunk_expire(struct srdma_read_chunks *t, uint64_t now,
				 uint64_t patience);
/* The responses to the oldest chunk are lost: requests them again. */
void srdma_read_chunk_lose(struct srdma_read_chunks *t);

#endif
