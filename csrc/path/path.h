/*
 * Paths (docs/protocol.md 7): wire connections and the QPs that use them. A
 * path is a hint: a packet for a QP may arrive on any of them. The QP sends on the
 * one on which its newest packet verified; over UDP, on the one where the peer
 * showed that it receives (probe.h).
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

/* --- path_table.c, path.c: the paths of a relay -------------------------- */

/* NULL: no memory. The table keeps env. */
struct srdma_path_table *srdma_path_table_create(struct srdma_env *env);
/* Closes all connections; no QP uses one. NULL is allowed. */
void srdma_path_table_destroy(struct srdma_path_table *t);

/* Event ACCEPT of the wire port: a peer opened the connection. */
void srdma_path_accept(struct srdma_env *env, struct srdma_conn *conn);
/* Event UP: a connection that was opened here is established. */
void srdma_path_up(struct srdma_conn *conn);
/* Event DOWN: the connection ended. Closes it. */
void srdma_path_down(struct srdma_env *env, struct srdma_conn *conn);
/* Closes unbound paths that are too old; wakes the relay for the others. */
void srdma_path_expire(struct srdma_env *env);

/* --- path.c: the path of a QP -------------------------------------------- */

void srdma_path_create(struct srdma_qp *qp);
/* Makes a connection that was opened for the QP its own path, takes over one
 * reference to it and starts its validation. The QP sends there if it has no
 * other path, or this one is up. 0, or -ENOMEM: nothing changed. */
int srdma_path_own(struct srdma_qp *qp, struct srdma_conn *conn);
/* Removes the QP from its path and its own path. */
void srdma_path_leave(struct srdma_qp *qp);
/* The own path failed its validation: ends it for all its QPs, unless another
 * one received a packet since this validation began; then only for this QP. */
void srdma_path_give_up(struct srdma_qp *qp);
/* Moves a QP that sends on another path to its own one if that is up, and
 * validates it again. Over UDP the own path is validated first. */
void srdma_path_go_own(struct srdma_qp *qp);
/*
 * Moves a QP without an own path, whose probes timed out repeatedly, to another
 * path to the same peer, not over UDP: to the one that it remembers, or else to
 * one that this QP was the last to leave, or on which another QP sends to that
 * peer. Examines at most 8 paths, resuming after the last search.
 */
void srdma_path_try_another(struct srdma_qp *qp);
/*
 * A packet of the QP verified on the connection: if it is the newest, or the
 * QP's path is not validated, the QP sends there from now on; over UDP, probe.h
 * decides. Returns 0: nothing changed; 1: the path changed or was validated; 2:
 * the packet validated the own path, which OPEN probed.
 */
int srdma_path_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		      struct srdma_conn *conn);
/* Packets under way may be lost with the old path: resets the doublings of
 * time-outs, the measurement under way and the congestion windows. The smoothed
 * round-trip time is kept. */
void srdma_path_restart(struct srdma_qp *qp);
/* The connection on which the QP sends; NULL: none. */
struct srdma_conn *srdma_path_conn(const struct srdma_qp *qp);
/* 1: a path of UDP, where no packet arrives on a connection that was opened here
 * (11a), and where paths are validated by probe.h. */
int srdma_path_is_one_way(const struct srdma_conn *conn);
/* 1: control packets may be sent; the path may still need validation. */
int srdma_path_is_up(const struct srdma_qp *qp);
/* 1: the QP has an own path. */
int srdma_path_has_own(const struct srdma_qp *qp);

/* --- send.c -------------------------------------------------------------- */

/* INIT: the QP's packet numbers begin at pn. */
void srdma_path_begin(struct srdma_qp *qp, uint64_t pn);
/* Seals a packet and commits it to the path. 0; -EAGAIN: no room, or no packet
 * may leave now; -EKEYEXPIRED, -EIO: the QP failed. */
int srdma_path_send(struct srdma_qp *qp, struct srdma_packet *p,
		    const uint8_t *payload);
/* The same for a PING, without payload, to the candidate (probe.h); 0 also if the
 * QP has no candidate. */
int srdma_path_send_probe(struct srdma_qp *qp, struct srdma_packet *p);
/* Requires srdma_path_is_up(). 0: srdma_path_send() would return -EAGAIN. */
int srdma_path_has_room(const struct srdma_qp *qp);
/* The packet number of the QP's first packet. */
uint64_t srdma_path_first(const struct srdma_qp *qp);
/* Highest packet number that the peer acknowledged. */
uint64_t srdma_path_acked(const struct srdma_qp *qp);
void srdma_path_set_acked(struct srdma_qp *qp, uint64_t highest);
/* Time since which the peer confirmed no response, though responses left, ns;
 * SRDMA_NEVER: it confirmed the last one that was watched (docs/protocol.md 5). */
uint64_t srdma_path_unconfirmed(const struct srdma_qp *qp);
/* Watches no response until the next one leaves. */
void srdma_path_unwatch(struct srdma_qp *qp);
struct srdma_rtt *srdma_path_rtt(const struct srdma_qp *qp);
/* Time from which time-outs count, ns: the last news of an ack, time-out, or
 * departure of an OPEN or PING. */
uint64_t srdma_path_progress(const struct srdma_qp *qp);
void srdma_path_set_progress(struct srdma_qp *qp);
/* A packet left that the peer acknowledges or answers: the QP's timers are
 * checked after the shorter time-out. */
void srdma_path_arm(struct srdma_qp *qp);

#endif
