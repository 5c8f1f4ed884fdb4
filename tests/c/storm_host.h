/* What a storm's hosts know of their work requests. */
#ifndef STORM_HOST_H
#define STORM_HOST_H

#include "storm.h"

struct storm_end *storm_host_peer(struct storm_qp *qp, int side);
/* Number n of a queue, or of the messages of an end. */
struct storm_wr *storm_host_wr(struct storm_queue *q, uint32_t n);
struct storm_message *storm_host_message(struct storm_end *e, uint32_t n);
/* What it names of the peer's memory; NULL: nothing. */
uint8_t *storm_host_target(const struct storm_wr *wr);
/* 1: the peer needs a RECV for it. */
int storm_host_takes_recv(uint8_t op);
/* Post a descriptor: 0, or -1 when there is no room. */
int storm_host_put(struct storm_leg *leg, struct srdma_desc *d,
		   const uint8_t *payload);
/* A request of this end is over, and its ranges are free. */
void storm_host_done(struct storm_qp *qp, struct storm_end *e,
		     struct storm_wr *wr);
/* The same, but what it wrote at the peer may still change. */
void storm_host_lost(struct storm_qp *qp, struct storm_end *e,
		     struct storm_wr *wr);

#endif
