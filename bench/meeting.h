/*
 * Where the wires of two embedded NICs find each other: a directory, which is
 * gone as soon as they have, so that nobody who is interrupted leaves it.
 */
#ifndef BENCH_MEETING_H
#define BENCH_MEETING_H

#include "relay_pair.h"

struct meeting {
	char dir[32];
};

/* Both relays of a pair, on ports of shared memory. NULL, or what failed. */
const char *meeting_open(struct meeting *m, struct pair *p);
/* Once they are connected. NULL, or what failed. */
const char *meeting_end(const struct meeting *m);

#endif
