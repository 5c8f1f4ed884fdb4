/*
 * A stream to the worker (docs/control-link.md 3): one connection to a control
 * socket, whose messages are DATA of the link. The stream owns the connection.
 */
#ifndef CONTROL_STREAM_H
#define CONTROL_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "control/loop.h"

struct link;
struct stream;

/* Where streams connect. */
struct stream_worker {
	const char *control; /* path of the socket of worker process 0 */
	uint32_t uid;	     /* user of the worker, besides this one and root */
};

/* 1 if the path, which has no NUL, is that of a process of the worker. */
int stream_is_worker(const struct stream_worker *w, const char *path,
		     size_t len);

/*
 * Connects to a path of at most 107 bytes. 0 or -errno, with the text of
 * srdma_error_text(). A stream that ends on its own calls link_end().
 */
int stream_create(struct stream **out, struct link *link, uint32_t number,
		  const char *path);
/* Closes the connection at once. */
void stream_destroy(struct stream *s);

/* A message for the worker. It may end the stream. */
void stream_data(struct stream *s, const uint8_t *data, size_t len);

/* The peer ended the stream. 1 if messages still wait for the worker: the stream
 * calls link_forget() when they are written, or 10 s later by stream_check(). */
int stream_finish(struct stream *s, uint64_t now);
int stream_is_finishing(const struct stream *s);
void stream_check(struct stream *s, uint64_t now);

/* The link takes bytes again: the worker is read. */
void stream_resume(struct stream *s);

uint32_t stream_number(const struct stream *s);

#endif
