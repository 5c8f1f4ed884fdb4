#include "yield.h"

enum {
	MAX_YIELD_NS = 50000, /* about the cost of a sleep and wake-up */
	MIN_YIELD_NS = 3000,
	SHORT_WAIT_NS =
		3 * MAX_YIELD_NS,   /* about the duration of another worker's
				     sleep */
	LOSS_NS = 2 * MAX_YIELD_NS, /* mean above which yields are a loss */
	SLICE_NS = 4 * LOSS_NS,	    /* a longer time counts as this one, so
				       that the mean needs one wait in four */
	WEIGHT = 128,		    /* waits that the mean covers */
	PAUSE_NS = 250000000	    /* without yields; some 60 time slices */
};

void yield_policy_init(struct yield_policy *p)
{
	*p = (struct yield_policy){ .budget = { MAX_YIELD_NS, MAX_YIELD_NS } };
}

int yield_is_due(const struct yield_policy *p, uint64_t since, uint64_t now)
{
	return now >= p->resume && now - since < p->budget[p->was_long];
}

void yield_returned(struct yield_policy *p, uint64_t took)
{
	p->spent += took;
}

/*
 * A process that does not yield keeps the core for its whole time slice,
 * milliseconds, when the worker yields; but the kernel lets a worker that wakes
 * up preempt it. Soon after a pause one such wait makes the next pause; later
 * the traffic may be another one, and the mean starts again.
 */
static void judge(struct yield_policy *p, uint64_t now)
{
	const uint64_t spent = p->spent < SLICE_NS ? p->spent : SLICE_NS;

	p->spent = 0;
	if (!spent)
		return;
	if (p->resume && now >= p->resume + PAUSE_NS)
		p->mean = p->resume = 0;
	p->mean = p->mean - p->mean / WEIGHT + spent / WEIGHT;
	if (p->mean <= LOSS_NS)
		return;
	p->mean = LOSS_NS - LOSS_NS / WEIGHT;
	p->resume = now + PAUSE_NS;
}

/*
 * Adapt the budget: full if work arrived while yielding, half if it arrived
 * soon after going to sleep, halved if it arrived late. Long and short waits
 * may alternate: a request after a pause, then its ack as soon as the other
 * worker has woken up. Therefore waits that follow a long wait have their own
 * budget.
 */
static void adapt(struct yield_policy *p, const struct yield_wait *wait)
{
	uint64_t *budget = &p->budget[p->was_long];

	p->was_long = wait->slept && wait->until - wait->since >= SHORT_WAIT_NS;
	if (!wait->slept)
		*budget = MAX_YIELD_NS;
	else if (!p->was_long)
		*budget = MAX_YIELD_NS / 2;
	else
		*budget /= 2;
	if (*budget < MIN_YIELD_NS)
		*budget = MIN_YIELD_NS;
}

void yield_wait_ended(struct yield_policy *p, const struct yield_wait *wait)
{
	judge(p, wait->until);
	adapt(p, wait);
}
