#include "yield.h"

enum {
	MAX_YIELD_NS = 50000, /* about the cost of a sleep and wake-up */
	MIN_YIELD_NS = 3000,
	SHORT_WAIT_NS =
		3 * MAX_YIELD_NS, /* about the duration of another worker's
				     sleep */
	WEIGHT = 128,		  /* yields that the mean covers */
	PAUSE_NS = 250000000	  /* without yields; some 60 time slices */
};

void yield_policy_init(struct yield_policy *p)
{
	*p = (struct yield_policy){ .budget = { MAX_YIELD_NS, MAX_YIELD_NS } };
}

int yield_is_due(const struct yield_policy *p, uint64_t since, uint64_t now)
{
	return now >= p->resume && now - since < p->budget[p->was_long];
}

/*
 * A process that does not yield keeps the core for its whole time slice,
 * milliseconds, while the kernel lets a process that wakes up preempt it. So
 * the worker sleeps at once if yields take longer than a sleep on average.
 * After the pause one yield of a time slice is enough for the next pause.
 */
void yield_returned(struct yield_policy *p, uint64_t from, uint64_t to)
{
	p->mean = p->mean - p->mean / WEIGHT + (to - from) / WEIGHT;
	if (p->mean <= MAX_YIELD_NS)
		return;
	p->mean = MAX_YIELD_NS / 2;
	p->resume = to + PAUSE_NS;
}

/*
 * Adapt the budget: full if work arrived while yielding, half if it arrived
 * soon after going to sleep, halved if it arrived late. Long and short waits
 * may alternate: a request after a pause, then its ack as soon as the other
 * worker has woken up. Therefore waits that follow a long wait have their own
 * budget.
 */
void yield_wait_ended(struct yield_policy *p, uint64_t waited, int slept)
{
	uint64_t *budget = &p->budget[p->was_long];

	p->was_long = slept && waited >= SHORT_WAIT_NS;
	if (!slept)
		*budget = MAX_YIELD_NS;
	else if (!p->was_long)
		*budget = MAX_YIELD_NS / 2;
	else
		*budget /= 2;
	if (*budget < MIN_YIELD_NS)
		*budget = MIN_YIELD_NS;
}
