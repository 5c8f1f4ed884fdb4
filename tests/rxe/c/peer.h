/* Functions that the test programs of the verbs port share. */
#ifndef PEER_H
#define PEER_H

#include "port/verbs/port_verbs.h"

enum { PEER_BURST = 32 };

/* Prints to stderr and exits with 1. */
_Noreturn void peer_die(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));
/* Prints a line that the test reads. */
void peer_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Opens a port of DEVICE or DEVICE@IP:PORT and prints its address. */
struct srdma_port *peer_open(const char *device,
			     enum srdma_port_verbs_kind kind);

/*
 * Sends the heartbeats that are due and sleeps until the port has an event, or
 * the next heartbeat is due. Call it only after a poll without events and an
 * attempt to send, because free room is not an event. Exits after 30 s without
 * an event and without a leg that needs heartbeats.
 */
void peer_sleep(struct srdma_port *port);

#endif
