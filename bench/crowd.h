/*
 * Two embedded NICs in one process and thread, with one connection between
 * them, and so many QPs from one to the other; messages in order and at random.
 */
#ifndef CROWD_H
#define CROWD_H

#include <stdint.h>

enum {
	CROWD_MOST = 100000,
	CROWD_UNDER_WAY = 64, /* messages, in all */
};

struct crowd;

struct crowd_params {
	uint32_t qps;
	uint32_t burst; /* messages that a QP is given at a time */
	uint32_t key_cache;
	uint8_t mode; /* enum srdma_mode */
};

/* What it takes, of one side. */
struct crowd_costs {
	double resident; /* bytes of a QP at rest, all that came with it */
	double tables;	 /* bytes of a QP that it took since, for work */
	double set_ups;	 /* of both ends, per second of CPU time */
};

/* All exit where anything fails. */
struct crowd *crowd_open(const struct crowd_params *params);
void crowd_close(struct crowd *c);
void crowd_cost(const struct crowd *c, struct crowd_costs *costs);

/* WRITEs of so many bytes, by QPs in order or at random, all signaled. CPU time
 * of a message, ns: of both workers and both hosts. Each was sealed and verified,
 * or it exits. */
double crowd_work(struct crowd *c, uint32_t messages, uint32_t payload,
		  int at_random);

#endif
