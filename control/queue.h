/*
 * Bytes or messages that wait for a socket. They may contain secrets, so that
 * they are wiped when they leave the queue.
 */
#ifndef CONTROL_QUEUE_H
#define CONTROL_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct chunk {
	struct chunk *next;
	size_t len, done; /* done: bytes that the socket has taken */
	uint8_t data[];
};

/* All zero: empty. */
struct queue {
	struct chunk *first, *last;
	size_t bytes; /* of memory, with the chunks' own */
};

/* Appends len bytes, which the caller writes. NULL without memory. */
uint8_t *queue_add(struct queue *q, size_t len);

/* The first n bytes of the first chunk, at most its rest, left the queue. */
void queue_take(struct queue *q, size_t n);

void queue_clear(struct queue *q);

#endif
