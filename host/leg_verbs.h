/*
 * The host's half of a leg over verbs (docs/local-interface.md 2.4): one RC
 * connection to the worker's NIC, made by rdma_cm. The device and the address
 * of this machine are those of the route to the worker.
 */
#ifndef SRDMA_HOST_LEG_VERBS_H
#define SRDMA_HOST_LEG_VERBS_H

#include "host/leg.h"
#include "port/port.h"

/* 0, or -ENOTSUP with an error text: this library was built without verbs, or
 * libibverbs or librdmacm is not installed. */
int srdma_leg_verbs_check(void);

/* The answer to OPEN, and the number of records asked for. */
struct srdma_leg_verbs_params {
	const char *address; /* IP:PORT, of the worker */
	uint8_t token[SRDMA_TOKEN_LEN];
	uint32_t ring; /* records, a power of two */
};

/*
 * Connects a leg. Waits for the worker until the deadline
 * (srdma_socket_deadline()). Errors, all with a text:
 * -ENOTSUP: srdma_leg_verbs_check(); -EPROTO: no address, or the worker does
 * not take this connection for a leg; -ENETUNREACH, -EHOSTUNREACH: no route, or
 * no answer on it; -ENODEV: the route does not lead over an RDMA device;
 * -ECONNREFUSED: no worker listens; -EACCES: no leg waits with this token and
 * ring; -EDQUOT: the worker has its limit of connections; -ETIMEDOUT; -ENOMEM:
 * also a limit of locked memory; another -errno of the device.
 */
int srdma_leg_verbs_create(struct srdma_host_leg **out,
			   const struct srdma_leg_verbs_params *params,
			   int64_t deadline);

#endif
