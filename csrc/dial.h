/*
 * The wire that a QP needs (docs/protocol.md 7): role 0 connects it, and
 * connects it again when it ended; both roles wait for a packet that proves
 * it, for `silence` at most. Internal to the relay.
 */
#ifndef SRDMA_DIAL_H
#define SRDMA_DIAL_H

#include <stdint.h>

#include "port/port.h"

struct srdma_qp;

struct srdma_dial {
	char address[SRDMA_NAME_LEN]; /* role 0: of the peer's wire */
	uint64_t begun;	   /* when home was connected, or came under trial */
	uint64_t due;	   /* no home: when to connect again */
	uint64_t lost;	   /* not settled since then; SRDMA_NEVER: it is */
	uint32_t failures; /* in a row */
	uint8_t trial;	   /* nothing verified on home since begun */
};

/* The QP got its keys. Role 0 connects to the peer's address (else NULL): 0, or
 * what the wire says, with why. */
int srdma_dial_begin(struct srdma_qp *qp, const char *address);
/* 1: a packet verified on the wire on which it sends. Requests and answers
 * leave on such a wire only. */
int srdma_dial_settled(const struct srdma_qp *qp);
/* Home begins its trial: OPEN is said on it. */
void srdma_dial_try(struct srdma_qp *qp);
/* A packet verified on home. */
void srdma_dial_proven(struct srdma_qp *qp);
/* Home ended, failed its trial, or could not be connected. */
void srdma_dial_ended(struct srdma_qp *qp);
/* Wire, home or trial changed. */
void srdma_dial_note(struct srdma_qp *qp);
/* When to look at it again; SRDMA_NEVER: there is nothing to wait for. */
uint64_t srdma_dial_expire(struct srdma_qp *qp, uint64_t now);

#endif
