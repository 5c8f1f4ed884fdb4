/*
 * How long a worker without work yields its core before it sleeps
 * (docs/performance.md, Waiting). All times are ns of one clock.
 */
#ifndef OFFLOAD_YIELD_H
#define OFFLOAD_YIELD_H

#include <stdint.h>

struct yield_policy {
	/* Time to yield before a sleep; [1] applies after a long wait. */
	uint64_t budget[2];
	int was_long;
	uint64_t spent;	 /* in yields of this wait */
	uint64_t mean;	 /* of the time that a wait spends in yields */
	uint64_t resume; /* no yields before this time */
};

/* A wait that ended: work came. */
struct yield_wait {
	uint64_t since, until;
	int slept; /* the worker slept meanwhile */
};

void yield_policy_init(struct yield_policy *p);
/* Whether the worker, which has waited since `since`, yields; else it sleeps. */
int yield_is_due(const struct yield_policy *p, uint64_t since, uint64_t now);
/* A yield took `took` ns. */
void yield_returned(struct yield_policy *p, uint64_t took);
void yield_wait_ended(struct yield_policy *p, const struct yield_wait *wait);

#endif
