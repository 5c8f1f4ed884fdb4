/*
 * Broadcast to the worker processes of a worker: one of two messages, through
 * one eventfd per process. Not used on the data path.
 */
#ifndef OFFLOAD_BROADCAST_H
#define OFFLOAD_BROADCAST_H

#include <stdint.h>

#include "relay/ctl.h"

enum broadcast_message {
	BROADCAST_REPORT = 1, /* print statistics */
	BROADCAST_STOP = 2,   /* all end */
};

struct broadcast {
	unsigned workers;
	int fd[SRDMA_CTL_PROCESSES];
};

/* Returns 0, or -errno; nothing needs to be closed then. */
int broadcast_open(struct broadcast *w, unsigned workers);
void broadcast_close(struct broadcast *w);

/*
 * The descriptor of a worker process, readable when broadcast_take() returns a
 * word.
 */
int broadcast_fd(const struct broadcast *w, unsigned index);

/*
 * Broadcast a word to all worker processes, including the caller. Any process
 * may call it at any time.
 */
void broadcast_tell(const struct broadcast *w, enum broadcast_message word);
/* The words received by a worker process since the last call, or'ed. */
unsigned broadcast_take(const struct broadcast *w, unsigned index);

#endif
