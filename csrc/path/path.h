/*
 * Wire connections of a relay (docs/protocol.md 7). They are hints: a packet
 * for a QP may arrive on any of them, and the one on which its newest packet
 * verified is its current one. Internal to the relay.
 */
#ifndef SRDMA_LINK_H
#define SRDMA_LINK_H

#include <stdint.h>
#include <sys/queue.h>

struct srdma_conn;
struct srdma_packet;
struct srdma_qp;
struct srdma_relay;

enum { SRDMA_MAX_UNBOUND = 64 }; /* wires that no QP sends on */

LIST_HEAD(srdma_path_users, srdma_qp);
TAILQ_HEAD(srdma_path_list, srdma_path);

struct srdma_path {
	struct srdma_path *next;
	TAILQ_ENTRY(srdma_path) strangers; /* if it is one, newest first */
	struct srdma_conn *conn;
	struct srdma_path_users homes; /* QPs that connected it */
	struct srdma_path_users users; /* QPs that send on it */
	uint64_t since;
	uint32_t refs;	  /* of homes */
	uint32_t left_by; /* QPN of who left it last for another one, or 0 */
	uint8_t up;
	uint8_t accepted;
	uint8_t stranger; /* accepted, and no QP sends on it */
};

/* The QP connected this wire (one reference): it is its home, and where it
 * sends if it has no other, or this one is up. 0 or -ENOMEM. */
int srdma_path_wire(struct srdma_qp *qp, struct srdma_conn *conn);
/* The QP no longer uses any wire. */
void srdma_path_unwire(struct srdma_qp *qp);
/* Home is no good: given up, by all if nothing verified there of late. */
void srdma_path_give_up(struct srdma_qp *qp);
/* To the wire that it connected, if it sends on another one and that stands.
 * Nothing is known of it. */
void srdma_path_go_home(struct srdma_qp *qp);
/* The QP asked in vain more than once, and connected no wire: to the next one
 * that it was the last to leave, or on which another QP sends to the same peer,
 * among the next eight that are in use: behind those at which one looked who
 * asked in vain before. */
void srdma_path_try_another(struct srdma_qp *qp);
/* A packet of the QP verified here: if it is the newest, or nothing verified
 * on the wire on which it sends, send here, and keep a conn that was only
 * passing. */
void srdma_path_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		       struct srdma_conn *conn);

/* What the port tells of a connection. */
void srdma_path_accept(struct srdma_relay *r, struct srdma_conn *conn);
void srdma_path_up(struct srdma_relay *r, struct srdma_conn *conn);
void srdma_path_down(struct srdma_relay *r, struct srdma_conn *conn);
/* Close strangers whose time is over; wake the relay for the others. */
void srdma_path_expire(struct srdma_relay *r);

#endif
