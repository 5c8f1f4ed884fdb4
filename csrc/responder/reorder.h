/*
 * Reorder buffer: verified request packets of the peer that arrived after a
 * gap, in order, and the gaps between them (docs/protocol.md 5.2). Early packets
 * of a message do not hold what others need (RFC 5042 R6.4.3.1-3). This file
 * knows neither QPs nor memory regions.
 */
#ifndef SRDMA_RESPONDER_REORDER_H
#define SRDMA_RESPONDER_REORDER_H

#include <stdint.h>

#include "base/share.h"
#include "ledger/ledger.h"
#include "session/session.h"
#include "wire/wire.h"
#include "wire/position.h"

struct srdma_buf;

enum { SRDMA_REORDER_MAX = 512 }; /* packets of one QP */

struct srdma_reorder_entry {
	struct srdma_reorder_entry *next, *prev;
	struct srdma_buf
		*buf; /* payload, or for an atomic's result; NULL: none */
	struct srdma_packet packet;
	size_t claim_len; /* bytes that the packet's proof covers; 0: no proof */
	uint8_t claim[SRDMA_CLAIM_MAX];
};

/* Entries for all QPs of a relay. */
struct srdma_reorder_pool {
	struct srdma_reorder_entry *all, *free;
	uint32_t left;
	struct srdma_share_groups groups; /* who holds the others */
};
/* 0 or -ENOMEM. */
int srdma_reorder_pool_create(struct srdma_reorder_pool *pool, uint32_t n);
void srdma_reorder_pool_destroy(struct srdma_reorder_pool *pool);

/* Initially all zero, except pool, account, share.group and pn. The first fields,
 * up to `newest`, are those that packets and acks touch while nothing is kept. */
struct srdma_reorder {
	struct srdma_reorder_entry *head, *tail; /* in order, no overlap */
	struct srdma_position
		furthest; /* highest end of a packet that verified */
	uint64_t pn;	  /* number of that packet; initially lower than any */
	uint64_t later;	  /* packets with higher numbers verified since */
	struct srdma_position page; /* the next page of gaps starts here */
	int newest;		    /* 1: the last ack listed the newest gaps */
	struct srdma_reorder_pool *pool;
	struct srdma_account *account; /* of the peer's identity */
	struct srdma_share share;      /* entries that it holds */
};

/* Call first for every verified packet of the QP, of any kind. */
void srdma_reorder_count(struct srdma_reorder *b, uint64_t pn);
/* Call after srdma_reorder_count() for a request packet that is not before the
 * expected position. */
void srdma_reorder_note(struct srdma_reorder *b, const struct srdma_packet *p);

/*
 * Keeps a request packet with its payload; takes *buf if the packet has payload
 * or is an atomic. bufs: 1 if enough buffers are free for that. When no entry or
 * buffer is free, or quotas hold back the free ones, the last packets of a
 * larger holder (share.h) are released, unless a quota guarantees these to it.
 * The caller fills in the claim of *out. 0; -EALREADY: the packet is kept
 * already; -EINVAL: it overlaps another packet, which a correct peer does not
 * send; -ENOSPC: the limit of the QP or of the identity, or no QP holds more.
 */
int srdma_reorder_keep(struct srdma_reorder *b, const struct srdma_packet *p,
		       struct srdma_buf **buf, int bufs,
		       struct srdma_reorder_entry **out);
/* Releases the first packet, and its buffer if the entry still has one. */
void srdma_reorder_pop(struct srdma_reorder *b);
/* Releases all packets. */
void srdma_reorder_drop(struct srdma_reorder *b);

struct srdma_reorder_from {
	struct srdma_position at; /* expected position */
	int reading; /* 1: at follows a read chunk, which may be the last of its
			READ, so that (id + 1, 0) may be expected too */
	uint64_t highest; /* highest packet number that verified */
	uint64_t credit;  /* request ids of the peer are lower */
};

struct srdma_reorder_gaps {
	struct srdma_gap gap[SRDMA_MAX_GAPS];
	uint8_t count;
	uint8_t skips; /* 1: gaps before these are not listed */
};

/* Lists at most SRDMA_MAX_GAPS missing ranges. If there are more, successive
 * calls list them page by page, and every second call lists the newest ones. */
void srdma_reorder_gaps(struct srdma_reorder *b,
			const struct srdma_reorder_from *from,
			struct srdma_reorder_gaps *out);

#endif
