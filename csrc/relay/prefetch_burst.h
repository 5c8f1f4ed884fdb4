/*
 * Prefetch for a burst. The state of many QPs does not fit into a core's cache,
 * and cache misses one after the other take longer than the processing of a
 * packet. So the lines that all packets of a burst touch are fetched before its
 * first packet is processed. This changes no state.
 */
#ifndef SRDMA_RELAY_PREFETCH_BURST_H
#define SRDMA_RELAY_PREFETCH_BURST_H

#include <stdint.h>

struct srdma_event;
struct srdma_relay;

/* n host events, before they are processed. */
void srdma_prefetch_burst_host(const struct srdma_relay *r,
			       const struct srdma_event *ev, int n);
/* Up to n datagrams that the next polls of the wire will return. */
void srdma_prefetch_burst_wire(const struct srdma_relay *r, int n);

#endif
