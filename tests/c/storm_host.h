/* What a storm's hosts know of their work requests. */
#ifndef STORM_HOST_H
#define STORM_HOST_H

#include "storm.h"

struct storm_end *storm_host_peer(struct storm_qp *qp, int side);
/* 1: the peer needs a RECV for it. */
int storm_host_takes_recv(uint8_t op);
/* The request of a queue that takes receive n; NULL: not yet posted. */
struct storm_wr *storm_host_message(struct storm_queue *sq, uint32_t n);
/* Post a descriptor: 0, or -1 when there is no room. */
int storm_host_put(struct storm_leg *leg, struct srdma_desc *d,
		   const uint8_t *payload);

#endif
