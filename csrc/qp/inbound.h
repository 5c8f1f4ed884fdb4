/*
 * Inbound work of a QP: one list of writes into host memory - payloads of the
 * peer's requests (PLACE) and responses to own requests (RETURN) - and the time
 * limit of this work. The list is in the order in which packets were accepted,
 * which after a gap is not the order of their arrival.
 */
#ifndef SRDMA_QP_INBOUND_H
#define SRDMA_QP_INBOUND_H

#include <stdint.h>

#include "qp/op.h"

/* Adds an op of kind PLACE or RETURN; NULL: the pool is empty. */
struct srdma_op *srdma_inbound_add(struct srdma_qp *qp,
				   enum srdma_op_kind kind);
/* Starts the DMA of all NEW ops. 0, or -EAGAIN: some could not start. */
int srdma_inbound_issue(struct srdma_qp *qp);
/* The oldest op; NULL: none. */
const struct srdma_op *srdma_inbound_head(const struct srdma_qp *qp);
/* Removes the oldest op, which is done and handled, and counts as progress. */
void srdma_inbound_retire(struct srdma_qp *qp);
/* The DMA of an op failed: the PLACE ops after it become WASTE, which has no
 * effect. */
void srdma_inbound_waste(const struct srdma_op *failed);
/* Drops all ops that are not ISSUED. */
void srdma_inbound_drop(struct srdma_qp *qp);

/* Call before work is added: if there was none, its time limit starts. */
void srdma_inbound_begin(struct srdma_qp *qp);
/* Sets the number of responses that are due to the peer, which count as work.
 */
void srdma_inbound_set_responses(struct srdma_qp *qp, uint32_t n);
/* 1: there is an op, or a response is due. */
int srdma_inbound_busy(const struct srdma_qp *qp);
/* Work made progress: its time limit starts again. */
void srdma_inbound_progress(struct srdma_qp *qp);
/* Time of the last progress, ns. */
uint64_t srdma_inbound_since(const struct srdma_qp *qp);

/* A DMA that takes longer ends the QP. A leg over verbs whose host is lost ends
 * before that, after 13 s at most (port/leg_time.h). */
enum { SRDMA_DMA_LIMIT_S = 14 };

#endif
