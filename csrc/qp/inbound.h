/*
 * Inbound work of a QP: the one list of writes into host memory, in the order
 * in which packets arrived - payloads of the peer's requests (PLACE), and
 * responses to own requests (RETURN) - and how long it may take.
 */
#ifndef SRDMA_QP_INBOUND_H
#define SRDMA_QP_INBOUND_H

#include <stdint.h>

#include "qp/op.h"

/* Adds an op of kind PLACE or RETURN; NULL: the pool is empty. */
struct srdma_op *srdma_inbound_add(struct srdma_qp *qp,
				   enum srdma_op_kind kind);
/* Starts DMAs. 0 or -EAGAIN: some could not start. */
int srdma_inbound_issue(struct srdma_qp *qp);
/* The oldest op; NULL: none. */
const struct srdma_op *srdma_inbound_head(const struct srdma_qp *qp);
/* The oldest op is done and handled. */
void srdma_inbound_retire(struct srdma_qp *qp);
/* Host memory refused an op: the PLACE ops after it have no effect. */
void srdma_inbound_waste(const struct srdma_op *failed);
void srdma_inbound_drop(struct srdma_qp *qp);

/* Before work for the peer is added: the time limit starts if there was none.
 */
void srdma_inbound_begin(struct srdma_qp *qp);
/* Number of responses that are due to the peer: they are work too. */
void srdma_inbound_set_responses(struct srdma_qp *qp, uint32_t n);
/* 1: an op or a response is under way. */
int srdma_inbound_busy(const struct srdma_qp *qp);
/* Work got on: its time limit starts again. */
void srdma_inbound_progress(struct srdma_qp *qp);
/* When that was, ns. */
uint64_t srdma_inbound_since(const struct srdma_qp *qp);

enum { SRDMA_DMA_LIMIT_S = 10 }; /* a DMA that takes longer ends the QP */

#endif
