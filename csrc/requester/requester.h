/*
 * Requester of a QP: own requests become packets, are sent until the peer has
 * executed them, and complete (docs/protocol.md 5, 5.1, 5.3).
 *
 *   post.c      a descriptor becomes a request of the send queue (SQ)
 *   segment.c   requests become packets, lost ones first; payload is fetched
 *   requester.c sends packets, which are flights until they are executed
 *   complete.c  acks and responses
 *   retry.c     time-outs
 */
#ifndef SRDMA_REQUESTER_REQUESTER_H
#define SRDMA_REQUESTER_REQUESTER_H

#include <stdint.h>

#include "wire/wire.h"

struct srdma_buf;
struct srdma_captable;
struct srdma_op;
struct srdma_qp;

/* --- requester.c ----------------------------------------------------------- */

struct srdma_requester_make {
	uint32_t depth;			       /* of the send queue */
	uint64_t timeout;		       /* of a request, ns */
	const struct srdma_captable *captable; /* of the leg */
};
/* 0 or -ENOMEM. */
int srdma_requester_create(struct srdma_qp *qp,
			   const struct srdma_requester_make *make);
void srdma_requester_destroy(struct srdma_qp *qp);

struct srdma_requester_params {
	uint32_t mtu;	       /* payload of a request packet, bytes */
	uint32_t response_mtu; /* of a response */
	uint32_t peer_window;  /* packets that the peer takes unacknowledged */
};
/* Time limit of the requests that are posted from now on, ns; SRDMA_NEVER:
 * none. */
void srdma_requester_set_timeout(struct srdma_qp *qp, uint64_t timeout);
/* KEYS: the peer's limits are known. */
void srdma_requester_begin(struct srdma_qp *qp,
			   const struct srdma_requester_params *params);
/* The QP failed: releases all work that needs no DMA to end. */
void srdma_requester_discard(struct srdma_qp *qp);
/* The path is another one: resets the congestion windows. */
void srdma_requester_restart(struct srdma_qp *qp);

/* Segments, fetches, sends. 0; else call again: -EAGAIN, or
 * -errno as the QP failed. */
int srdma_requester_send(struct srdma_qp *qp);
/* Gives back buffers of packets that cannot leave, except those under DMA; their
 * payload is fetched again. */
void srdma_requester_unfetch(struct srdma_qp *qp);
/* 1: packets were sent that the peer has not executed. */
int srdma_requester_in_flight(const struct srdma_qp *qp);

/* 1: the requester holds memory of env->tables, which only open requests need.
 */
int srdma_requester_has_tables(const struct srdma_qp *qp);
/* 1: no request is open, and no packet under way. */
int srdma_requester_is_idle(const struct srdma_qp *qp);
/* Gives that memory back. Requires that no request is open. */
void srdma_requester_give_tables(struct srdma_qp *qp);
/* Prefetches the memory that the next request or ack touches. */
void srdma_requester_prefetch(const struct srdma_qp *qp);

/* --- post.c ----------------------------------------------------------------- */

/* Posts a request. behind: inline data or SGL, which follow its descriptor. An
 * illegal request fails the QP. */
void srdma_post_request(struct srdma_qp *qp, const struct srdma_desc *d,
			const uint8_t *behind);
int srdma_post_is_empty(const struct srdma_qp *qp);
uint32_t srdma_post_depth(const struct srdma_qp *qp);
/* Requests posted so far. */
uint64_t srdma_post_count(const struct srdma_qp *qp);

/* --- complete.c ------------------------------------------------------------- */

/* A verified response to a READ or atomic. Its payload lies in *buf; *buf is
 * NULL afterwards if the requester keeps the buffer. */
void srdma_complete_response(struct srdma_qp *qp, const struct srdma_packet *p,
			     struct srdma_buf **buf);
/* A verified control packet, of which every kind acknowledges. 0: it was
 * ignored, as it names a packet that was never sent. */
int srdma_complete_ack(struct srdma_qp *qp, const struct srdma_packet *p);
/* The payload of a response is in host memory. */
void srdma_complete_returned(struct srdma_qp *qp, const struct srdma_op *op);
/* Writes completion records of requests. 0 or -EAGAIN. */
int srdma_complete_requests(struct srdma_qp *qp);

/* --- retry.c ---------------------------------------------------------------- */

/* Fails the QP if a request exceeds its time limit. Returns the time of the next
 * call, ns; SRDMA_NEVER: no request waits. */
uint64_t srdma_retry_deadline(struct srdma_qp *qp, uint64_t now);
/* Sends overdue packets again. Returns the time of the next call, ns, or
 * SRDMA_NEVER. */
uint64_t srdma_retry_expire(struct srdma_qp *qp, uint64_t now);

#endif
