/*
 * A queue of receives in the library: that of a UD QP, or of an SRQ before QPs of the
 * worker take its receives (docs/run.md 4, 4.1). All functions require the lock of
 * the context.
 */
#ifndef VERBS_RECVS_H
#define VERBS_RECVS_H

#include <infiniband/verbs.h>

#include "verbs/ud_ring.h"

struct verbs_recvs {
	struct ud_ring ring;
	uint32_t max_sge;
	struct ibv_recv_wr *wrs; /* ring.room */
	struct ibv_sge *sges;	 /* max_sge of each receive */
};

/* 0 or ENOMEM. */
int verbs_recvs_create(struct verbs_recvs *q, uint32_t room, uint32_t max_sge);
void verbs_recvs_destroy(struct verbs_recvs *q);
/* Copies a receive with its SGEs. 0; EINVAL: too many SGEs; EMSGSIZE: longer than
 * SRDMA_MESSAGE_MAX, which the worker would refuse when a QP of it joins the SRQ;
 * ENOMEM: the queue is full. */
int verbs_recvs_put(struct verbs_recvs *q, const struct ibv_recv_wr *wr);

/* The oldest receive, until ud_ring_pop(). Requires that there is one. */
static inline const struct ibv_recv_wr *
verbs_recvs_first(const struct verbs_recvs *q)
{
	return &q->wrs[q->ring.head];
}

#endif
