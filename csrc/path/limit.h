/*
 * Limit of what is sent to a UDP address that is not validated (docs/protocol.md
 * 7.3; RFC 9000 8.1): three times the bytes of verified packets from there, control
 * packets only. All such addresses together get three times the bytes of all verified
 * packets, because a byte may pay for the source address and for the home. OPENs of a
 * client, for which nothing paid, have a rate per address.
 */
#ifndef SRDMA_PATH_LIMIT_H
#define SRDMA_PATH_LIMIT_H

#include <stdint.h>

struct srdma_conn;
struct srdma_packet;
struct srdma_qp;
struct srdma_qp_path;

/* Bytes that count for a packet of len bytes: its datagram. */
uint64_t srdma_limit_size(uint32_t len);
/* The first verified packet of the QP had that size, and made its path. */
void srdma_limit_begin(struct srdma_qp_path *x, uint64_t size);
/* A further one of that size arrived on the connection. */
void srdma_limit_received(struct srdma_qp_path *x,
			  const struct srdma_conn *conn, uint64_t size);
/* The QP's path was validated, in answer to its own challenge (lift) or by a change
 * to a candidate that answered (forget). Bytes that arrived before pay for nothing
 * any more. */
void srdma_limit_lift(struct srdma_qp_path *x);
void srdma_limit_forget(struct srdma_qp_path *x);
/* 1: a packet of len bytes may leave to the candidate (other: 1), or on the QP's
 * path. If it may not leave on the latter, that path is held. */
int srdma_limit_permits(struct srdma_qp_path *x, int other,
			const struct srdma_packet *p, uint32_t len);
/* A control packet of len bytes left. */
void srdma_limit_sent(struct srdma_qp_path *x, int other,
		      const struct srdma_packet *p, uint32_t len);
/* 1: the QP's path is held: no control packet leaves there until packets arrive,
 * it is validated, or the time of the next OPEN comes; then the QP is activated.
 * opening: asks for an OPEN, which on the own path waits for that time only. */
int srdma_limit_is_held(const struct srdma_qp *qp, int opening);
/* Ends the hold of an OPEN when it is due. Returns the time of the next call;
 * SRDMA_NEVER: nothing is due. */
uint64_t srdma_limit_expire(struct srdma_qp_path *x, uint64_t now);

#endif
