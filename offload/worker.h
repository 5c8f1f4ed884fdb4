/*
 * The main loop: turns of the relay while there is work, a short while of
 * yielding, then sleep until a port, a client, a signal, a word or a deadline.
 */
#ifndef OFFLOAD_WORKER_H
#define OFFLOAD_WORKER_H

#include <stdint.h>

#include "control.h"
#include "port/port.h"
#include "relay.h"
#include "report.h"
#include "broadcast.h"

struct worker_params {
	const char *name;
	struct srdma_relay *relay;
	struct srdma_port *host, *wire; /* the relay's */
	struct control *control;
	unsigned thread; /* of whom words are told */
	const struct broadcast *words;
	int signals; /* signalfd, which is told to all; or -1 */
	int ended;   /* readable when another thread has ended; or -1 */
	struct report_out *report;
	uint32_t stats; /* seconds between lines of statistics, 0: never */
};

struct worker;

/* p must outlive it. 0, or -errno. */
int worker_create(struct worker **out, const struct worker_params *p);
void worker_destroy(struct worker *w);

/* Run until BROADCAST_STOP. 0, or -errno if it cannot wait for events, which is
 * logged. */
int worker_run(struct worker *w);

#endif
