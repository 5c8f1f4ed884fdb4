/* Simulation: the hosts' state of their work requests. */
#ifndef STORM_HOST_H
#define STORM_HOST_H

#include "storm.h"

struct storm_end *storm_host_peer(struct storm_qp *qp, int side);
/* Element n of a queue, or of the messages of an end. */
struct storm_wr *storm_host_wr(struct storm_queue *q, uint32_t n);
struct storm_message *storm_host_message(struct storm_end *e, uint32_t n);
/* Range in the peer's memory, or NULL. */
uint8_t *storm_host_target(const struct storm_wr *wr);
/* Returns 1 if the operation consumes a RECV of the peer. */
int storm_host_takes_recv(uint8_t op);
/* Posts a descriptor. Returns 0, or -1 if there is no room. */
int storm_host_put(struct storm_leg *leg, struct srdma_desc *d,
		   const uint8_t *payload);
/* A request is complete: its ranges become free. */
void storm_host_done(struct storm_qp *qp, struct storm_end *e,
		     struct storm_wr *wr);
/* A request failed: the peer's memory that it writes may still change. */
void storm_host_lost(struct storm_qp *qp, struct storm_end *e,
		     struct storm_wr *wr);

#endif
