/*
 * One request of each kind between two relays, of which each completes once: with
 * its data, or with an error that has a name.
 */
#ifndef FAULTS_TRANSFER_H
#define FAULTS_TRANSFER_H

#include <stdint.h>

#include "support/relay_pair.h"

enum { TRANSFER_MEMORY = 64 * 1024 }; /* of each side */

struct transfer {
	uint32_t done, good; /* bits of completed and of successful requests */
};

/* Fills the memory of both sides and posts the requests: a RECV on side 1, the
 * others on side 0. */
void transfer_post(struct transfer *t, struct pair *p);

/* Runs until all have completed, and compares the memory. all_good: each must
 * have succeeded. */
void transfer_finish(struct transfer *t, struct pair *p, int all_good);

#endif
