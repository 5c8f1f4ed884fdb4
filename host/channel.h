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

/* The agent of a device. */
struct srdma_agent_place {
	char path[SRDMA_SOCKET_PATH]; /* "": none is named */
	uid_t user; /* trusted besides this user and root; 0: none */
};

/*
 * Connects to the agent and sends the first message, with the descriptors *fds
 * if fds is not NULL. timeout_ms limits the connect and the sending; 0: it does
 * not wait. Errors of srdma_socket_connect() and of
 * srdma_channel_send(); -ENXIO: no agent is named.
 */
int srdma_channel_open(struct srdma_channel **out,
		       const struct srdma_agent_place *place,
		       const struct srdma_message *first,
		       const struct srdma_socket_fds *fds, int timeout_ms);

/*
 * Sends a finished message. -ECONNRESET: the agent ended; -ETIMEDOUT: it did
 * not read until the deadline; another -errno of send(), such as -ENOBUFS. If a
 * part of the message was sent to an agent that lives, the channel is broken:
 * further calls return -ECONNRESET.
 */
int srdma_channel_send(struct srdma_channel *c, const struct srdma_message *w,
		       const struct srdma_socket_fds *fds, int64_t deadline);

/*
 * Waits for the next event. deadline: of srdma_socket_deadline(); it also ends
 * the wait for an event whose bytes keep arriving. 0;
 * -ETIMEDOUT and -EINTR, without an error text: the next call continues with
 * the bytes read so far; -ECONNRESET: the agent ended; -EPROTO: no event;
 * another -errno of recv().
 */
int srdma_channel_next(struct srdma_channel *c, struct srdma_agent_event *e,
		       int64_t deadline);

/* The file descriptor that came with the events so far, which the caller closes,
 * or -1. A later descriptor replaces one that was not taken. */
int srdma_channel_take_fd(struct srdma_channel *c);

/* Readable when an event waits, or at the end. */
int srdma_channel_fd(const struct srdma_channel *c);

/* 1 after a call failed because the agent had closed its end. */
int srdma_channel_ended(const struct srdma_channel *c);

/* Ends what the channel stands for, waits at most 5 s until the agent has ended
 * it too, and frees the channel. 1: the agent has ended it; 0. NULL is allowed. */
int srdma_channel_close(struct srdma_channel *c);
/* The same without waiting for the agent. */
void srdma_channel_drop(struct srdma_channel *c);

/* -EPROTO, with the text of an illegal message. */
int srdma_channel_illegal(void);

/* The agent's `error` as -errno (connection.h), with its text as error text. */
int srdma_channel_error(const struct srdma_agent_event *e);

#endif
