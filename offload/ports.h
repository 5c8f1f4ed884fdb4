/* Opens ports by device name. Only ports.c knows the kinds of devices. */
#ifndef OFFLOAD_PORTS_H
#define OFFLOAD_PORTS_H

#include "options.h"
#include "port/port.h"

/*
 * Return 0, or -errno; failures are logged with a remedy. The caller owns the
 * port.
 */
int ports_open_host(struct srdma_port **out, const struct options *o);
int ports_open_wire(struct srdma_port **out, const struct options *o);

#endif
