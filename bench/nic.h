/*
 * Two embedded NICs in one process: relays on shared-memory rings, each with a
 * host that posts into its ring and takes completion records, as programs do
 * (docs/protocol.md 9, 11). By hand, or side 1 by a thread of its own.
 */
#ifndef BENCH_NIC_H
#define BENCH_NIC_H

#include <pthread.h>

#include "bench_leg.h"
#include "meeting.h"
#include "relay_pair.h"

struct nic {
	struct pair pair; /* its sides have shm legs; memory is a region's */
	struct meeting meeting;
	struct bench_leg leg[2];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int run, stop; /* the thread is to turn side 1; to end */
	int running;   /* and does: it is awake */
};

/* pair: defaults and what the caller wants. threads: 1 or 2. Ends the program
 * where something fails. */
void nic_open(struct nic *n, int threads);
void nic_close(struct nic *n);

/* The thread, if there is one, works between these: it is awake when start
 * returns, and pause waits until it has let go of the relay. */
void nic_start(struct nic *n);
void nic_pause(struct nic *n);

/* Post at side 0; then show it. */
void nic_post(struct nic *n, const struct srdma_desc *d);
/* A turn of side 0, and without a thread of side 1; records of side 0. */
int nic_turn(struct nic *n, struct srdma_record *out, int most);

#endif
