/*
 * Paths (docs/protocol.md 7): wire connections and the QPs that use them. A
 * path is a hint: a packet for a QP may arrive on any of them, and the QP sends
 * on the one on which its newest packet verified.
 *
 * A path is *unbound* if a peer opened it and no QP sends on it. Unbound paths
 * are few and are closed after a while.
 */
#ifndef SRDMA_PATH_PATH_H
#define SRDMA_PATH_PATH_H

#include <stddef.h>
#include <stdint.h>

struct srdma_conn;
struct srdma_env;
struct srdma_packet;
struct srdma_path_table;
struct srdma_qp;
struct srdma_rtt;

enum { SRDMA_MAX_UNBOUND = 64 };

/* --- path.c: the paths of a relay ---------------------------------------- */

/* NULL: no memory. The table keeps env. */
struct srdma_path_table *srdma_path_table_create(struct srdma_env *env);
/* Closes all connections; no QP uses one. NULL is allowed. */
void srdma_path_table_destroy(struct srdma_path_table *t);

/* Events of the wire port: a peer opened a connection; one that was opened here
 * is up; one ended. */
void srdma_path_accept(struct srdma_env *env, struct srdma_conn *conn);
void srdma_path_up(struct srdma_conn *conn);
void srdma_path_down(struct srdma_env *env, struct srdma_conn *conn);
/* Closes unbound paths that are too old; wakes the relay for the others. */
void srdma_path_expire(struct srdma_env *env);

/* --- path.c: the path of a QP -------------------------------------------- */

void srdma_path_create(struct srdma_qp *qp);
/* A connection opened for the QP (one reference): its own path. The QP sends
 * there if it has no other, or this one is up. 0 or -ENOMEM. */
int srdma_path_own(struct srdma_qp *qp, struct srdma_conn *conn);
/* The QP no longer uses any path. */
void srdma_path_leave(struct srdma_qp *qp);
/* The own path failed its validation: closed for all its QPs if none of them
 * received a packet there lately. */
void srdma_path_give_up(struct srdma_qp *qp);
/* Moves a QP that sends elsewhere to its own path if that is up; it is to be
 * validated again. */
void srdma_path_go_own(struct srdma_qp *qp);
/*
 * Moves a QP that opened no path, and whose probes timed out repeatedly, to
 * another path to the same peer: one that it left last for another, or on which
 * another QP sends to that peer. Examines at most 8, resuming after the last
 * search.
 */
void srdma_path_try_another(struct srdma_qp *qp);
/*
 * A packet of the QP verified on the connection: if it is the newest, or the
 * QP's path is not validated, the QP sends there from now on; a connection that
 * was only passing is kept. Returns 1 if the path changed or was validated, and
 * 2 if that was the answer to the own path's probe.
 */
int srdma_path_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		      struct srdma_conn *conn);
/* What is under way may be lost with the path: time-outs, round-trip time and
 * congestion windows begin anew. */
void srdma_path_restart(struct srdma_qp *qp);
/* The connection on which the QP sends; NULL: none. */
struct srdma_conn *srdma_path_conn(const struct srdma_qp *qp);
/* 1: control packets may be sent; the path may still need validation. */
int srdma_path_is_up(const struct srdma_qp *qp);
/* 1: the QP opened a connection and has it. */
int srdma_path_has_own(const struct srdma_qp *qp);

/* --- send.c -------------------------------------------------------------- */

/* KEYS: packet numbers of this QP begin at pn. */
void srdma_path_begin(struct srdma_qp *qp, uint64_t pn);
/* Seals a packet and commits it to the path. 0; -EAGAIN: no room, or no packet
 * may leave now; -EKEYEXPIRED, -EIO: the QP failed. */
int srdma_path_send(struct srdma_qp *qp, struct srdma_packet *p,
		    const uint8_t *payload);
/* The packet number of the QP's first packet. */
uint64_t srdma_path_first(const struct srdma_qp *qp);
/* Highest packet number that the peer acknowledged. */
uint64_t srdma_path_acked(const struct srdma_qp *qp);
void srdma_path_set_acked(struct srdma_qp *qp, uint64_t highest);
struct srdma_rtt *srdma_path_rtt(const struct srdma_qp *qp);
/* When something was acknowledged or a timer ran out last, ns: time-outs count
 * from then. */
uint64_t srdma_path_progress(const struct srdma_qp *qp);
void srdma_path_set_progress(struct srdma_qp *qp);
/* A packet left for which an ack or a response is due: wakes the QP for it. */
void srdma_path_arm(struct srdma_qp *qp);

#endif
