/* Verbs ports over the simulated devices of fake_verbs.h, and requests to them. */
#ifndef VERBS_PORT_H
#define VERBS_PORT_H

#include "port/verbs/port_verbs.h"
#include "support/fake_verbs.h"

enum {
	VERBS_PORT_RING = 64, /* records of the legs */
	VERBS_PORT_RKEY = 77, /* of their rings */
	VERBS_PORT_BUFFERS = 64,
	VERBS_PORT_SENDS = 32,
};
#define VERBS_PORT_RING_ADDR UINT64_C(0x7000000000)

/* A port of fake0. listen may be NULL. On an error the test fails. */
struct srdma_port *verbs_port_open(enum srdma_port_verbs_kind kind,
				   const char *listen);
/* As above, but returns the error, with its text in why. */
int verbs_port_refused(enum srdma_port_verbs_kind kind, const char *listen,
		       char why[SRDMA_PORT_VERBS_WHY_LEN]);

/* A leg that waits for its host. */
struct srdma_conn *verbs_port_leg(struct srdma_port *port);

/* A legal request of that kind to 10.0.0.1 on fake0. */
struct fake_verbs_request verbs_port_request(enum srdma_port_verbs_kind kind);

/* The next event, after a look at the CM; kind 0: there is no event. */
struct srdma_event verbs_port_next(struct srdma_port *port);

#endif
