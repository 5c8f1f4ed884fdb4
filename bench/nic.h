/*
 * Two embedded NICs in one process: relays on shared-memory rings, each with a
 * host that posts to its ring and takes completion records, as programs do
 * (docs/local-interface.md 2, 4). Side 1 runs in the caller's thread or in a
 * thread of its own.
 */
#ifndef BENCH_NIC_H
#define BENCH_NIC_H

#include <pthread.h>

#include "bench_leg.h"
#include "meeting.h"
#include "support/relay_pair.h"

struct nic {
	struct pair pair; /* its sides have shm legs; memory is that of a
			     region */
	struct meeting meeting;
	struct bench_leg leg[2];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int run, stop; /* tell the thread to run side 1; to end */
	int running;   /* 1 while the thread is awake */
};

/*
 * n->pair must hold the defaults and the caller's changes. threads: 1 or 2.
 * Exits the program on failure.
 */
void nic_open(struct nic *n, int threads);
void nic_close(struct nic *n);

/*
 * If there is a thread, it runs only between start and pause: it is awake when
 * start returns, and pause waits until it no longer uses the relay.
 */
void nic_start(struct nic *n);
void nic_pause(struct nic *n);

/* Post a descriptor on side 0; nic_turn() publishes it. */
void nic_post(struct nic *n, const struct srdma_desc *d);
/*
 * Run a turn of side 0, and of side 1 if it has no thread. Returns the number
 * of completion records of side 0 stored in out, at most most.
 */
int nic_turn(struct nic *n, struct srdma_record *out, int most);

#endif
