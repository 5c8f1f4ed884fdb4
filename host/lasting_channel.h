/*
 * A channel that outlives its agent (docs/agent.md 8): after the agent's end it
 * is opened again at the same path, with a message by which a restarted system
 * agent continues what the channel stands for. All work is done in the calls
 * below. Functions that fail set the error text (error.h) unless noted.
 */
#ifndef SRDMA_HOST_LASTING_CHANNEL_H
#define SRDMA_HOST_LASTING_CHANNEL_H

#include "host/channel.h"

struct srdma_lasting_channel;

/* The agent is *away* from its end until another one has confirmed. */
enum { SRDMA_AWAY_MAX_S = 60 };

struct srdma_lasting_params {
	const struct srdma_agent_place *agent; /* used until the end */
	/* Name of the event by which an agent confirms the first message. An
	 * agent that ends before the first such event is not waited for. A
	 * string literal. */
	const char *confirms;
	const struct srdma_message *first;
	/* First message for a restarted agent; moved from here, also after an
	 * error. */
	struct srdma_message *again;
	/* Socket beside both messages, or -1; owned from now on, also after an
	 * error. */
	int fd;
};

/* Errors of srdma_channel_open(); another -errno for a lack of descriptors. */
int srdma_lasting_open(struct srdma_lasting_channel **out,
		       const struct srdma_lasting_params *params);

/*
 * Waits for the next event, as srdma_channel_next(). While the agent is away,
 * looks for another one: after 50 ms, then with doubling pauses of at most 1 s.
 * One that answers with an `error` of code `worker` is away too.
 * -EAGAIN: the agent is away at the deadline.
 *
 * The channel is over, and its socket is closed, after -ECONNRESET: an attempt
 * failed SRDMA_AWAY_MAX_S or more after the end was noticed, or the agent ended
 * before it confirmed; after a lack of descriptors; and after an `error`, which
 * is returned as an event. All further calls return the same error, for `error`
 * that of srdma_channel_error().
 */
int srdma_lasting_next(struct srdma_lasting_channel *l,
		       struct srdma_agent_event *e, int64_t deadline);

/* Replaces the message for another agent. The channel owns it from now on. */
void srdma_lasting_again(struct srdma_lasting_channel *l,
			 struct srdma_message *again);

/* As srdma_channel_send(). -EAGAIN: the agent is away, and the message did not
 * arrive. Events that it sent before its end remain for srdma_lasting_next(). */
int srdma_lasting_send(struct srdma_lasting_channel *l,
		       const struct srdma_message *w, int64_t deadline);

/* -errno of all further calls if the channel is over, or 0. */
int srdma_lasting_over(const struct srdma_lasting_channel *l);

/* Readable when srdma_lasting_next() should be called: an event waits, it is
 * time to look for an agent, or the channel has ended. Stays the same. */
int srdma_lasting_fd(const struct srdma_lasting_channel *l);

/* In a child of fork(): closes its copies of the descriptors, which is no end of the
 * channel, and frees nothing. */
void srdma_lasting_close_copies(struct srdma_lasting_channel *l);

/* As srdma_channel_close(); 0 also while the agent is away. NULL is allowed. */
int srdma_lasting_close(struct srdma_lasting_channel *l);

#endif
