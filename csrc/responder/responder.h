/*
 * Responder of a QP: executes the peer's requests in order (docs/protocol.md
 * 4.6, 5, 6). A packet that comes here has verified. Its stages from then on:
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

enum { SRDMA_REQUEST_CREDIT = 1024 }; /* ids a peer may use from the position */

/* --- responder.c ---------------------------------------------------------- */

/* depth: of the receive queue. 0 or -ENOMEM. */
int srdma_responder_create(struct srdma_qp *qp, uint32_t depth);
void srdma_responder_destroy(struct srdma_qp *qp);

struct srdma_responder_params {
	uint32_t mtu;	       /* payload of a response, bytes */
	const uint8_t *holder; /* the peer's identity (6.1),
				  SRDMA_MEMKEY_HOLDER_LEN bytes */
};
/* KEYS: the session is there. */
void srdma_responder_begin(struct srdma_qp *qp,
			   const struct srdma_responder_params *params);
/* The QP failed: releases all work that needs no DMA to end. */
void srdma_responder_discard(struct srdma_qp *qp);

/* Every verified packet of the QP, whatever its kind. */
void srdma_responder_count(struct srdma_qp *qp, const struct srdma_packet *p);
/* A verified request. Its payload lies in *buf, which is taken if *buf is NULL
 * afterwards. */
void srdma_responder_receive(struct srdma_qp *qp, const struct srdma_packet *p,
			     struct srdma_buf **buf);
/* The peer sent PING: the next ack is RNR if no receive is posted. */
void srdma_responder_pinged(struct srdma_qp *qp);
/* Executes packets of the reorder buffer that are at the position. 0, or
 * -EAGAIN: no op is free for more. */
int srdma_responder_drain(struct srdma_qp *qp);
/* A PLACE op is done, or failed. */
void srdma_responder_placed(struct srdma_qp *qp, const struct srdma_op *op);
/* All that was accepted is placed: NAKs the refused request, if there is one
 * and all earlier responses left. */
void srdma_responder_settle(struct srdma_qp *qp);

/* Fails a QP whose inbound work does not get on, and forgets kept packets of a
 * silent peer. Returns when to call it again; SRDMA_NEVER: no need. */
uint64_t srdma_responder_expire(struct srdma_qp *qp, uint64_t now);
uint64_t srdma_responder_expire_kept(struct srdma_qp *qp, uint64_t now);

/* Tables that only work needs: are there any; is there no work that needs them;
 * give them back. */
int srdma_responder_has_tables(const struct srdma_qp *qp);
int srdma_responder_is_idle(const struct srdma_qp *qp);
void srdma_responder_give_tables(struct srdma_qp *qp);
/* Request ids executed: changes with each request. */
uint64_t srdma_responder_executed(const struct srdma_qp *qp);

/* --- respond.c ------------------------------------------------------------ */

/* Sends the control packets that are scheduled. 0; -EAGAIN: call again. */
int srdma_respond_control(struct srdma_qp *qp);
/* Sends responses to READs and atomics. The same. */
int srdma_respond_reads(struct srdma_qp *qp);
/* 1: a response is ready to be sent. */
int srdma_respond_waits(const struct srdma_qp *qp);

/* --- receive_queue.c ------------------------------------------------------- */

/* Posts a receive. */
void srdma_receive_queue_post(struct srdma_qp *qp, const struct srdma_desc *d);
/* Writes completion records of receives. 0 or -EAGAIN. */
int srdma_receive_queue_complete(struct srdma_qp *qp);
int srdma_receive_queue_is_empty(const struct srdma_qp *qp);
uint32_t srdma_receive_queue_depth(const struct srdma_qp *qp);
/* The QP goes to RTS: schedules an ack if receives were posted since OPEN. */
void srdma_receive_queue_advertise(struct srdma_qp *qp);

#endif
