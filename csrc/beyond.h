/*
 * The peer's requests that came too early: verified packets beyond a gap, in
 * order, and what is missing between them (docs/protocol.md 5.2). It knows
 * packets and their order, neither QPs nor memory regions.
 */
#ifndef SRDMA_BEYOND_H
#define SRDMA_BEYOND_H

#include <stdint.h>

#include "session/session.h"
#include "wire/wire.h"

struct srdma_buf;

enum { SRDMA_BEYOND_MAX = 512 }; /* packets kept of one QP */

/* A place in the order of requests: a byte of a message, or the beginning of
 * an empty one. */
struct srdma_position {
	uint64_t id;
	uint32_t offset;
};

static inline int srdma_position_before(struct srdma_position a,
					struct srdma_position b)
{
	return a.id < b.id || (a.id == b.id && a.offset < b.offset);
}

static inline struct srdma_position
srdma_position_of(const struct srdma_packet *p)
{
	return (struct srdma_position){ p->request_id, p->offset };
}

/* Where the packet's successor begins; of a part of a READ that has bytes: the
 * next part, if there is one. */
struct srdma_position srdma_position_after(const struct srdma_packet *p);

struct srdma_kept {
	struct srdma_kept *next;
	struct srdma_buf *buf; /* payload; an atomic's; NULL: none, or taken */
	struct srdma_packet packet;
	size_t claim_len; /* with a proof: what it covers */
	uint8_t claim[SRDMA_CLAIM_MAX];
};

/* Records for all QPs of a relay. */
struct srdma_beyond_pool {
	struct srdma_kept *all, *free;
	uint32_t left;
};
int srdma_beyond_pool_create(struct srdma_beyond_pool *pool, uint32_t n);
void srdma_beyond_pool_destroy(struct srdma_beyond_pool *pool);

/* All zero but pn and pool: nothing came yet. */
struct srdma_beyond {
	struct srdma_beyond_pool *pool;
	struct srdma_kept *head, *tail; /* in order, none overlap */
	uint32_t count;
	struct srdma_position page;	/* the next page of gaps begins there */
	int newest;			/* the last ack told the newest ones */
	struct srdma_position furthest; /* end of what ever verified */
	uint64_t pn;	/* of that packet; at first the number before all */
	uint64_t later; /* packets with higher numbers that verified since */
};

/* Every verified packet comes here first, whatever it is. */
void srdma_beyond_count(struct srdma_beyond *b, uint64_t pn);
/* Then every request packet that is not behind the position, last. */
void srdma_beyond_note(struct srdma_beyond *b, const struct srdma_packet *p);

/*
 * Keep a request packet, with its payload: *buf is taken over if it has one,
 * or is an atomic.
 * The caller fills the claim of *out. 0; -EALREADY: it is kept already;
 * -EINVAL: something else has some of its bytes, as no honest peer sends it;
 * -ENOSPC: the QP has SRDMA_BEYOND_MAX, or its part of the pool.
 */
int srdma_beyond_keep(struct srdma_beyond *b, const struct srdma_packet *p,
		      struct srdma_buf **buf, struct srdma_kept **out);
/* Give the first one back, with its payload if it has it. */
void srdma_beyond_pop(struct srdma_beyond *b);
void srdma_beyond_drop(struct srdma_beyond *b);

struct srdma_beyond_from {
	struct srdma_position at; /* what is expected */
	int reading;	  /* at follows a part of a READ that may be its last:
			       (id + 1, 0) follows too */
	uint64_t highest; /* packet number that verified */
	uint64_t credit;  /* no request packet has this id or a higher one */
};

struct srdma_beyond_gaps {
	struct srdma_gap gap[SRDMA_MAX_GAPS];
	uint8_t count;
	uint8_t skips; /* some before them are missing too */
};

/* What is missing: at most SRDMA_MAX_GAPS. Of more than that, page by page,
 * and the newest in every second ack. */
void srdma_beyond_gaps(struct srdma_beyond *b,
		       const struct srdma_beyond_from *from,
		       struct srdma_beyond_gaps *out);

#endif
