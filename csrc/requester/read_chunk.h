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
	SRDMA_READ_CHUNK_CUT,	 /* its repeated request is about to leave */
};

struct srdma_read_chunk {
	struct srdma_read_chunk *next, *before;
	uint64_t request_id;
	uint64_t flight; /* of its request, or SRDMA_NO_FLIGHT */
	uint64_t asked;	 /* time when its request left last, ns */
	uint64_t since;	 /* start of its time-out, ns */
	uint64_t late;	 /* time when it was first overtaken, ns; 0: never */
	uint32_t start, end;  /* offsets in the message */
	uint32_t from, until; /* of these, the range requested now */
	uint32_t left;	      /* empty places */
	uint8_t state;	      /* enum srdma_read_chunk_state */
	uint8_t executed;     /* the peer has executed its request */
	uint8_t later;	 /* responses to younger chunks since its request */
	uint64_t atomic; /* number of the atomic, from 1; 0: READ */
	uint8_t filled[SRDMA_PLACES / 8];
};

struct srdma_read_chunk_slab;

/* The first fields, up to `late`, are those that packets of other requests touch
 * too. */
struct srdma_read_chunks {
	struct srdma_read_chunk *head, *tail; /* oldest, youngest */
	uint32_t count;
	uint32_t wanted; /* chunks WANTED */
	uint64_t late; /* time before which no chunk is late, ns; 0: none is */
	uint32_t due;  /* responses that have not arrived */
	uint32_t size;
	uint32_t room;
	uint32_t mtu;	  /* payload of a response */
	uint32_t results; /* number of atomic results that the peer keeps */
	int ordered;	  /* the wire keeps order */
	struct srdma_table_memory *memory;
	struct srdma_read_chunk_slab *chunks; /* memory of `room` chunks */
	struct srdma_read_chunk *free;
	uint64_t atomics; /* requested so far */
	uint64_t oldest;  /* number of an atomic: earlier ones are answered */
};

struct srdma_read_chunk_response {
	uint64_t request_id;
	uint32_t offset, len;
	uint64_t now;
	/* Time after which a late chunk is lost on a wire that reorders, ns. */
	uint64_t patience;
	uint64_t flights; /* all flights with lower serial numbers ended */
	int atomic;	  /* response to an atomic, of SRDMA_ATOMIC_LEN bytes */
};

/* A table of at most size chunks. Its memory is taken from *memory, which
 * outlives it, when it is needed. The caller then sets mtu, results, ordered. */
void srdma_read_chunk_create(struct srdma_read_chunks *t,
			     struct srdma_table_memory *memory, uint32_t size);
void srdma_read_chunk_destroy(struct srdma_read_chunks *t);
/* Drops all chunks and gives their memory back. */
void srdma_read_chunk_clear(struct srdma_read_chunks *t);
/* Gives the memory back if there is no chunk. */
void srdma_read_chunk_shrink(struct srdma_read_chunks *t);

/* Number of responses to a chunk of len bytes. */
uint32_t srdma_read_chunk_responses(const struct srdma_read_chunks *t,
				    uint32_t len);
/* Adds a NEW chunk; NULL: no room, or no memory. */
struct srdma_read_chunk *srdma_read_chunk_add(struct srdma_read_chunks *t,
					      uint64_t id, uint32_t start,
					      uint32_t end);
/*
 * Adds a NEW chunk for an atomic. NULL also if the peer would drop the result of the
 * oldest atomic that is not answered: it keeps a limited number of results.
 */
struct srdma_read_chunk *
srdma_read_chunk_add_atomic(struct srdma_read_chunks *t, uint64_t id);
/* The NEW or CUT chunk of this range; NULL: none. */
struct srdma_read_chunk *
srdma_read_chunk_find(const struct srdma_read_chunks *t, uint64_t id,
		      uint32_t from, uint32_t until);
/* The chunk's request left, for the first time (with a flight) or again. The
 * chunk is now the youngest. */
void srdma_read_chunk_asked(struct srdma_read_chunks *t,
			    struct srdma_read_chunk *chunk, uint64_t flight,
			    uint64_t now);
/* The first WANTED chunk, which becomes CUT; NULL: none. */
struct srdma_read_chunk *srdma_read_chunk_next(struct srdma_read_chunks *t);
/* The chunk could not be segmented: WANTED again. */
void srdma_read_chunk_not_yet(struct srdma_read_chunks *t,
			      struct srdma_read_chunk *chunk);
/* The peer has executed the chunk's request: its time-out starts. Must be called
 * for the oldest chunk. */
void srdma_read_chunk_executed(struct srdma_read_chunk *chunk, uint64_t now);

/*
 * A response arrived. 0: its place was empty. *flight is the flight of its
 * request, which the caller ends, or SRDMA_NO_FLIGHT. -ENOENT: the response was
 * not requested, or arrived before.
 */
int srdma_read_chunk_fill(struct srdma_read_chunks *t,
			  const struct srdma_read_chunk_response *a,
			  uint64_t *flight);
/* Requests again the responses to chunks that are late for at least `patience`
 * ns. Returns the time of the next call; SRDMA_NEVER: no chunk is late. */
uint64_t srdma_read_chunk_expire(struct srdma_read_chunks *t, uint64_t now,
				 uint64_t patience);
/* The responses to the oldest chunk are lost: requests them again. */
void srdma_read_chunk_lose(struct srdma_read_chunks *t);

#endif
