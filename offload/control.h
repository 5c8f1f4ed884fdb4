/*
 * The control socket: its connections, what they send and what they are
 * sent (docs/protocol.md 10). Bounded everywhere: connections, the messages
 * taken per turn, the answers kept for a client that does not read.
 */
#ifndef OFFLOAD_CONTROL_H
#define OFFLOAD_CONTROL_H

#include <stdint.h>

#include "requests.h"

struct control;

struct control_params {
	int listener;			 /* stays the caller's */
	struct requests_params requests; /* send is the control's */
};

int control_create(struct control **out, const struct control_params *p);
/* Closes all connections. Legs are left to the relay. */
void control_destroy(struct control *c);

/* Readable when control_run() has something to do. */
int control_fd(const struct control *c);
/* Handle what has arrived, without blocking. */
void control_run(struct control *c);
/* Answer what has become due. Returns how many answers still wait. */
unsigned control_poll(struct control *c);
uint32_t control_qps(const struct control *c);

#endif
