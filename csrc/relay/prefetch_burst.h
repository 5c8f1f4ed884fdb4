/*
 * Prefetch for a burst. The state of many QPs does not fit into a core's cache,
 * and waiting for one line after the other takes longer than the work on a
 * packet. Before the first packet of a burst is worked on, the lines that all
 * of them touch are fetched. Nothing is changed, and nothing depends on it.
 */
#ifndef SRDMA_RELAY_PREFETCH_BURST_H
#define SRDMA_RELAY_PREFETCH_BURST_H

#include <stdint.h>

struct srdma_event;
struct srdma_relay;

/* Descriptors that arrived. */
void srdma_prefetch_burst_host(const struct srdma_relay *r,
			       const struct srdma_event *ev, int n);
/* Up to n datagrams that the wire is about to give. */
void srdma_prefetch_burst_wire(const struct srdma_relay *r, int n);

#endif
