/* Paths and a QP's part of them, written by the folder path/ only. */
#ifndef SRDMA_PATH_PATH_IMPL_H
#define SRDMA_PATH_PATH_IMPL_H

#include <sys/queue.h>

#include "path/connect.h"
#include "path/path.h"
#include "path/rtt_impl.h"
#include "port/port.h"

LIST_HEAD(srdma_path_users, srdma_qp_path);
TAILQ_HEAD(srdma_path_list, srdma_path);

struct srdma_path {
	struct srdma_path *next;
	TAILQ_ENTRY(srdma_path) unbound_next; /* newest first */
	struct srdma_conn *conn;
	/* Of the identity whose packet made the worker keep this source
	 * address; NULL: no address is kept, or for none. */
	struct srdma_account *account;
	struct srdma_path_users owners;	  /* QPs that opened it */
	struct srdma_path_users users;	  /* QPs that send on it */
	struct srdma_path_users known_by; /* QPs that remember it */
	uint64_t since;			  /* unbound since, ns */
	uint32_t refs;			  /* of owners */
	uint32_t left_by;    /* QPN that left it last for another one, or 0 */
	uint32_t candidates; /* QPs of which it is the candidate */
	uint64_t opens;	     /* time that the OPENs to it account for, ns */
	uint8_t validated;   /* UDP: a challenge to it was answered */
	uint8_t up;
	uint8_t accepted; /* opened by a peer */
	uint8_t unbound;
};

enum { SRDMA_PATH_TOKENS = 64, SRDMA_PATH_ANSWERS = 4 };

/* Validation of a UDP path by a QP (7.3); written by probe.c. */
struct srdma_probe {
	/* While it is not validated: bytes of verified packets that arrived from
	 * its address, and bytes sent there. */
	uint64_t received, sent;
	uint64_t due;	    /* time of the next PING, ns */
	uint32_t challenge; /* token that was not answered yet; 0: none */
	uint8_t tries;	    /* PINGs that were scheduled for it */
	uint8_t valid;
	uint8_t known; /* it was validated before: no limit */
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
	uint32_t tokens;   /* random numbers that are not used yet */
	uint32_t token[SRDMA_PATH_TOKENS];
};

/* A QP's part. The first fields, up to `connect.trial`, are those that each packet
 * touches. */
struct srdma_qp_path {
	struct srdma_qp *qp;
	struct srdma_env *env;
	struct srdma_conn *conn; /* the QP's path; NULL: none */
	struct srdma_conn *own;	 /* the own path, opened for this QP */
	struct srdma_rtt rtt;
	uint64_t acked_pn; /* highest that the peer acknowledged */
	/* The number from which on an ack shows that the peer receives on conn, so
	 * that it becomes `remembered`; UINT64_MAX: it is. */
	uint64_t shown_by;
	uint64_t first_pn; /* of the QP's packets */
	uint64_t progress; /* srdma_path_progress(), ns */
	/* The first response that no ack confirmed: its number, and when it left
	 * or the path changed, ns. 0: none. */
	uint64_t answer_pn, answered;

	/* UDP only, written by probe.c and limit.c. */
	uint8_t answer_count;
	uint8_t held;	      /* 1: the limit of conn is used up */
	uint8_t peer_limited; /* 1: the peer's path is not validated */
	uint8_t home_known;   /* 1: the peer answered at the address it named */
	uint8_t at_home;      /* server without own path: conn leads there */
	/* Bare datagrams (11a): a question is due; the peer asked; it consented. */
	uint8_t asking, asked, consent;
	uint32_t told;		      /* packets that left without consent */
	uint64_t home_due;	      /* next challenge to the own path, ns */
	struct srdma_conn *candidate; /* that conn may change to; NULL: none */
	struct srdma_probe current;   /* of conn */

	struct srdma_connect connect;
	uint64_t probed; /* last flag A for a large lead over acked_pn, ns */

	/* UDP only, as above. */
	struct srdma_probe other; /* of candidate */
	uint64_t contest;	  /* earliest next candidate, ns */
	uint64_t held_until;	  /* OPEN is held until then, ns */
	/* Of all addresses, since conn was validated last: bytes of verified
	 * packets, and bytes sent to addresses that are not validated. */
	uint64_t paid, spent;
	uint32_t answers[SRDMA_PATH_ANSWERS]; /* tokens to send back */
	/* The first request since the last new one that is answered again, ns; 0:
	 * none. */
	uint64_t repeats;
	/* The packet number of the last question on this path; 0: none. */
	uint64_t question_pn;

	struct srdma_path *remembered;			 /* see 7.3 */
	LIST_ENTRY(srdma_qp_path) user_next, owner_next; /* of their paths */
	LIST_ENTRY(srdma_qp_path) known_next;		 /* of remembered */
};

/* --- path_table.c ----------------------------------------------------------- */

/* The path of a connection; NULL: it has none. */
static inline struct srdma_path *srdma_path_of(const struct srdma_conn *conn)
{
	return conn ? conn->user : NULL;
}

/* Adds a path of the connection. accepted: a peer opened it. NULL: no memory. */
struct srdma_path *srdma_path_make(struct srdma_path_table *t,
				   struct srdma_conn *conn, int accepted);
/* Removes a path without users and frees it. */
void srdma_path_forget(struct srdma_path_table *t, struct srdma_path *path);
/* The path is unbound from now on, or not any more. Above SRDMA_MAX_UNBOUND the
 * oldest unbound path is closed. */
void srdma_path_unbind(struct srdma_path_table *t, struct srdma_path *path);
void srdma_path_bind(struct srdma_path_table *t, struct srdma_path *path);
/* Keeps a UDP connection, on which a packet of the identity verified, beyond this
 * event (port.h, keep), and charges its address to the account. 0: there is no
 * room. */
int srdma_path_adopt(struct srdma_path_table *t, struct srdma_conn *conn,
		     struct srdma_account *a);

/* --- path.c, for probe.c -------------------------------------------------- */

/* The QP remembers the path, or none if it is NULL (7.3). */
void srdma_path_remember(struct srdma_qp_path *x, struct srdma_path *path);
/* Moves the QP to a connection that the table has. */
void srdma_path_move(struct srdma_qp_path *x, struct srdma_conn *conn);
/* The path stays until it is released, also without users. */
void srdma_path_hold(struct srdma_path_table *t, struct srdma_conn *conn);
void srdma_path_release(struct srdma_path_table *t, struct srdma_conn *conn);
/* 1: both UDP connections lead to the same address. */
int srdma_path_same(const struct srdma_conn *a, const struct srdma_conn *b);
/* Makes the connection the own path, without validation. 0 or -ENOMEM. */
int srdma_path_attach(struct srdma_qp_path *x, struct srdma_conn *conn);

/* qp/layout.c */
struct srdma_qp_path *srdma_qp_path(const struct srdma_qp *qp);

#endif
