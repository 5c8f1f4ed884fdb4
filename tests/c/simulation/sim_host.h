/* Simulation: the hosts' state of their work requests. */
#ifndef SIM_HOST_H
#define SIM_HOST_H

#include "simulation/sim.h"

struct sim_end *sim_host_peer(struct sim_qp *qp, int side);
/* Element n of a queue, or of the messages of an end. */
struct sim_wr *sim_host_wr(struct sim_queue *q, uint32_t n);
struct sim_message *sim_host_message(struct sim_end *e, uint32_t n);
/* Range in the peer's memory, or NULL. */
uint8_t *sim_host_target(const struct sim_wr *wr);
/* Returns 1 if the operation consumes a RECV of the peer. */
int sim_host_takes_recv(uint8_t op);
/* Posts a descriptor. Returns 0, or -1 if there is no room. */
int sim_host_put(struct sim_leg *leg, struct srdma_desc *d,
		 const uint8_t *payload);
/* A request is complete: its ranges become free. */
void sim_host_done(struct sim_qp *qp, struct sim_end *e, struct sim_wr *wr);
/* A request failed: the peer's memory that it writes may still change. */
void sim_host_lost(struct sim_qp *qp, struct sim_end *e, struct sim_wr *wr);

#endif
