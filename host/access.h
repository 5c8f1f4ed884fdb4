/* Connections to a worker that the system agent passes to programs of other
 * users (docs/agent.md 9). */
#ifndef SRDMA_HOST_ACCESS_H
#define SRDMA_HOST_ACCESS_H

#include "host/channel.h"
#include "host/control.h"

enum srdma_access_kind {
	SRDMA_ACCESS_HERE,
	/* The worker is on another computer: the connection may end while its
	 * leg goes on. */
	SRDMA_ACCESS_LASTING,
	/* The same, and the agent is on another computer too. */
	SRDMA_ACCESS_REMOTE,
};

/*
 * Gets a connection to the worker process at the path, as the agent's policy
 * names it. Errors of srdma_channel_open() and of srdma_channel_error(), with
 * -EDQUOT: this user has its limit of connections; -ETIMEDOUT; -ECONNRESET: the
 * agent ended; -EPROTO.
 */
int srdma_access_connect(struct srdma_control **out,
			 const struct srdma_agent_place *agent,
			 const char *path, enum srdma_access_kind *kind);

/*
 * The two halves: srdma_access_take() waits for the answer on the channel, which
 * the caller closes. -ETIMEDOUT: call it again. timeout_ms: see
 * srdma_channel_open().
 */
int srdma_access_ask(struct srdma_channel **channel,
		     const struct srdma_agent_place *agent, const char *path,
		     int timeout_ms);
int srdma_access_take(struct srdma_channel *channel, struct srdma_control **out,
		      const char *path, enum srdma_access_kind *kind,
		      int64_t deadline);

#endif
