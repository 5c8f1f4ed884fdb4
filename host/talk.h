/*
 * Talks: short messages between the programs of two GIDs, through their agents
 * (docs/agent.md 13). Functions that fail set the error text (error.h).
 */
#ifndef SRDMA_HOST_TALK_H
#define SRDMA_HOST_TALK_H

#include "host/lasting_channel.h"

/* The end of this program. Fields are read during the call only, but for
 * `agent`. */
struct srdma_talk_self {
	const struct srdma_agent_place *agent;
	const char *worker;   /* path of its control socket */
	const char *identity; /* a name of the agent's policy */
	/* Permitted identities of the peer. */
	const char *const *peers;
	size_t n_peers;
};

enum { SRDMA_TALK_KEY_LEN = 16 };

/* A port of this worker's GID that a program serves. key: by which its agent
 * knows the program again; secret. */
struct srdma_talk_port {
	uint16_t number;
	uint8_t key[SRDMA_TALK_KEY_LEN];
};

/* Reports talks to a port, number 0: any free one, as events `called` behind
 * `serving`. Draws the key. Errors of srdma_lasting_open(); -ENOMEM; -EIO: the
 * kernel gave no random bytes. */
int srdma_talk_serve(struct srdma_lasting_channel **out,
		     const struct srdma_talk_self *self,
		     struct srdma_talk_port *port);
/* Reports talks to the UD QP with this QPN, which is one of this program's QPs
 * without keys: token is that of its leg (SRDMA_TOKEN_LEN bytes). A restarted
 * agent serves it again. Errors of srdma_talk_serve(). */
int srdma_talk_serve_qp(struct srdma_lasting_channel **out,
			const struct srdma_talk_self *self, uint32_t qp_num,
			const uint8_t *token);
/* After `serving`: a program that comes back to its agent, or to one that was
 * restarted, serves this port. 0 or -ENOMEM. */
int srdma_talk_keep(struct srdma_lasting_channel *service,
		    const struct srdma_talk_self *self,
		    const struct srdma_talk_port *port);

/* A UD QP of this program that uses a multicast group. */
struct srdma_talk_group {
	const uint8_t *gid; /* of the group, SRDMA_GID_LEN bytes */
	uint32_t qp_num;
	const uint8_t *token; /* of its leg, SRDMA_TOKEN_LEN bytes */
	int member;	      /* 1: it receives messages for the group */
};

/* Uses the group: events `members`, with the GID of a host and the QPNs of its
 * members in 4 bytes each (big-endian), and `joined` (docs/agent.md 14). Errors of
 * srdma_channel_open(); -ENOMEM. */
int srdma_talk_group(struct srdma_channel **out,
		     const struct srdma_talk_self *self,
		     const struct srdma_talk_group *group);

enum { SRDMA_TALK_QP = 1 << 24 };

/* A message, at most SRDMA_DATA_MAX bytes. */
struct srdma_talk_data {
	const void *bytes;
	size_t len;
};

struct srdma_talk_peer {
	const uint8_t *gid; /* SRDMA_GID_LEN bytes */
	/* That the peer serves: a port, or SRDMA_TALK_QP and the QPN of a UD QP. */
	uint32_t port;
	uint16_t own; /* a port that it is told; 0: none */
};

/* Calls a peer. Errors of srdma_channel_open(); -ENOMEM. */
int srdma_talk_call(struct srdma_channel **out,
		    const struct srdma_talk_self *self,
		    const struct srdma_talk_peer *peer,
		    const struct srdma_talk_data *data);
/* Takes the talk of an event `called`. */
int srdma_talk_answer(struct srdma_channel **out,
		      const struct srdma_talk_self *self, uint64_t talk);
/* Says something in a talk. Errors of srdma_channel_send(); -ENOMEM. */
int srdma_talk_say(struct srdma_channel *talk,
		   const struct srdma_talk_data *data);

#endif
