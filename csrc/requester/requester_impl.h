/* The requester's part of a QP, written by the folder requester/ only. */
#ifndef SRDMA_REQUESTER_REQUESTER_IMPL_H
#define SRDMA_REQUESTER_REQUESTER_IMPL_H

#include "memory/captable.h"
#include "path/path.h"
#include "path/rtt.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "requester/congestion.h"
#include "requester/flight.h"
#include "requester/read_chunk.h"
#include "requester/requester.h"

enum {
	SRDMA_UNDER_WAY = 128, /* most packets, and most responses, under way */
	SRDMA_READ_CHUNKS = 512, /* most chunks that are not wholly answered */
};

/* A request; its request id is its index in the SQ. */
struct srdma_wqe {
	uint64_t id; /* of the descriptor */
	uint64_t local_addr, remote_addr;
	uint64_t swap_add, compare;
	uint64_t deadline; /* ns */
	uint32_t length;
	uint32_t local_key, rkey;
	uint32_t imm;
	uint32_t capability; /* handle; 0: none */
	uint32_t segmented;  /* bytes in packets */
	uint32_t got;	     /* READ, atomic: bytes in host memory */
	uint8_t opcode;	     /* enum srdma_desc_op */
	uint8_t flags;	     /* enum srdma_desc_flag */
	uint8_t started;     /* its first packet is made */
	uint8_t sges;	     /* entries of the SGL; 0: none */
	uint8_t done;	     /* executed; completes after earlier requests */
	uint16_t fetching; /* packets fetched again: DMA may read its memory */
};

/* Bytes behind the descriptor of a request. */
union srdma_behind {
	uint8_t data[SRDMA_MAX_INLINE]; /* INLINE */
	struct srdma_sge sgl[SRDMA_MAX_SGES];
};

/* The capability of the request that was resolved last, for its bytes [from,
 * to). */
struct srdma_post_proof {
	uint64_t id;
	uint32_t from, to;
	struct srdma_captable_use use;
};

struct srdma_requester {
	struct srdma_qp *qp;
	struct srdma_env *env;
	const struct srdma_captable *captable;

	/* Requests [sq_head, sq_tail); from sq_next on not yet segmented. */
	struct srdma_wqe *sq;
	union srdma_behind *sq_behind; /* one per request; NULL: none yet */
	uint64_t sq_head, sq_next, sq_tail;
	uint32_t sq_depth, sq_mask;
	uint64_t timeout;	    /* of a request, ns */
	struct srdma_position sent; /* end of what was sent */
	uint64_t acked_id;	    /* earlier requests are executed */
	uint64_t flush_id;   /* flushing: the request that failed, or NONE */
	uint8_t flushing;    /* requests from sq_head on end with errors */
	uint8_t starving;    /* the next request lacks credit */
	uint32_t reads_open; /* READs and atomics started and not done */
	uint32_t sends;	     /* requests started that consume a receive */
	uint32_t recv_credit, request_credit; /* given by the peer */
	uint32_t peer_mtu, peer_window;
	struct srdma_op_list fetch;
	struct srdma_flights flights;
	struct srdma_read_chunks chunks;
	struct srdma_congestion requests, responses; /* packets under way */
	struct srdma_post_proof proof;
};

/* qp/layout.c */
struct srdma_requester *srdma_qp_requester(const struct srdma_qp *qp);

static inline struct srdma_wqe *srdma_requester_wqe(struct srdma_requester *rq,
						    uint64_t i)
{
	return &rq->sq[i & rq->sq_mask];
}

/* The SGL of the request; NULL: it has none. */
static inline const struct srdma_sge *
srdma_requester_sgl(const struct srdma_requester *rq, uint64_t i)
{
	return rq->sq[i & rq->sq_mask].sges ? rq->sq_behind[i & rq->sq_mask].sgl
					    : NULL;
}

/* post.c. Resolves the proof of an access to len bytes at the offset of the
 * request `id`; *use covers the first use->run of them. 0; -ENOENT: the
 * capability is no longer installed; -EACCES: it does not permit the access. */
int srdma_post_prove(struct srdma_requester *rq, uint64_t id, uint32_t offset,
		     uint32_t len, struct srdma_captable_use *use);

/* segment.c. Segments requests, lost packets first, and fetches their payload. 0
 * or -EAGAIN. */
int srdma_segment_fetch(struct srdma_requester *rq);
/* 1: the congestion window of requests is full. */
int srdma_segment_blocked(const struct srdma_requester *rq);
/* 1: the next request waits for credit, and for nothing else. */
int srdma_segment_starves(const struct srdma_requester *rq);

/* retry.c. An ack arrived. moved: 1 if it reported something new. */
void srdma_retry_acked(struct srdma_requester *rq, int moved);
/* A response arrived. */
void srdma_retry_responded(struct srdma_requester *rq);

#endif
