/*
 * The main loop: turns of the relay while there is work, then a short time of
 * yielding, then sleep until an event of a port, a client, a signal, a
 * broadcast or a deadline.
 */
#ifndef OFFLOAD_WORKER_H
#define OFFLOAD_WORKER_H

#include <stdint.h>

#include "control.h"
#include "port/port.h"
#include "relay/relay.h"
#include "report.h"
#include "broadcast.h"

struct worker_params {
	const char *name;
	struct srdma_relay *relay;
	struct srdma_port *host, *wire; /* owned by the relay */
	struct control *control;
	unsigned index; /* number of this worker process */
	const struct broadcast *words;
	int signals; /* signalfd whose signals are broadcast, or -1 */
	int ended;   /* readable when another worker process has ended, or -1 */
	struct report_out *report;
	uint32_t stats; /* seconds between lines of statistics; 0: none */
};

struct worker;

/* *p must outlive the worker. Returns 0 or -errno. */
int worker_create(struct worker **out, const struct worker_params *p);
void worker_destroy(struct worker *w);

/*
 * Run until BROADCAST_STOP. Returns 0, or -errno if epoll failed, which is
 * logged.
 */
int worker_run(struct worker *w);

#endif
