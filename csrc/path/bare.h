/*
 * Bare datagrams, which have no ICRC, so that they can leave in trains over IPv4
 * (docs/protocol.md 11a). A QP asks its peer by an ACK with flags A and B in a
 * bare datagram. A peer that takes bare datagrams, and got this one, consents by
 * an ACK with flag B alone.
 */
#ifndef SRDMA_PATH_BARE_H
#define SRDMA_PATH_BARE_H

#include <stdint.h>

struct srdma_packet;
struct srdma_qp;
struct srdma_qp_path;

/* A packet of the QP verified over UDP: notes a question, or a consent to the last
 * question on this path. */
void srdma_bare_note(struct srdma_qp_path *x, const struct srdma_packet *p);
/* The consent ends: the path is another one, or timers ran out in a row. */
void srdma_bare_end(struct srdma_qp *qp);
/* A READ or atomic of the peer is answered; again: not for the first time. The
 * consent ends if for an RTO all of them are answered again. */
void srdma_bare_answers(struct srdma_qp *qp, int again);
/* 1: the packet leaves in a bare datagram. */
int srdma_bare_permits(const struct srdma_qp_path *x,
		       const struct srdma_packet *p);
/*
 * A packet left. Returns the flags of a further ACK that is to follow it, or 0.
 * May schedule an ACK.
 * srdma_bare_said() notes that this ACK left; a consent that left with flag A is a
 * question, and is due again.
 */
uint8_t srdma_bare_next(struct srdma_qp_path *x, const struct srdma_packet *p);
void srdma_bare_said(struct srdma_qp_path *x, const struct srdma_packet *p);

#endif
