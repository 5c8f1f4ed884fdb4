/*
 * The control socket: its connections, requests and responses (local-interface.md
 * 3). Bounded: the connections, the messages processed per turn, and the
 * responses queued for a client that does not read.
 */
#ifndef OFFLOAD_CONTROL_H
#define OFFLOAD_CONTROL_H

#include <stdint.h>

#include "requests.h"

struct control;

struct control_params {
	int listener;			 /* listening socket; the caller
					    keeps ownership */
	struct requests_params requests; /* send is set by control_create() */
};

/* Returns 0 or -errno. The objects in *p must outlive the control. */
int control_create(struct control **out, const struct control_params *p);
/* Closes all connections. The relay closes the legs. */
void control_destroy(struct control *c);

/* A file descriptor, readable when control_run() has work. */
int control_fd(const struct control *c);
/* Process pending socket events without blocking. */
void control_run(struct control *c);
/* Send responses that are due. Returns the number of requests still pending. */
unsigned control_poll(struct control *c);
/* See requests_timer(). */
uint64_t control_timer(const struct control *c);

#endif
