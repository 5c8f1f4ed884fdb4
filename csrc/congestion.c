#include "congestion.h"

#define TARGET	  UINT64_C(500000)	/* ns of queue, at least */
#define BASE_LIFE UINT64_C(10000000000) /* ns that a least round trip counts */

enum { SCALE = 256 };

static uint32_t bounded(const struct srdma_congestion *c, uint64_t window)
{
	uint64_t least = c->most < SRDMA_CONGESTION_LEAST
				 ? c->most
				 : SRDMA_CONGESTION_LEAST;

	if (window < least * SCALE)
		window = least * SCALE;
	if (window > (uint64_t)c->most * SCALE)
		window = (uint64_t)c->most * SCALE;
	return (uint32_t)window;
}

void srdma_congestion_init(struct srdma_congestion *c, uint32_t most,
			   int ordered)
{
	*c = (struct srdma_congestion){ .most = most,
					.slow = most * SCALE,
					.ordered = ordered != 0 };
	c->window = ordered ? most * SCALE
			    : bounded(c, SRDMA_CONGESTION_FIRST * SCALE);
}

uint32_t srdma_congestion_window(const struct srdma_congestion *c)
{
	return c->window / SCALE;
}

void srdma_congestion_arrived(struct srdma_congestion *c, uint32_t packets)
{
	uint64_t more = (uint64_t)packets * SCALE;

	if (c->above || !packets)
		return;
	if (c->window >= c->slow)
		more = more * SCALE / c->window;
	c->window = bounded(c, c->window + more);
}

/* The least of the last one or two lives, so that a new path is noticed. */
static void learn_base(struct srdma_congestion *c, uint64_t now, uint64_t rtt)
{
	if (!c->next_base || now - c->since >= BASE_LIFE) {
		c->base = c->next_base;
		c->next_base = rtt;
		c->since = now;
	}
	if (rtt < c->next_base)
		c->next_base = rtt;
	if (!c->base || c->next_base < c->base)
		c->base = c->next_base;
}

void srdma_congestion_rtt(struct srdma_congestion *c, uint64_t now,
			  uint64_t rtt)
{
	uint64_t target;

	if (c->ordered || !rtt)
		return;
	learn_base(c, now, rtt);
	target = c->base + (c->base > TARGET ? c->base : TARGET);
	c->above = rtt > target;
	if (!c->above || now - c->cut < rtt)
		return;
	/* What is left fills the path, not its queue. */
	c->window = bounded(c, rtt > 2 * c->base ? c->window / 2
						 : c->window * c->base / rtt);
	c->slow = c->window;
	c->cut = now;
}

void srdma_congestion_timeout(struct srdma_congestion *c)
{
	if (!c->ordered)
		srdma_congestion_restart(c);
}

void srdma_congestion_restart(struct srdma_congestion *c)
{
	if (c->window > c->slow || c->ordered)
		c->slow = c->window > c->slow ? c->window : c->slow;
	c->window = bounded(c, 0);
	c->above = 0;
}
