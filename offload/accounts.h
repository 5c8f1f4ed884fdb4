/*
 * Accounts of programs of other users (docs/local-interface.md 3.9): the agent
 * names one by a text, and gives its limits. Restricted connections and their
 * legs are charged to it.
 */
#ifndef OFFLOAD_ACCOUNTS_H
#define OFFLOAD_ACCOUNTS_H

#include <stdint.h>

#include "relay/params.h"

enum {
	ACCOUNTS_CONNECTIONS = 512, /* control connections of a worker */
	/* each of a connection, or of a leg without one */
	ACCOUNTS_MAX = ACCOUNTS_CONNECTIONS + SRDMA_MAX_LEGS,
};

struct account_limits {
	uint32_t connections, legs, qps, regions;
	uint64_t bytes; /* of registered memory */
};

struct account {
	char name[SRDMA_NAME_LEN];
	struct account_limits limits;
	unsigned connections;
	unsigned holds; /* legs without a connection; the entry is free if both
			   are 0 */
};

struct accounts {
	struct account account[ACCOUNTS_MAX];
};

/*
 * Charge a connection to the account of this name, which gets these limits.
 * NULL if it has `limits->connections` already; its limits are replaced then
 * too.
 */
struct account *accounts_join(struct accounts *t, const char *name,
			      const struct account_limits *limits);
/* A connection of the account has ended. NULL is allowed. */
void accounts_leave(struct account *a);

/* The account exists until accounts_release(), without a connection too. */
void accounts_hold(struct account *a);
void accounts_release(struct account *a);

#endif
