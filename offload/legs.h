/*
 * Access of control connections to legs (docs/local-interface.md 3). The
 * connection that opened a leg owns it, and those that adopted it do (3.9). The
 * end of the last owner closes the leg, or leaves it without one for some time;
 * connections that sent ATTACH may use it, and so may the agent. A connection
 * is identified by a number below LEGS_USERS.
 */
#ifndef OFFLOAD_LEGS_H
#define OFFLOAD_LEGS_H

#include <stdint.h>

#include "relay/relay.h"

enum { LEGS_USERS = SRDMA_MAX_CONNECTIONS };

struct legs_opener {
	uint32_t user;		       /* that connected it */
	struct srdma_account *account; /* to which it is charged. It exists at
					  least as long as the leg */
	uint32_t keep; /* s for which the leg outlives its owners */
};

struct legs {
	struct srdma_relay *relay;
	unsigned kept;			  /* legs without an owner */
	uint64_t agents[LEGS_USERS / 64]; /* connections of the agent */
	struct leg_entry {
		uint32_t id; /* 0: free */
		struct legs_opener opener;
		uint64_t until; /* ns, when a leg without an owner ends; 0: it
				   has one */
		uint64_t users[LEGS_USERS / 64]; /* bit set of connections,
						    including the owners */
		uint64_t owners[LEGS_USERS / 64];
	} entry[SRDMA_MAX_LEGS]; /* by id */
};

/* Enter a leg, which the connection owns. */
void legs_add(struct legs *t, unsigned user, struct srdma_leg *leg,
	      const struct legs_opener *opener);
/* Let a connection that presented the leg's token use the leg. */
void legs_attach(struct legs *t, unsigned user, struct srdma_leg *leg);
/*
 * Let a connection with the account of a leg own it too, and let the leg have
 * this keep, if its owners have one.
 */
void legs_adopt(struct legs *t, unsigned user, uint32_t keep,
		const struct srdma_leg *leg);
/* Let a connection use every leg, or only those that it opened or attached to.
 */
void legs_set_agent(struct legs *t, unsigned user, int is_agent);

/* The leg with this id if the connection may use it, else NULL. */
struct srdma_leg *legs_find(struct legs *t, unsigned user, uint32_t id);
/* The leg that holds the QP if the connection may use it, else NULL. */
struct srdma_leg *legs_find_qp(struct legs *t, unsigned user, uint32_t qpn);

/* By whom a leg was opened; NULL if it has no entry. */
const struct legs_opener *legs_opener(struct legs *t,
				      const struct srdma_leg *leg);
/* 1 if the connection opened, or attached to, a leg that lives. */
int legs_used_by(const struct legs *t, unsigned user);

/*
 * A connection ended: close the legs that it owns, or let them be without an
 * owner; drop its access to others.
 */
void legs_leave(struct legs *t, unsigned user);
/* Close the legs that have been without an owner for too long. */
void legs_expire(struct legs *t);
/* When legs_expire() is due, ns; UINT64_MAX: never. */
uint64_t legs_timer(const struct legs *t);

#endif
