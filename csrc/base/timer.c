#include "base/timer.h"

#include <stddef.h>

static struct srdma_timer_place *at(const struct srdma_timers *t,
				    uint32_t place)
{
	return &t->heap[place - 1];
}

static void put(struct srdma_timers *t, uint32_t place,
		struct srdma_timer_place x)
{
	*at(t, place) = x;
	x.timer->place = place;
}

/* Stores x at the free index place or, if x is earlier, at the index of an
 * ancestor, which moves down. */
static void rise(struct srdma_timers *t, uint32_t place,
		 struct srdma_timer_place x)
{
	for (; place > 1 && x.when < at(t, place / 2)->when; place /= 2)
		put(t, place, *at(t, place / 2));
	put(t, place, x);
}

/* Stores x at the free index place or, if x is later, at the index of a
 * descendant, which moves up. */
static void sink(struct srdma_timers *t, uint32_t place,
		 struct srdma_timer_place x)
{
	uint32_t child;

	while ((child = 2 * place) <= t->count) {
		if (child < t->count &&
		    at(t, child + 1)->when < at(t, child)->when)
			child++;
		if (x.when <= at(t, child)->when)
			break;
		put(t, place, *at(t, child));
		place = child;
	}
	put(t, place, x);
}

void srdma_timer_wake(struct srdma_timers *t, struct srdma_timer *x,
		      uint64_t when)
{
	const struct srdma_timer_place place = { when, x };

	if (when == UINT64_MAX || (x->place && x->when <= when))
		return;
	x->when = when;
	rise(t, x->place ? x->place : ++t->count, place);
}

void srdma_timer_cancel(struct srdma_timers *t, struct srdma_timer *x)
{
	uint32_t place = x->place;
	struct srdma_timer_place last;

	if (!place)
		return;
	x->place = 0;
	last = *at(t, t->count--);
	if (last.timer == x)
		return;
	if (last.when < x->when)
		rise(t, place, last);
	else
		sink(t, place, last);
}

uint64_t srdma_timers_first(const struct srdma_timers *t)
{
	return t->count ? at(t, 1)->when : UINT64_MAX;
}

struct srdma_timer *srdma_timers_take(struct srdma_timers *t, uint64_t now)
{
	struct srdma_timer *first = NULL, **end = &first;

	while (t->count && at(t, 1)->when <= now) {
		struct srdma_timer *x = at(t, 1)->timer;

		srdma_timer_cancel(t, x);
		*end = x;
		end = &x->next;
	}
	*end = NULL;
	return first;
}
