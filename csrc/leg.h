/*
 * A leg: one host process and PD at its own worker (docs/protocol.md 9).
 * Internal to the relay.
 */
#ifndef SRDMA_LEG_H
#define SRDMA_LEG_H

#include <stdint.h>

#include "grant.h"
#include "memory/mr.h"
#include "qp.h"

struct srdma_leg {
	struct srdma_relay *relay;
	struct srdma_conn *conn;
	struct srdma_qp *qps;
	uint32_t id;
	uint32_t ring;
	uint32_t reserved;	    /* records that its QPs may need */
	uint32_t written, consumed; /* completion records */
	uint32_t mrs;
	uint32_t revoked; /* ranges of its regions (6.3) */
	uint8_t token[SRDMA_TOKEN_LEN];
	struct srdma_pdkeys keys;
	uint64_t rotated; /* when it got its K_PD */
	struct srdma_grants grants;
	uint8_t shared;	     /* opened for a trust group */
	uint8_t keys_in_use; /* K_PD made a secret: it cannot be replaced */
	uint8_t down;	     /* its host is gone: no DMA, no records */
	uint8_t closing;
};

/* A slot of the descriptor ring arrived. */
void srdma_leg_descriptor(struct srdma_leg *leg, const struct srdma_buf *buf);
/* Write one record; its sequence is set here. 0, -EAGAIN; a leg that
 * ended swallows it. */
int srdma_leg_record(struct srdma_leg *leg, struct srdma_record *rec);
/* The host is gone or leaves: end its QPs, then free all, as DMA permits. */
void srdma_leg_end(struct srdma_leg *leg);
/* 1: the leg was closing, nothing of it was under way, and it is freed. */
int srdma_leg_reap(struct srdma_leg *leg);
/* Wipe and free it: its QPs and regions are gone. NULL is allowed. */
void srdma_leg_free(struct srdma_leg *leg);

#endif
