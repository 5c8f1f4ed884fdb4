/*
 * Validation of UDP paths (docs/protocol.md 7.3; RFC 9000 8.1, 8.2, 9.3). A path
 * is validated when the peer sent back a random token, the challenge, of a PING
 * or OPEN that was sent there. Until then limit.h bounds what is sent there.
 *
 * A verified packet from another address makes that address a candidate. The QP
 * goes on sending where it does, and challenges both addresses. It changes to the
 * candidate only if that answers and the present address does not.
 */
#ifndef SRDMA_PATH_PROBE_H
#define SRDMA_PATH_PROBE_H

#include <stdint.h>

struct srdma_conn;
struct srdma_packet;
struct srdma_qp;
struct srdma_qp_path;

/* A packet of the QP verified on the connection. */
void srdma_probe_follow(struct srdma_qp *qp, const struct srdma_packet *p,
			struct srdma_conn *conn);
/* The peer sent an ack whose `path` field this is: a challenge may be answered,
 * and the QP may change its path. */
void srdma_probe_answered(struct srdma_qp *qp, uint32_t path);
/* Challenges the own path, which leads to the address that the peer named, to
 * return to it. */
void srdma_probe_home(struct srdma_qp *qp);
/* Gives up the candidate. */
void srdma_probe_end(struct srdma_qp *qp);
/* Repeats challenges and decides when they are due. Returns the time of the next
 * call; SRDMA_NEVER: nothing is due. */
uint64_t srdma_probe_expire(struct srdma_qp *qp, uint64_t now);
/* 1: the peer said that its path is not validated: it may wait for packets. */
int srdma_probe_feeds(const struct srdma_qp *qp);
/* 1: tokens of the peer wait to be sent back, one per ack. */
int srdma_probe_owes(const struct srdma_qp *qp);

/* --- for send.c ------------------------------------------------------------ */

/* The `path` field of a control packet (2.4). */
uint32_t srdma_probe_word(struct srdma_qp_path *x, int other,
			  const struct srdma_packet *p);
/* An ACK or RNR left, with the oldest token that waited. */
void srdma_probe_answer_left(struct srdma_qp_path *x);

#endif
