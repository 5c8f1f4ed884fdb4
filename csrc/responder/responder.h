/*
 * Responder of a QP: executes the peer's requests in order (docs/protocol.md
 * 4.6, 5, 6). A packet that arrives here has verified. Its next stages:
 *
 *   sequence  sequence.c   its position: expected, repeated or too early
 *   access    access.c     region, rights and proof, before any DMA
 *   execute   execute.c    DMA into host memory, or a response slot
 *   respond   respond.c    acks and responses
 *
 * The chain is srdma_responder_receive() and srdma_responder_run().
 */
#ifndef SRDMA_RESPONDER_RESPONDER_H
#define SRDMA_RESPONDER_RESPONDER_H

#include <stdint.h>

#include "wire/wire.h"

struct srdma_buf;
struct srdma_op;
struct srdma_qp;

enum {
	SRDMA_REQUEST_CREDIT = 1024
}; /* request ids from the position on that a peer may use */

/* --- responder.c; the stages also sequence.c, execute.c ------------------- */

/* depth: of the receive queue. 0 or -ENOMEM. */
int srdma_responder_create(struct srdma_qp *qp, uint32_t depth);
void srdma_responder_destroy(struct srdma_qp *qp);
/* Rights of the peer on this QP, remote flags of enum srdma_access. At first
 * all. */
void srdma_responder_set_access(struct srdma_qp *qp, uint32_t access);

/* KEYS: the QP has a session. mtu: payload of a response, bytes. */
void srdma_responder_begin(struct srdma_qp *qp, uint32_t mtu);
/* The QP failed: releases all work that needs no DMA to end. */
void srdma_responder_discard(struct srdma_qp *qp);

/* Counts a verified packet of the QP, of any kind. */
void srdma_responder_count(struct srdma_qp *qp, const struct srdma_packet *p);
/* Takes a verified request through its stages. Its payload lies in *buf; *buf is
 * NULL afterwards if the responder keeps the buffer. Requires a free op. */
void srdma_responder_receive(struct srdma_qp *qp, const struct srdma_packet *p,
			     struct srdma_buf **buf);
/* The peer sent PING: the next ack is RNR if no receive is posted. */
void srdma_responder_pinged(struct srdma_qp *qp);
/* Takes packets of the reorder buffer that are at the position through their
 * stages. 0, or -EAGAIN: no op is free for more. */
int srdma_responder_drain(struct srdma_qp *qp);
/* A PLACE op is done, or failed. */
void srdma_responder_placed(struct srdma_qp *qp, const struct srdma_op *op);
/* Call when all accepted payloads are placed. Fails the QP with NAK if a request
 * is refused and the responses to all earlier ones have left. */
void srdma_responder_settle(struct srdma_qp *qp);

/* Fails a QP whose inbound work makes no progress. Returns the time of the next
 * call, ns; SRDMA_NEVER: there is no such work. */
uint64_t srdma_responder_expire(struct srdma_qp *qp, uint64_t now);
/* Drops a reorder buffer whose gap nothing fills. Returns the same. */
uint64_t srdma_responder_expire_kept(struct srdma_qp *qp, uint64_t now);

/* 1: the responder holds memory of env->tables, which only open responses need.
 */
int srdma_responder_has_tables(const struct srdma_qp *qp);
/* 1: no response is due. */
int srdma_responder_is_idle(const struct srdma_qp *qp);
/* Gives that memory back. Requires that no response is due. */
void srdma_responder_give_tables(struct srdma_qp *qp);
/* Number of the peer's requests executed. */
uint64_t srdma_responder_executed(const struct srdma_qp *qp);

/* --- respond.c ------------------------------------------------------------ */

/* Sends the control packets that are scheduled. 0; else call again: -EAGAIN, or
 * -errno as the QP failed. */
int srdma_respond_control(struct srdma_qp *qp);
/* Sends responses to READs and atomics. Returns the same. */
int srdma_respond_reads(struct srdma_qp *qp);
/* Gives back ops and buffers of responses that cannot leave, except those under
 * DMA; they are fetched again. */
void srdma_respond_unfetch(struct srdma_qp *qp);
/* 1: a response is ready to be fetched or sent, or was, and found no room. */
int srdma_respond_waits(const struct srdma_qp *qp);

/* --- receive_queue.c ------------------------------------------------------- */

/* Posts a receive. behind: the SGL, which follows its descriptor. */
void srdma_receive_queue_post(struct srdma_qp *qp, const struct srdma_desc *d,
			      const uint8_t *behind);
/* Writes completion records of receives. 0 or -EAGAIN. */
int srdma_receive_queue_complete(struct srdma_qp *qp);
int srdma_receive_queue_is_empty(const struct srdma_qp *qp);
uint32_t srdma_receive_queue_depth(const struct srdma_qp *qp);
/* The QP goes to RTS: schedules an ack if receives were posted since OPEN. */
void srdma_receive_queue_advertise(struct srdma_qp *qp);

/* --- shared_queue.c -------------------------------------------------------- */

/* The QP takes its receives from the queue of the holder from now on. -EINVAL:
 * the QP has receives, both are the same, or one shares a queue already. */
int srdma_shared_queue_join(struct srdma_qp *qp, struct srdma_qp *holder);
/* The holder ends: if the QP takes its receives, it gets none any more. */
void srdma_shared_queue_leave(struct srdma_qp *qp, struct srdma_qp *holder);
/* 1: the QP takes its receives from another one. */
int srdma_shared_queue_is_used(const struct srdma_qp *qp);
/* Number of QPs that take the receives of this one. */
uint32_t srdma_shared_queue_users(const struct srdma_qp *holder);

#endif
