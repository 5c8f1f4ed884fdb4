/*
 * The port over libibverbs and librdmacm, for any RDMA device including rxe:
 * legs of hosts (docs/local-interface.md 2.4), or the wire with one RC QP per
 * connection. A port accepts connections of its own kind, on its own device and
 * address, and no others. No QP of the port permits remote access to the
 * worker's memory.
 */
#ifndef SRDMA_PORT_VERBS_H
#define SRDMA_PORT_VERBS_H

#include <stdint.h>

#include "port/leg_hello.h"
#include "port/port.h"

enum srdma_port_verbs_kind {
	/* legs: no reserve, commit or connect */
	SRDMA_PORT_VERBS_HOST = SRDMA_HELLO_KIND_LEG,
	/* no read, write, complete, leg or region */
	SRDMA_PORT_VERBS_WIRE = SRDMA_HELLO_KIND_WIRE,
};

enum { SRDMA_PORT_VERBS_WHY_LEN = 192 };

struct srdma_port_verbs_params {
	const char *device; /* device name, for example "rxe0" */
	const char *listen; /* "IP:PORT" or "[IPv6]:PORT"; port 0: any. HOST:
			       the port may be absent. NULL: the device's first
			       IPv4 address, else its first global IPv6 address;
			       any port */
	enum srdma_port_verbs_kind kind;
	uint32_t buffers;  /* buffers for buf_get */
	uint32_t receives; /* receives posted per wire connection; 0: 512 */
	uint32_t sends;	   /* send queue entries per connection, 2^n >= 32;
			      0: 256 */
	char *why; /* NULL, or WHY_LEN bytes for the cause of a failed create */
};

/*
 * Create a listening port; port->address is its IP:PORT. Returns 0, or -errno
 * with the cause in params->why. Buffers handed up by a leg have a capacity of
 * SRDMA_DESC_SLOT bytes, all others of SRDMA_VERBS_STRIDE >= SRDMA_MAX_PACKET.
 */
int srdma_port_verbs_create(struct srdma_port **out,
			    const struct srdma_port_verbs_params *params);

#endif
