/*
 * An operation: one packet's worth of work that may have to wait for DMA.
 * Each QP keeps three lists of them, each in order: requests on their way
 * out (fetch), answers on their way out (answer), payloads on their way
 * into host memory (place). An op is NEW until its DMA is under way,
 * ISSUED until the port reports it, then DONE and retired from the head of
 * its list. Internal to the relay.
 */
#ifndef SRDMA_OP_H
#define SRDMA_OP_H

#include <stdint.h>

#include "port/port.h"

struct srdma_mr;
struct srdma_qp;
struct srdma_relay;

enum srdma_op_state { SRDMA_OP_NEW, SRDMA_OP_ISSUED, SRDMA_OP_DONE };

enum srdma_op_kind {
	SRDMA_OP_FETCH,	 /* read the host: payload of an own request */
	SRDMA_OP_ANSWER, /* read the host: payload of an answer */
	SRDMA_OP_PLACE,	 /* write the host: payload of a peer's request */
	SRDMA_OP_RETURN, /* write the host: payload of an answer to us */
	SRDMA_OP_WASTE,	 /* was PLACE: a request before it was refused */
};

enum srdma_resend {
	SRDMA_RESEND_NO,
	SRDMA_RESEND_FLIGHT, /* a lost packet */
	SRDMA_RESEND_PART,   /* a READ_REQUEST for missing answers */
};

struct srdma_op {
	struct srdma_op *next;
	struct srdma_qp *qp;
	struct srdma_mr *mr;   /* while ISSUED */
	struct srdma_buf *buf; /* payload; NULL: none, or data */
	const uint8_t *data;   /* payload in the SQ (INLINE) */
	uint64_t addr;	       /* host memory of the DMA */
	uint32_t key;
	uint32_t right;	  /* access that the region must have */
	uint32_t len;	  /* bytes of payload */
	uint8_t kind;	  /* enum srdma_op_kind */
	uint8_t state;	  /* enum srdma_op_state */
	uint8_t reason;	  /* DONE: why the DMA failed, or 0 */
	uint8_t opcode;	  /* of the packet */
	uint8_t consumes; /* PLACE: ends a message that consumes a RECV */
	struct srdma_atomic atomic; /* PLACE: in place of a write */
	uint64_t original;	    /* ANSWER to an atomic */
	uint64_t request_id;
	uint32_t offset;  /* in the message; PLACE: of the end */
	uint32_t dma_len; /* of the RETH */
	uint64_t allowed; /* the peer's: serial when it was authorized (6.3) */
	uint64_t serial;  /* of the start of its DMA, while ISSUED */
	uint8_t ends;	  /* PLACE: the position after it is (id + 1, 0) */
	uint8_t again;	 /* of a READ that is answered again: moves no position,
			     and what fails of it is not sent */
	uint8_t resend;	 /* FETCH: enum srdma_resend */
	uint64_t flight; /* the one that is sent again */
};

/* Offset of the op's first byte in the message. */
static inline uint32_t srdma_op_start(const struct srdma_op *op)
{
	return op->kind == SRDMA_OP_PLACE ? op->offset - op->len : op->offset;
}

struct srdma_op_list {
	struct srdma_op *head, *tail;
	uint32_t count;
};

/* A pool of n ops. 0 or -ENOMEM. */
struct srdma_op_pool {
	struct srdma_op *all, *free;
	uint32_t left, total;
};
int srdma_op_pool_create(struct srdma_op_pool *pool, uint32_t n);
void srdma_op_pool_destroy(struct srdma_op_pool *pool);

/* A zeroed op at the tail of the QP's list of its kind; NULL: pool empty. */
struct srdma_op *srdma_op_add(struct srdma_qp *qp, enum srdma_op_kind kind);
/* The same of what is fetched again: before all that is new. */
struct srdma_op *srdma_op_add_resend(struct srdma_qp *qp);
/*
 * 1: the QP may add one more op to this list of what leaves. What arrives
 * finds buffers and ops all the same, and so do other QPs, however long this
 * one's peer or host dawdles: it holds a small part of what it leaves.
 */
int srdma_op_share(const struct srdma_qp *qp, const struct srdma_op_list *list);
/* Drop the head of a list, with its buffer. */
void srdma_op_retire(struct srdma_op_list *list);
/* Start the DMA of all NEW ops of a list, in order, as far as possible.
 * Returns 0, or -EAGAIN if some had to stay NEW. */
int srdma_op_issue(struct srdma_qp *qp, struct srdma_op_list *list);
/* The port reported an op's DMA (cookie). */
void srdma_op_done(struct srdma_op *op, int status);
/*
 * 1: a DMA for a peer that names some of these bytes of the region, and was
 * started before the serial, is under way.
 */
int srdma_op_busy(const struct srdma_op_pool *pool, const struct srdma_mr *mr,
		  uint64_t serial, uint64_t addr, uint64_t len);
/* Drop everything of a list that is not ISSUED (the QP is in error). */
void srdma_op_drop(struct srdma_op_list *list);

#endif
