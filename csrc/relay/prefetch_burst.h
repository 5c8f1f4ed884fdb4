/*
 * Looking ahead in a burst. Of many QPs no cache holds the state: to wait for
 * one line after the other takes longer than the work on a packet. What all
 * packets of a burst are about to touch is asked for before the first one is
 * worked on. Nothing is changed, and nothing depends on it. Internal to the
 * relay.
 */
#ifndef SRDMA_AHEAD_H
#define SRDMA_AHEAD_H

#include <stdint.h>

struct srdma_event;
struct srdma_relay;

/* Descriptors that came. */
void srdma_prefetch_burst_host(const struct srdma_relay *r, const struct srdma_event *ev,
		      int n);
/* Up to n datagrams that the wire will give. */
void srdma_prefetch_burst_wire(const struct srdma_relay *r, int n);

#endif
