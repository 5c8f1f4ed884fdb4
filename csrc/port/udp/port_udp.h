/*
 * The wire over UDP: packets as RoCEv2 datagrams (docs/protocol.md 11a). It
 * needs no RDMA device. A connection is a pair of addresses; a peer's
 * address is remembered when the relay keeps its conn (port.h), and costs
 * nothing before that.
 */
#ifndef SRDMA_PORT_UDP_H
#define SRDMA_PORT_UDP_H

#include <stdint.h>

#include "port/port.h"
#include "wire/stats.h"

enum { SRDMA_UDP_PORT = 4791, SRDMA_PORT_UDP_WHY_LEN = 192 };

/* One writer, any reader. */
struct srdma_udp_stats {
	uint64_t received, sent;	      /* datagrams */
	struct srdma_wire_counts counts;      /* of others */
	uint32_t receive_buffer, send_buffer; /* bytes, as the kernel gave */
};

/*
 * A wire port at address, "IP", "IP:PORT", "[IPv6]" or "[IPv6]:PORT" (port
 * 0: any free one); port->address is where it is. 0, or -errno with the
 * cause in why.
 */
int srdma_port_udp_create(struct srdma_port **out, const char *address,
			  char why[SRDMA_PORT_UDP_WHY_LEN]);

const struct srdma_udp_stats *
srdma_port_udp_stats(const struct srdma_port *port);

#endif
