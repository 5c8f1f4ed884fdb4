/*
 * Reorder buffer: verified request packets of the peer that arrived after a
 * gap, in order, and the gaps between them (docs/protocol.md 5.2). It knows
 * packets and their order, neither QPs nor memory regions.
 */
#ifndef SRDMA_RESPONDER_REORDER_H
#define SRDMA_RESPONDER_REORDER_H

#include <stdint.h>

#include "session/session.h"
#include "wire/wire.h"
#include "wire/position.h"

struct srdma_buf;

enum { SRDMA_REORDER_MAX = 512 }; /* packets of one QP */

struct srdma_reorder_entry {
	struct srdma_reorder_entry *next;
	struct srdma_buf *buf; /* payload, or an atomic's; NULL: none */
	struct srdma_packet packet;
	size_t claim_len; /* packet with a proof: bytes that it covers */
	uint8_t claim[SRDMA_CLAIM_MAX];
};

/* Entries for all QPs of a relay. */
struct srdma_reorder_pool {
	struct srdma_reorder_entry *all, *free;
	uint32_t left;
};
/* 0 or -ENOMEM. */
int srdma_reorder_pool_create(struct srdma_reorder_pool *pool, uint32_t n);
void srdma_reorder_pool_destroy(struct srdma_reorder_pool *pool);

/* All zero except pool and pn: no packet arrived yet. */
struct srdma_reorder {
	struct srdma_reorder_pool *pool;
	struct srdma_reorder_entry *head, *tail; /* in order, no overlap */
	uint32_t count;
	struct srdma_position page; /* the next page of gaps starts here */
	int newest;		    /* the last ack listed the newest gaps */
	struct srdma_position furthest; /* end of all that verified */
	uint64_t pn;	/* of that packet; at first one less than any */
	uint64_t later; /* packets with higher numbers verified since */
};

/* Every verified packet of the QP is counted first, whatever its kind. */
void srdma_reorder_count(struct srdma_reorder *b, uint64_t pn);
/* A request packet that is not before the expected position: called last. */
void srdma_reorder_note(struct srdma_reorder *b, const struct srdma_packet *p);

/*
 * Keeps a request packet with its payload: takes *buf if the packet has payload
 * or is an atomic. The caller fills the claim of *out. 0; -EALREADY: the packet
 * is kept already; -EINVAL: another packet has some of its bytes, which no
 * correct peer sends; -ENOSPC: the limit of the QP, or its share of the pool.
 */
int srdma_reorder_keep(struct srdma_reorder *b, const struct srdma_packet *p,
		       struct srdma_buf **buf,
		       struct srdma_reorder_entry **out);
/* Releases the first packet, with its payload unless that was taken. */
void srdma_reorder_pop(struct srdma_reorder *b);
void srdma_reorder_drop(struct srdma_reorder *b);

struct srdma_reorder_from {
	struct srdma_position at; /* expected position */
	int reading; /* at follows a read chunk that may be its READ's last:
			(id + 1, 0) follows too */
	uint64_t highest; /* packet number that verified */
	uint64_t credit;  /* all request ids are lower */
};

struct srdma_reorder_gaps {
	struct srdma_gap gap[SRDMA_MAX_GAPS];
	uint8_t count;
	uint8_t skips; /* 1: gaps before these are not listed */
};

/* The missing ranges, at most SRDMA_MAX_GAPS. More of them are listed page by
 * page, and in every second ack the newest ones. */
void srdma_reorder_gaps(struct srdma_reorder *b,
			const struct srdma_reorder_from *from,
			struct srdma_reorder_gaps *out);

#endif
