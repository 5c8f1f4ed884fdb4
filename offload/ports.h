/*
 * Ports by device name: the one place that knows which devices there are.
 */
#ifndef OFFLOAD_PORTS_H
#define OFFLOAD_PORTS_H

#include "options.h"
#include "port/port.h"

/* Failures are logged with what would be right. 0, or -errno. */
int ports_open_host(struct srdma_port **out, const struct options *o);
int ports_open_wire(struct srdma_port **out, const struct options *o);

#endif
