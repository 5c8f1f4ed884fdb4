/* A leg: one host process and PD at its worker (docs/local-interface.md 2). */
#ifndef SRDMA_RELAY_LEG_H
#define SRDMA_RELAY_LEG_H

#include <stdint.h>

#include "memory/captable.h"
#include "memory/mr.h"
#include "session/pdkeys.h"
#include "port/port.h"
#include "qp/cq.h"

struct srdma_leg {
	struct srdma_relay *relay;
	struct srdma_conn *conn;
	struct srdma_account *account; /* it is charged to it, and holds it */
	struct srdma_cq cq;
	struct srdma_qp *qps;
	uint32_t id;
	uint32_t reserved; /* completion records that its QPs may need */
	uint32_t mrs;	   /* number of its regions */
	uint32_t taken;	   /* descriptors, modulo 2^32 */
	uint32_t revoked;  /* number of revoked ranges of its regions (6.3) */
	uint8_t token[SRDMA_TOKEN_LEN];
	struct srdma_pdkeys keys;
	uint64_t rotated; /* time when it got its current K_PD, ns */
	struct srdma_captable captable;
	uint8_t shared;	     /* opened for a trust group */
	uint8_t keys_in_use; /* a secret was derived from K_PD: it stays */
	uint8_t was_up;	     /* its host has connected */
	uint8_t closing;
};

/* Posts a descriptor that arrived from the host. */
void srdma_leg_descriptor(struct srdma_leg *leg, const struct srdma_buf *buf);
/* The host is gone or closes the leg: fails the leg's QPs. srdma_leg_reap() frees
 * the leg when its DMA has ended. */
void srdma_leg_end(struct srdma_leg *leg);
/* Removes QPs of a closing leg that are removable. 1: none was left, and the leg
 * is freed. */
int srdma_leg_reap(struct srdma_leg *leg);
/* Wipes and frees a leg whose QPs and regions are gone. NULL is allowed. */
void srdma_leg_free(struct srdma_leg *leg);

#endif
