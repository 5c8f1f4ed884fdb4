/*
 * The connection that a QP needs (docs/protocol.md 7): role 0 connects, and
 * reconnects when the connection ended. In both roles a QP fails if no packet
 * validates its path (RFC 9000 8.2) within env->silence.
 */
#ifndef SRDMA_PATH_CONNECT_H
#define SRDMA_PATH_CONNECT_H

#include <stdint.h>

#include "port/port.h"

struct srdma_env;
struct srdma_qp;

struct srdma_connect {
	uint8_t trial;	   /* 1: the own path is being validated */
	uint32_t failures; /* of connections or validations, in a row */
	uint64_t begun;	   /* last connection attempt or validation, ns */
	uint64_t due;	   /* without an own path: time to reconnect, ns */
	uint64_t lost; /* path not validated since, ns; SRDMA_NEVER: it is */
	char address[SRDMA_NAME_LEN]; /* of the peer's wire, as it told */
};

/* KEYS, role 0: connects to the peer's address. 0, or the error of the port, with
 * its text in env->wire->why. */
int srdma_connect_begin(struct srdma_qp *qp, const char *address);
/* KEYS, role 1: waits for a packet of the peer, whose wire has that address. */
void srdma_connect_await(struct srdma_qp *qp, const char *address);
/* 1: the QP's path is validated: a packet verified on it, or over UDP the peer
 * answered a challenge (probe.h). Requests and responses leave on a validated
 * path only. */
int srdma_connect_validated(const struct srdma_qp *qp);
/* Starts the validation of the own path: OPEN is sent on it. */
void srdma_connect_try(struct srdma_qp *qp);
/* A packet verified on the own path. */
void srdma_connect_proven(struct srdma_qp *qp);
/* The own path ended, failed its validation, or could not be connected. */
void srdma_connect_ended(struct srdma_qp *qp);
/* The QP's path, its own path or a validation changed: starts or ends the time
 * limit `lost`. */
void srdma_connect_note(struct srdma_qp *qp);
/* Reconnects, gives up a validation, or fails the QP (WIRE_LOST) when it is due.
 * Returns the time of the next call; SRDMA_NEVER: nothing is due. */
uint64_t srdma_connect_expire(struct srdma_qp *qp, uint64_t now);
/* Call once per turn: connection attempts are limited per turn. */
void srdma_connect_turn(struct srdma_env *env);

#endif
