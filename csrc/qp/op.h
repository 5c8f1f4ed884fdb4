/*
 * An operation (op): the work of one packet, which may wait for DMA. A QP
 * keeps three lists of ops, each in order: requests that leave (requester),
 * responses that leave (responder), writes into host memory (inbound.h). An op
 * is NEW until its DMA starts, ISSUED until the port reports its end, then
 * DONE and retired from the head of its list. An op with an SGL has several
 * DMAs: it is ISSUED while any is under way.
 */
#ifndef SRDMA_QP_OP_H
#define SRDMA_QP_OP_H

#include <stdint.h>

#include "port/port.h"

struct srdma_env;
struct srdma_mr;
struct srdma_qp;

enum srdma_op_state { SRDMA_OP_NEW, SRDMA_OP_ISSUED, SRDMA_OP_DONE };

/* FETCH and RESPOND read host memory; the kinds from PLACE on write it. */
enum srdma_op_kind {
	SRDMA_OP_FETCH,	  /* payload of an own request */
	SRDMA_OP_RESPOND, /* payload of a response */
	SRDMA_OP_PLACE,	  /* payload of a peer's request */
	SRDMA_OP_RETURN,  /* payload of a response to an own request */
	SRDMA_OP_WASTE,	  /* a PLACE after one whose DMA failed: no effect */
};

enum srdma_resend {
	SRDMA_RESEND_NO,
	SRDMA_RESEND_FLIGHT,	 /* a lost packet */
	SRDMA_RESEND_READ_CHUNK, /* a request whose responses are missing */
};

struct srdma_op {
	struct srdma_op *next;
	struct srdma_qp *qp;
	struct srdma_mr *mr;   /* while ISSUED, without an SGL */
	struct srdma_buf *buf; /* payload; NULL: none, or at data */
	const uint8_t *data;   /* payload in the SQ (INLINE) */
	uint64_t addr;	       /* host memory of the DMA */
	uint32_t key;
	/* Local memory of the whole message, instead of addr and key; NULL: no
	 * SGL. The bytes in one SGE are one DMA. */
	const struct srdma_sge *sgl;
	uint32_t begun, ended; /* SGL: bytes of the payload whose DMA started,
				  and ended */
	uint32_t right;	       /* access that the region must grant */
	uint32_t len;	       /* payload, bytes */
	uint32_t traits;       /* of the opcode: srdma_wire_traits() */
	uint8_t kind;	       /* enum srdma_op_kind */
	uint8_t state;	       /* enum srdma_op_state */
	uint8_t reason;	       /* DONE: why the DMA failed, or 0 */
	uint8_t opcode;	       /* of the packet */
	uint8_t consumes;      /* PLACE: ends a message that consumes a RECV */
	struct srdma_atomic atomic; /* PLACE: instead of a write */
	uint64_t original;	    /* RESPOND to an atomic */
	uint64_t request_id;
	uint32_t offset;  /* in the message; PLACE: of the end */
	uint32_t dma_len; /* of the RETH; PLACE: immediate data */
	uint64_t allowed; /* peer's access: serial at its authorization (6.3) */
	uint64_t serial;  /* while ISSUED: event `start of the DMA` (mr.h) */
	uint8_t ends;	/* PLACE: the next position is (id + 1, 0); RESPOND: the
			     last response of its slot */
	uint8_t again;	/* repeated response: moves no position, and is not
			     sent if its DMA fails */
	uint8_t resend; /* FETCH: enum srdma_resend */
	uint64_t flight; /* RESEND_FLIGHT: serial of the flight */
};

/* Offset of the op's first byte in the message. */
static inline uint32_t srdma_op_start(const struct srdma_op *op)
{
	return op->kind == SRDMA_OP_PLACE || op->kind == SRDMA_OP_WASTE
		       ? op->offset - op->len
		       : op->offset;
}

struct srdma_op_list {
	struct srdma_op *head, *tail;
	uint32_t count;
	/* Outgoing: charged to the identity for ops that the list does not have
	 * yet, or not any more. 0 except while the QP sends. */
	uint32_t prepaid;
};

struct srdma_op_pool {
	struct srdma_op *all, *free;
	uint32_t left, total;
};
/* A pool of n ops. 0 or -ENOMEM. */
int srdma_op_pool_create(struct srdma_op_pool *pool, uint32_t n);
void srdma_op_pool_destroy(struct srdma_op_pool *pool);

/* Adds a zeroed op of the QP at the tail of the list. A FETCH or RESPOND is
 * charged to the peer's identity (docs/local-interface.md 3.10). NULL: pool
 * empty, or the charge is refused. */
struct srdma_op *srdma_op_add(struct srdma_op_list *list, struct srdma_qp *qp,
			      enum srdma_op_kind kind);
/* Adds a FETCH for a packet that is sent again: after the other ones, before
 * those of new packets. NULL as above. */
struct srdma_op *srdma_op_add_resend(struct srdma_op_list *list,
				     struct srdma_qp *qp);
/* The worker ends, with DMA that no port reports any more: the charges of these
 * ops end. */
void srdma_op_pool_abandon(struct srdma_op_pool *pool);

/* 1: srdma_op_add() and srdma_op_add_resend() of an outgoing op give one. */
int srdma_op_is_free(const struct srdma_qp *qp,
		     const struct srdma_op_list *list);
/* n ops are about to be added to an outgoing list: charges those that are not
 * prepaid yet at once, as far as the quota permits. A single one is charged when it
 * is added. The caller calls srdma_op_settle() before the QP's run ends. */
void srdma_op_prepay(struct srdma_op_list *list, struct srdma_qp *qp,
		     uint32_t n);
/* Ends the charges of ops that the list does not have. */
void srdma_op_settle(struct srdma_op_list *list, struct srdma_qp *qp);
/* Ops with buffers that outgoing packets may take now. */
uint32_t srdma_op_outgoing(const struct srdma_env *env);
/*
 * 1: the QP's list of outgoing ops may grow (docs/protocol.md 5.6). It may hold
 * SRDMA_OPS_LEAST ops while any is free. Beyond that it holds at most 1/8 of
 * the free ops and buffers, the QPs of its peer's identity together at most as
 * many as are free, and a reserve stays for lists that hold less. Another reserve
 * is for packets that arrive.
 */
int srdma_op_share(const struct srdma_qp *qp, const struct srdma_op_list *list);
/* 1: outgoing packets hold more than half of the ops or buffers for them, so
 * those that cannot leave give theirs back. */
int srdma_op_scarce(const struct srdma_env *env);
/* Gives the buffers of a requester's list back, except those under DMA. Their
 * payload is read again when the ops are issued. */
void srdma_op_give_buffers(struct srdma_op_list *list);
/* The last op of the list that is ISSUED; NULL: none is. */
struct srdma_op *srdma_op_last_issued(const struct srdma_op_list *list);
/* Frees the ops after `last`, none of which is ISSUED; NULL: all ops. */
void srdma_op_cut(struct srdma_op_list *list, struct srdma_op *last);
/* Removes the head of a list and frees it with its buffer. */
void srdma_op_retire(struct srdma_op_list *list);
/* The same for an outgoing list, whose charge lasts until srdma_op_settle(). */
void srdma_op_sent(struct srdma_op_list *list);
/* Starts the DMA of all NEW ops of a list, in order; no DMA when the host is
 * gone. Fetches a buffer for those that gave theirs back. 0, or -EAGAIN: the
 * port is full, or no buffer is free, and some ops stay NEW. */
int srdma_op_issue(struct srdma_qp *qp, struct srdma_op_list *list);
/* The port reports the end of an op's DMA; status 0 or -errno. */
void srdma_op_done(struct srdma_op *op, int status);
/* 1: a DMA for a peer on these bytes of the region is under way that started
 * before the event `serial`. */
int srdma_op_busy(const struct srdma_op_pool *pool, const struct srdma_mr *mr,
		  uint64_t serial, uint64_t addr, uint64_t len);
/* Frees all ops of a list that are not ISSUED: the QP failed. */
void srdma_op_drop(struct srdma_op_list *list);

#endif
