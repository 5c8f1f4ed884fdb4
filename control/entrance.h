/*
 * Admission to the listening socket until the TLS handshake is complete
 * (docs/agent.md 3, rules 1 to 3). A *candidate* is a peer that is not
 * authorised: first it is silent, then TLS is under way.
 */
#ifndef CONTROL_ENTRANCE_H
#define CONTROL_ENTRANCE_H

#include <sys/socket.h>

#include <openssl/ssl.h>

#include "control/loop.h"
#include "control/reason.h"

enum {
	ENTRANCE_CANDIDATES = 512,
	ENTRANCE_PER_ADDRESS = 64,
};

struct entrance;

struct entrance_params {
	struct loop *loop;
	int listener; /* the caller keeps it */
	/* The settings of TLS for a candidate whose first bytes came. NULL: it is
	 * refused, and *r tells why. */
	SSL_CTX *(*begin)(void *ctx, struct reason *r);
	/* 0 if the peer of a complete handshake is authorised, or -EPROTO with the
	 * reason for it. */
	int (*check)(void *ctx, const SSL *ssl, struct reason *r);
	/* Takes the connection of an authorised peer. */
	void (*admit)(void *ctx, SSL *ssl);
	/* A candidate was refused. address: without the port. */
	void (*refused)(void *ctx, const char *address, const struct reason *r);
	void *ctx;
};

/* 0 or -errno. */
int entrance_create(struct entrance **out, const struct entrance_params *p);
/* Closes all candidates. NULL is allowed. */
void entrance_destroy(struct entrance *e);

/* Limits of time. Returns the time of the next call, at most. */
uint64_t entrance_check(struct entrance *e, uint64_t now);

#endif
