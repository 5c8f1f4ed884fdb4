/*
 * Two embedded NICs in one process and thread with one wire connection between
 * them and many QPs over it; messages on QPs in order and at random.
 */
#ifndef CROWD_H
#define CROWD_H

#include <stdint.h>

enum {
	CROWD_MOST = 100000,
	CROWD_UNDER_WAY = 64, /* messages in flight, in total */
};

struct crowd;

struct crowd_params {
	uint32_t qps;
	uint32_t burst; /* consecutive messages on a QP */
	uint32_t key_cache;
	uint8_t mode; /* enum srdma_mode */
};

/* Costs of one side. */
struct crowd_costs {
	double resident; /* bytes of resident memory per idle QP, all
			    inclusive */
	double tables;	 /* bytes of tables per QP, allocated on demand */
	double set_ups;	 /* set-ups of both ends, per second of CPU time */
};

/* All functions exit the program on failure. */
struct crowd *crowd_open(const struct crowd_params *params);
void crowd_close(struct crowd *c);
void crowd_cost(const struct crowd *c, struct crowd_costs *costs);

/*
 * Send signaled WRITEs of payload bytes on QPs in order or at random. Returns
 * the CPU time per message, ns, of both workers and both hosts. Exits unless
 * each message was sealed and verified.
 */
double crowd_work(struct crowd *c, uint32_t messages, uint32_t payload,
		  int at_random);

#endif
