/*
 * Completion queue of a leg: the ring of completion records in host memory
 * (docs/local-interface.md 2). All QPs of the leg share it.
 */
#ifndef SRDMA_QP_CQ_H
#define SRDMA_QP_CQ_H

#include <stdint.h>

#include "wire/wire.h"

struct srdma_conn;
struct srdma_env;

struct srdma_cq {
	struct srdma_env *env;
	struct srdma_conn *conn;    /* the leg, of the host port */
	uint32_t ring;		    /* records; a power of two */
	uint32_t written, consumed; /* records, modulo 2^32 */
	uint8_t down; /* the host is gone: no DMA and no records */
};

/* Writes one record and sets its sequence. 0 or -EAGAIN: the ring is full.
 * After the host's end records are dropped and 0 is returned. */
int srdma_cq_put(struct srdma_cq *cq, struct srdma_record *rec);
/* The host's count of consumed records. A count beyond the records written is
 * ignored. */
void srdma_cq_consume(struct srdma_cq *cq, uint32_t consumed);

#endif
