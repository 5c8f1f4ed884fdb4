/*
 * Wire connections of a relay (docs/protocol.md 7). They are hints: a packet
 * for a QP may arrive on any of them, and the one on which its newest packet
 * verified is its current one. Internal to the relay.
 */
#ifndef SRDMA_LINK_H
#define SRDMA_LINK_H

#include <stdint.h>

struct srdma_conn;
struct srdma_packet;
struct srdma_qp;
struct srdma_relay;

enum { SRDMA_MAX_STRANGERS = 64 }; /* wires that no QP sends on */

struct srdma_link {
	struct srdma_link *next;
	struct srdma_conn *conn;
	uint64_t since;
	uint32_t refs;	/* QPs that connected it: it is their home */
	uint32_t users; /* QPs that send on it */
	uint8_t up;
	uint8_t accepted;
};

/* The QP connected this wire (one reference), and sends on it. */
int srdma_link_wire(struct srdma_qp *qp, struct srdma_conn *conn);
/* The QP no longer uses any wire. */
void srdma_link_unwire(struct srdma_qp *qp);
/* A packet of the QP verified here: if it is the newest, send here, and keep
 * a conn that was only passing. */
void srdma_link_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		       struct srdma_conn *conn);

/* What the port tells of a connection. */
void srdma_link_accept(struct srdma_relay *r, struct srdma_conn *conn);
void srdma_link_up(struct srdma_relay *r, struct srdma_conn *conn);
void srdma_link_down(struct srdma_relay *r, struct srdma_conn *conn);
/* Close strangers whose time is over; wake the relay for the others. */
void srdma_link_expire(struct srdma_relay *r);

#endif
