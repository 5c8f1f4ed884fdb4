/* The responder's part of a QP, written by the folder responder/ only. */
#ifndef SRDMA_RESPONDER_RESPONDER_IMPL_H
#define SRDMA_RESPONDER_RESPONDER_IMPL_H

#include <sys/queue.h>

#include "memory/memkey.h"
#include "qp/env.h"
#include "qp/inbound.h"
#include "qp/qp.h"
#include "responder/atomic.h"
#include "responder/reorder.h"
#include "responder/responder.h"

/* Requests that are answered by a response, not only by an ack. */
#define SRDMA_T_ANSWERED (SRDMA_T_READ | SRDMA_T_ATOMIC)

/* A posted receive. */
struct srdma_rqe {
	uint64_t id;
	uint64_t addr;
	uint32_t length;
	uint32_t key;
	uint32_t byte_len;
	uint32_t imm;
	uint8_t with_imm;
	uint8_t opcode; /* enum srdma_wc_opcode */
	uint8_t done;
	uint8_t reason; /* of the receive's failure, or 0 */
	uint8_t sges;	/* entries of the SGL; 0: none */
};

/* SGL of a posted receive. */
struct srdma_rqe_sgl {
	struct srdma_sge sge[SRDMA_MAX_SGES];
};

/* ns between two looks for a slot that other QPs of the identity have. */
#define SRDMA_SLOT_RETRY (1 * SRDMA_MS)

/* Response slot: a READ chunk or an atomic that is to be answered. */
struct srdma_slot {
	uint64_t request_id;
	uint64_t va; /* of the message */
	uint32_t rkey;
	uint32_t start, next, end; /* offsets in the message */
	uint32_t sent;		   /* offset; the bytes before it were sent */
	uint8_t again;		   /* the response is repeated */
	uint8_t atomic;
	uint64_t allowed;  /* serial at its authorization */
	uint64_t original; /* atomic: original value, once the slot is ready */
};

/* The message of the peer that has begun and not ended. */
struct srdma_message {
	uint8_t kind; /* SRDMA_T_SEND, SRDMA_T_WRITE, SRDMA_T_READ; 0: none */
	uint32_t rkey;
	uint64_t va;
	uint32_t length; /* WRITE: DMALen */
};

/* The first fields, up to those of `reorder`, are those that each packet touches. */
struct srdma_responder {
	struct srdma_qp *qp;
	struct srdma_env *env;

	struct srdma_position accepted; /* expected next */
	struct srdma_position
		executed; /* all before it is placed; sent in acks */
	struct srdma_message message;
	uint64_t moved; /* when accepted moved, or reorder was empty last, ns */

	/* Receives: [rq_head, rq_tail). The next message consumes rq_next; the
	 * next one that is placed completes rq_done. */
	struct srdma_rqe *rq;
	uint32_t rq_depth, rq_mask;
	uint64_t rq_head, rq_done, rq_next, rq_tail;
	/* The holder of the receives that it takes; NULL: it has its own. */
	struct srdma_responder *shared;
	uint32_t advertised; /* receive credit last sent */

	uint32_t access; /* of the peer: remote flags of enum srdma_access */
	uint32_t response_mtu; /* the smaller mtu of both ends */
	/* Reason of a NAK that waits for earlier requests, or 0. LOCAL_KEY and
	 * LOCAL_DMA are of a receive's memory. */
	uint8_t refusing;
	uint8_t pinged;	 /* 1: a PING arrived whose ack has not left */
	uint8_t waiting; /* 1: it is among the waiters of `shared` */

	/* These fields are of the ring `slots`. */
	uint32_t slots_head, slots_count;
	int slots_refused;    /* 1: the request at the position waits for a slot
			      of its identity */
	uint32_t slots_ready; /* of these: may be answered */
	uint32_t slots_fetched; /* of these: all responses are in the list */
	struct srdma_op_list responses;
	uint8_t held_up; /* 1: the path had no room for a response that was ready,
			    and none left since then */
	struct srdma_reorder reorder;

	/* Ring of env->reads slots, made when first needed. */
	struct srdma_slot *slots;
	struct srdma_atomic_results atomics;
	struct srdma_rqe_sgl *rq_sgls; /* one per receive; NULL: none yet */
	uint32_t users;		       /* that take its receives */
	/* Users that wait for a receive, the first one first. */
	TAILQ_HEAD(srdma_waiters, srdma_responder) waiters;
	TAILQ_ENTRY(srdma_responder) wait;
};

/* qp/layout.c */
struct srdma_responder *srdma_qp_responder(const struct srdma_qp *qp);

static inline struct srdma_rqe *srdma_responder_rqe(struct srdma_responder *rs,
						    uint64_t i)
{
	return &rs->rq[i & rs->rq_mask];
}

static inline struct srdma_slot *srdma_slot_at(const struct srdma_responder *rs,
					       uint32_t i)
{
	return &rs->slots[(rs->slots_head + i) % rs->env->reads];
}

/* A request packet on its way through the stages. */
struct srdma_arrival {
	struct srdma_responder *rs;
	const struct srdma_packet *p;
	struct srdma_buf **buf; /* payload; *buf is NULL when taken */
	struct srdma_reorder_entry
		*kept; /* its reorder entry; NULL: it was not kept */
};

/* responder.c: checks and executes a request at the position. Requires a free
 * op. Returns the reason to refuse the request, or NONE. */
enum srdma_reason srdma_responder_run(const struct srdma_arrival *a);
/* Refuses the request at the position: NAK and ERR, when all earlier requests
 * are placed and answered. */
void srdma_responder_refuse(struct srdma_responder *rs,
			    enum srdma_reason reason);

/* sequence.c: fills in the gaps of an ack. */
void srdma_sequence_gaps(struct srdma_responder *rs,
			 struct srdma_ack_body *ack);

/* access.c. Checks bounds, rights and PD of the span, not its proof. NONE for a span
 * of 0 bytes; else NONE sets *mr. */
enum srdma_reason srdma_access_bounds(const struct srdma_responder *rs,
				      const struct srdma_span *span,
				      struct srdma_mr **mr);
/* Checks the peer's right on the QP and the packet's proof, not the bounds. mr: of
 * srdma_access_bounds(). */
enum srdma_reason srdma_access_permits(const struct srdma_arrival *a,
				       const struct srdma_span *span,
				       const struct srdma_mr *mr);
/* Checks both. */
enum srdma_reason srdma_access_check(const struct srdma_arrival *a,
				     const struct srdma_span *span);

/* execute.c. Add the payload to the inbound list, or a slot for the response, and
 * move the position. Require a free op. */
void srdma_execute_place(const struct srdma_arrival *a,
			 const struct srdma_span *to);
void srdma_execute_read(const struct srdma_arrival *a);
void srdma_execute_atomic(const struct srdma_arrival *a);

/* slot.c. 1: no slot or no memory is free for the packet, a READ chunk or atomic. */
int srdma_slot_full(struct srdma_responder *rs, const struct srdma_packet *p);
/* 1: the packet, a new READ chunk or atomic, must wait for a slot. A quarter of the
 * slots is reserved for requests that are repeated. If it waits for the quota of
 * its identity (docs/local-interface.md 3.10), slots_refused is 1, and the QP looks
 * again after SRDMA_SLOT_RETRY. */
int srdma_slot_waits(struct srdma_responder *rs, const struct srdma_packet *p);
/* Counts a request that began to wait, if it waits for the quota. */
void srdma_slot_count_refusal(const struct srdma_responder *rs);
/* Takes a free slot, which is answered after all earlier ones. again: 1 if the
 * response is repeated. Returns the op that makes the slot ready when done. */
struct srdma_op *srdma_slot_take(const struct srdma_arrival *a, uint8_t again);
/* Answers a READ chunk or atomic again, if it is still permitted and no response
 * to it is under way (5, 5.3). */
void srdma_slot_again(const struct srdma_arrival *a);
/* Frees the oldest slot, which is answered. */
void srdma_slot_pop(struct srdma_responder *rs);
/* 1: length and end of a READ chunk are legal. */
int srdma_slot_is_legal(const struct srdma_packet *p);

/* receive_queue.c: the message of this op, which consumed a receive, is placed:
 * the receive may complete. */
void srdma_receive_queue_done(struct srdma_responder *rs,
			      const struct srdma_op *op);
/* The SGL of the next receive; NULL: it has none. */
const struct srdma_sge *
srdma_receive_queue_sgl(const struct srdma_responder *rs);
/* Makes the table of the SGLs of receives, if it is not there. 0 or -ENOMEM. */
int srdma_receive_queue_make_sgls(struct srdma_responder *rs);
/* A receive moves from a place of one queue to a place of another one, whose
 * table of SGLs is there if the receive has an SGL. */
void srdma_receive_queue_move(struct srdma_responder *to, uint64_t to_at,
			      struct srdma_responder *from, uint64_t from_at);
/* Frees the SGLs of all receives. */
void srdma_receive_queue_free_sgls(struct srdma_responder *rs);
/* The oldest receive whose message is not placed completes with this reason, of
 * its memory. */
void srdma_receive_queue_failed(struct srdma_responder *rs,
				enum srdma_reason reason);
/* 1: a receive is posted for the next message. */
int srdma_receive_queue_is_ready(const struct srdma_responder *rs);
/* Receive credit that an ack tells. */
uint32_t srdma_receive_queue_credit(const struct srdma_responder *rs);
/* The next receive completes with RECV_TOO_SHORT. */
void srdma_receive_queue_too_short(struct srdma_responder *rs);

/* shared_queue.c. rs takes the receives of a holder. 1: the packet needs one of them,
 * and must wait for it. Takes one if rs has none left and no other QP waits for it. */
int srdma_shared_queue_waits(struct srdma_responder *rs,
			     const struct srdma_packet *p);
/* Gives receives of the holder to the QPs that wait, in the order in which they
 * began to. */
void srdma_shared_queue_serve(struct srdma_responder *from);
/* The QP failed: it waits no more, and QPs that wait for its receives go on without
 * one. */
void srdma_shared_queue_discard(struct srdma_responder *rs);
/* The QP ends: gives back the receives that it has taken, and leaves. */
void srdma_shared_queue_end(struct srdma_responder *rs);

#endif
