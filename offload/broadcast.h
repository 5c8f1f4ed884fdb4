/*
 * What the threads of a worker tell each other: one word to all, by an
 * eventfd for each. Nothing of it lies on the path of packets.
 */
#ifndef OFFLOAD_BROADCAST_H
#define OFFLOAD_BROADCAST_H

#include <stdint.h>

enum { BROADCAST_PROCESSES = 64 }; /* of a worker, at most */

enum broadcast_message {
	BROADCAST_REPORT = 1, /* print your statistics */
	BROADCAST_STOP = 2,	 /* all end */
};

struct broadcast {
	unsigned threads;
	int fd[BROADCAST_PROCESSES];
};

/* 0, or -errno: then there is nothing to close. */
int broadcast_open(struct broadcast *w, unsigned threads);
void broadcast_close(struct broadcast *w);

/* Readable when broadcast_take() has something. */
int broadcast_fd(const struct broadcast *w, unsigned thread);

/* Tell all threads, the own one too. Any thread may, at any time. */
void broadcast_tell(const struct broadcast *w, enum broadcast_message word);
/* The words that the thread was told since the last call, or'ed. */
unsigned broadcast_take(const struct broadcast *w, unsigned thread);

#endif
