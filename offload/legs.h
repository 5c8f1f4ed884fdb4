/*
 * Who may use which leg (docs/protocol.md 10): the connection that made it,
 * whose end ends the leg, and those that ATTACHed. A connection is a number
 * below LEGS_USERS.
 */
#ifndef OFFLOAD_LEGS_H
#define OFFLOAD_LEGS_H

#include <stdint.h>

#include "relay/relay.h"

enum { LEGS_USERS = 512 };

struct legs {
	struct srdma_relay *relay;
	struct leg_entry {
		uint32_t id; /* 0: free */
		uint32_t qps;
		unsigned owner;
		uint64_t users[LEGS_USERS / 64]; /* a bit each, the owner too */
	} entry[SRDMA_MAX_LEGS];
};

/* The connection made the leg. 0, or -ENOSPC. */
int legs_add(struct legs *t, unsigned owner, struct srdma_leg *leg);
/* The connection knew the leg's token. */
void legs_attach(struct legs *t, unsigned user, struct srdma_leg *leg);

/* The leg of that id if the connection may use it, else NULL. */
struct srdma_leg *legs_find(struct legs *t, unsigned user, uint32_t id);
/* The leg that holds the QP if the connection may use it, else NULL. */
struct srdma_leg *legs_find_qp(struct legs *t, unsigned user, uint32_t qpn);

/* The connection ended: close the legs that it made, forget the others. */
void legs_leave(struct legs *t, unsigned user);

/* A QP of the leg was made (1) or destroyed (-1); all QPs of all legs. */
void legs_count_qp(struct legs *t, uint32_t id, int change);
uint32_t legs_qps(const struct legs *t);

#endif
