/* What the test programs of the verbs port share. */
#ifndef PEER_H
#define PEER_H

#include "port/verbs/port_verbs.h"

enum { PEER_BURST = 32 };

/* Print to stderr and exit 1. */
_Noreturn void peer_die(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));
/* Print a line that the test reads. */
void peer_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A port of DEVICE or DEVICE@IP:PORT; its address is printed. */
struct srdma_port *peer_open(const char *device,
			     enum srdma_port_verbs_kind kind);

/*
 * After a poll without events, and after what a poll makes possible was tried:
 * room to send is no event. Dies after 30 s in which nothing happens.
 */
void peer_sleep(struct srdma_port *port);

#endif
