/*
 * Wire port over UDP: packets as RoCEv2 datagrams (docs/protocol.md 11a). It
 * needs no RDMA device. A connection is a pair of addresses. The port stores
 * the address of a sender only after the relay keeps its conn (port.h).
 */
#ifndef SRDMA_PORT_UDP_H
#define SRDMA_PORT_UDP_H

#include <stdint.h>

#include "port/port.h"
#include "wire/stats.h"

enum { SRDMA_UDP_PORT = 4791, SRDMA_PORT_UDP_WHY_LEN = 192 };

/* Written by the port's thread; any thread may read. */
struct srdma_udp_stats {
	uint64_t received, sent;	      /* datagrams */
	struct srdma_wire_counts counts;      /* errors and drops */
	uint32_t receive_buffer, send_buffer; /* bytes granted by the kernel */
};

/*
 * Create a wire port at address: "IP", "IP:PORT", "[IPv6]" or "[IPv6]:PORT".
 * The default PORT is SRDMA_UDP_PORT; PORT 0 selects any free port.
 * port->address holds the resulting address. Returns 0, or -errno with the
 * cause in why.
 */
int srdma_port_udp_create(struct srdma_port **out, const char *address,
			  char why[SRDMA_PORT_UDP_WHY_LEN]);

/*
 * The port takes bare datagrams from now on, and sends those of commit_bare in
 * trains (docs/protocol.md 11a). No effect over IPv6, whose datagrams all have
 * an ICRC and leave in trains.
 */
void srdma_port_udp_take_bare(struct srdma_port *port);

const struct srdma_udp_stats *
srdma_port_udp_stats(const struct srdma_port *port);

#endif
