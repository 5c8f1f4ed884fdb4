/* Paths and a QP's part of them, written by the folder path/ only. */
#ifndef SRDMA_PATH_PATH_IMPL_H
#define SRDMA_PATH_PATH_IMPL_H

#include <sys/queue.h>

#include "path/connect.h"
#include "path/path.h"
#include "path/rtt_impl.h"

LIST_HEAD(srdma_path_users, srdma_qp_path);
TAILQ_HEAD(srdma_path_list, srdma_path);

struct srdma_path {
	struct srdma_path *next;
	TAILQ_ENTRY(srdma_path) unbound_next; /* newest first */
	struct srdma_conn *conn;
	struct srdma_path_users owners; /* QPs that opened it */
	struct srdma_path_users users;	/* QPs that send on it */
	uint64_t since;			/* unbound since, ns */
	uint32_t refs;			/* of owners */
	uint32_t left_by; /* QPN that left it last for another one, or 0 */
	uint8_t up;
	uint8_t accepted; /* opened by a peer */
	uint8_t unbound;
};

/* All paths of a relay. */
struct srdma_path_table {
	struct srdma_env *env;
	struct srdma_path *paths;
	struct srdma_path
		*look; /* the next search begins here; NULL: at the head */
	struct srdma_path_list unbound;
	uint32_t unbound_count;
	uint32_t connects; /* attempts of this turn */
};

/* A QP's part. */
struct srdma_qp_path {
	struct srdma_qp *qp;
	struct srdma_env *env;
	struct srdma_conn *conn; /* the QP's path; NULL: none */
	struct srdma_conn *own;	 /* the own path, opened for this QP */
	LIST_ENTRY(srdma_qp_path) user_next, owner_next; /* of their paths */
	struct srdma_connect connect;
	struct srdma_rtt rtt;
	uint64_t first_pn; /* of the QP's packets */
	uint64_t acked_pn; /* highest that the peer acknowledged */
	uint64_t probed;   /* last flag A for a large lead over acked_pn, ns */
	uint64_t progress; /* srdma_path_progress(), ns */
	/* The first response that no ack confirmed: its number, and when it left
	 * or the path changed, ns. 0: none. */
	uint64_t answer_pn, answered;
};

/* qp/layout.c */
struct srdma_qp_path *srdma_qp_path(const struct srdma_qp *qp);

#endif
