/*
 * The connection that a QP needs (docs/protocol.md 7): role 0 connects, and
 * reconnects when it ended; both roles wait for a packet that validates the
 * path (RFC 9000 8.2), for `silence` at most.
 */
#ifndef SRDMA_PATH_CONNECT_H
#define SRDMA_PATH_CONNECT_H

#include <stdint.h>

#include "port/port.h"

struct srdma_env;
struct srdma_qp;

struct srdma_connect {
	char address[SRDMA_NAME_LEN]; /* role 0: of the peer's wire */
	uint64_t begun;	   /* own path connected, or its validation began */
	uint64_t due;	   /* no own path: when to reconnect */
	uint64_t lost;	   /* not validated since then; SRDMA_NEVER: it is */
	uint32_t failures; /* in a row */
	uint8_t trial;	   /* no packet verified on the own path since begun */
};

/* KEYS: role 0 connects to the peer's address, role 1 passes NULL. 0, or the
 * error of the port, with its text in env->wire->why. */
int srdma_connect_begin(struct srdma_qp *qp, const char *address);
/* 1: a packet verified on the path on which the QP sends. Requests and
 * responses leave on a validated path only. */
int srdma_connect_validated(const struct srdma_qp *qp);
/* Starts the validation of the own path: OPEN is sent on it. */
void srdma_connect_try(struct srdma_qp *qp);
/* A packet verified on the own path. */
void srdma_connect_proven(struct srdma_qp *qp);
/* The own path ended, failed its validation, or could not be connected. */
void srdma_connect_ended(struct srdma_qp *qp);
/* The path, the own path or its validation changed. */
void srdma_connect_note(struct srdma_qp *qp);
/* Next time to call it; SRDMA_NEVER: it waits for nothing. */
uint64_t srdma_connect_expire(struct srdma_qp *qp, uint64_t now);
/* A new turn: its connection attempts are counted from 0. */
void srdma_connect_turn(struct srdma_env *env);

#endif
