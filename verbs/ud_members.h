/*
 * The members of a multicast group (docs/run.md 4.1): those that the agent has told, and
 * those to which a message goes. Hosts take turns, so that none takes the copies of the
 * others, and a member keeps its place while other members come and go.
 */
#ifndef VERBS_UD_MEMBERS_H
#define VERBS_UD_MEMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "srdma/connection.h"

enum {
	UD_MEMBERS = 48,     /* of a group, to which messages go */
	UD_MEMBERS_GID = 32, /* of them, at one GID */
	UD_MEMBER_LEN = 4,   /* bytes of a QPN that the agent tells */
	UD_TOLD = SRDMA_DATA_MAX / UD_MEMBER_LEN, /* members at one GID */
};

/* Pauses between the sessions that are begun with a member. */
struct ud_pause {
	int64_t again; /* ms: the next session at the earliest */
	int64_t ms;    /* the last pause; 0: the last session was ready */
};

/* A UD QP that is a member. */
struct ud_member {
	uint32_t qp_num;
	struct ud_pause pause;
};

struct ud_host {
	uint8_t gid[SRDMA_GID_LEN];
	uint32_t round; /* of the agent that has told it last */
	unsigned n;
	struct ud_member members[UD_TOLD];
};

/* A member to which messages go. It is valid until the members change. */
struct ud_copy {
	const uint8_t *gid;
	struct ud_member *member;
};

struct ud_members {
	struct ud_host *hosts; /* in the order in which they were told first */
	unsigned n_hosts;
	struct ud_copy copies[UD_MEMBERS];
	unsigned n;    /* copies of a message */
	unsigned left; /* members to which messages do not go */
};

/* All members at a GID, as the agent tells them. */
struct ud_told {
	const uint8_t *gid;  /* SRDMA_GID_LEN bytes */
	const uint8_t *qpns; /* UD_MEMBER_LEN bytes each, big-endian */
	size_t len;	     /* bytes; at most SRDMA_DATA_MAX */
	uint32_t round;	     /* of the agent */
	uint32_t own;	     /* QPN of this UD QP if the GID is its own, or 0 */
};

/* Replaces the members at a GID, without the UD QP itself, which needs no session. 0;
 * -ENOMEM; -EPROTO: a QPN is illegal. Nothing has changed if it fails. */
int ud_members_set(struct ud_members *m, const struct ud_told *told);
/* Forgets hosts that the agent of this round has not told. */
void ud_members_keep(struct ud_members *m, uint32_t round);
void ud_members_forget(struct ud_members *m);

#endif
