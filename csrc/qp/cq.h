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
	uint8_t down; /* 1: the host is gone; no DMA, no records */
};

/* Writes one record and sets rec->sequence. 0, or -EAGAIN: the ring is full.
 * When the leg has ended, the record is dropped and 0 is returned. */
int srdma_cq_put(struct srdma_cq *cq, struct srdma_record *rec);
/* Takes the host's count of consumed records, modulo 2^32. A count beyond the
 * records written is ignored. */
void srdma_cq_consume(struct srdma_cq *cq, uint32_t consumed);
/* The host is gone. */
void srdma_cq_down(struct srdma_cq *cq);

#endif
