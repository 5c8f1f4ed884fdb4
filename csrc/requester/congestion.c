#include "requester/congestion.h"

#include "base/time.h"

#define BASE_LIFE (10 * SRDMA_SECOND) /* lifetime of a least round-trip time */

enum {
	SCALE = 256,
	NARROW = 40, /* packets: window at which the accepted delay doubles */
	ROUNDS = 20, /* rounds with delay before look() */
	A_FEW = 4,   /* lost packets of a round that are always ignored */
};

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
			   uint32_t queue)
{
	*c = (struct srdma_congestion){ .most = most,
					.slow = most * SCALE,
					.queue = queue,
					.least = UINT64_MAX };
	c->window = queue ? bounded(c, SRDMA_CONGESTION_FIRST * SCALE)
			  : most * SCALE;
}

uint32_t srdma_congestion_window(const struct srdma_congestion *c)
{
	return c->window / SCALE;
}

/* The least round-trip time of the last one or two periods, so that a new path
 * is noticed. */
static void learn_base(struct srdma_congestion *c, uint64_t rtt)
{
	if (!c->next_base || c->now - c->since >= BASE_LIFE) {
		c->base = c->next_base;
		c->next_base = rtt;
		c->since = c->now;
	}
	if (rtt < c->next_base)
		c->next_base = rtt;
	if (!c->base || c->next_base < c->base)
		c->base = c->next_base;
}

static uint64_t queue_of(const struct srdma_congestion *c)
{
	return c->base / 2 > c->queue ? c->base / 2 : c->queue;
}

/* Accepted delay. It is longer for a narrow window, so that the windows of QPs
 * that share a path become equal. */
static uint64_t allowed(const struct srdma_congestion *c)
{
	return queue_of(c) + queue_of(c) * NARROW * SCALE / c->window;
}

/* Narrows the window to what fills the path without delay: by at least 1/16, to
 * at least `least`. */
static void narrow(struct srdma_congestion *c, uint64_t rtt, uint32_t least)
{
	const uint32_t most = c->window - c->window / 16;
	uint64_t window = c->window * c->base / rtt;

	if (window < least)
		window = least;
	if (window > most)
		window = most;
	c->window = c->slow = bounded(c, window);
	c->cut = c->now;
}

/* Sets the window to its least for one round, to measure the path without the
 * queue that this QP causes. */
static void look(struct srdma_congestion *c)
{
	c->looks = c->least;
	c->slow = c->window;
	c->window = bounded(c, 0);
	c->stood = 0;
}

/* Restores the window, and narrows it if the delay was the QP's own. */
static void looked(struct srdma_congestion *c)
{
	c->window = c->slow;
	if (c->looks - c->base > allowed(c))
		narrow(c, c->looks, c->window / 2);
	c->looks = 0;
}

static void end_round(struct srdma_congestion *c)
{
	const uint64_t wait = c->least - c->base;
	const uint64_t most = allowed(c);
	const uint32_t lost = c->lost;

	c->above = wait > most;
	c->stood = wait > queue_of(c) / 4 ? c->stood + 1 : 0;
	if (c->looks)
		looked(c);
	else if (c->above || c->stood >= ROUNDS)
		look(c);
	else if ((lost && wait > queue_of(c) / 2) || lost > A_FEW + c->came / 4)
		narrow(c, c->least, c->window - c->window / 8);
	c->began = c->now;
	c->least = UINT64_MAX;
	c->came = c->lost = 0;
}

void srdma_congestion_rtt(struct srdma_congestion *c, uint64_t now,
			  uint64_t rtt)
{
	if (!c->queue || !rtt)
		return;
	c->now = now;
	learn_base(c, rtt);
	if (rtt < c->least)
		c->least = rtt;
	if (now - rtt >= c->began)
		end_round(c);
}

void srdma_congestion_arrived(struct srdma_congestion *c, uint32_t packets,
			      int used)
{
	uint64_t more = (uint64_t)packets * SCALE;

	c->came += packets;
	if (c->above || c->looks || !used)
		return;
	if (c->window >= c->slow)
		more = more * SCALE / c->window;
	c->window = bounded(c, c->window + more);
}

void srdma_congestion_lost(struct srdma_congestion *c, uint32_t packets,
			   uint64_t sent)
{
	if (sent >= c->cut)
		c->lost += packets;
}

void srdma_congestion_timeout(struct srdma_congestion *c)
{
	if (c->queue)
		srdma_congestion_restart(c);
}

void srdma_congestion_restart(struct srdma_congestion *c)
{
	if (c->window > c->slow)
		c->slow = c->window;
	c->window = bounded(c, 0);
	c->above = 0;
	c->looks = 0;
}
