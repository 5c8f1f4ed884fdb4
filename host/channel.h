/*
 * A channel to the agent (docs/agent.md 2): a Unix stream socket for one
 * connection or listener. Functions that fail set the error text (error.h).
 */
#ifndef SRDMA_HOST_CHANNEL_H
#define SRDMA_HOST_CHANNEL_H

#include "host/message.h"
#include "host/socket.h"

struct srdma_channel;

enum { SRDMA_CHANNEL_TIMEOUT_MS = 10000 };

/*
 * Connects to the agent at the path and sends the first message, with the
 * descriptors *fds if fds is not NULL. Errors of srdma_socket_connect() and of
 * srdma_channel_send(); -ENXIO: the path is empty.
 */
int srdma_channel_open(struct srdma_channel **out, const char *path,
		       const struct srdma_message *first,
		       const struct srdma_socket_fds *fds);

/*
 * Sends a finished message. -ECONNRESET: the agent ended; -ETIMEDOUT: it did
 * not read until the deadline. If a part of the message was sent, the channel
 * is broken after -ETIMEDOUT: further calls return -ECONNRESET.
 */
int srdma_channel_send(struct srdma_channel *c, const struct srdma_message *w,
		       const struct srdma_socket_fds *fds, int64_t deadline);

/*
 * Waits for the next event. deadline: of srdma_socket_deadline(); it also ends
 * the wait for an event whose bytes keep arriving. 0;
 * -ETIMEDOUT and -EINTR, without an error text: the next call continues with
 * the bytes read so far; -ECONNRESET: the agent ended; -EPROTO: no event.
 */
int srdma_channel_next(struct srdma_channel *c, struct srdma_agent_event *e,
		       int64_t deadline);

/* Readable when an event waits, or at the end. */
int srdma_channel_fd(const struct srdma_channel *c);

/* Ends what the channel stands for, waits at most 5 s until the agent has ended
 * it too, and frees the channel. NULL is allowed. */
void srdma_channel_close(struct srdma_channel *c);

/* -EPROTO, with the text of an illegal message. */
int srdma_channel_illegal(void);

/* The agent's `error` as -errno (connection.h), with its text as error text. */
int srdma_channel_error(const struct srdma_agent_event *e);

#endif
