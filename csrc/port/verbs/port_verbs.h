/*
 * The port over libibverbs and librdmacm, for any RDMA device (rxe is
 * enough): legs of the own hosts (docs/protocol.md 9.3), or the wire, one
 * RC QP per connection. No QP of it lets the other end touch memory here.
 */
#ifndef SRDMA_PORT_VERBS_H
#define SRDMA_PORT_VERBS_H

#include <stdint.h>

#include "port/port.h"

enum srdma_port_verbs_kind {
	SRDMA_PORT_VERBS_HOST = 1, /* legs: no reserve, commit, connect */
	SRDMA_PORT_VERBS_WIRE = 2, /* no read, write, complete, leg, region */
};

enum { SRDMA_PORT_VERBS_WHY_LEN = 192 };

struct srdma_port_verbs_params {
	const char *device; /* "rxe0" */
	const char *listen; /* "IP:PORT", "[IPv6]:PORT"; port 0: any. NULL:
			       the device's first IPv4 address, any port */
	enum srdma_port_verbs_kind kind;
	uint32_t buffers;  /* for buf_get */
	uint32_t receives; /* posted per wire connection; 0: 512 */
	uint32_t sends;	   /* send queue per connection, 2^n >= 32; 0: 256 */
	char *why; /* NULL, or WHY_LEN bytes: text of a failure of create */
};

/*
 * A listening port; port->address is the IP:PORT it listens on. 0, or
 * -errno with the cause in params->why. Buffers handed up by a leg hold
 * SRDMA_DESC_SLOT bytes, all others SRDMA_MAX_PACKET.
 */
int srdma_port_verbs_create(struct srdma_port **out,
			    const struct srdma_port_verbs_params *params);

#endif
