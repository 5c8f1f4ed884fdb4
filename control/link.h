/*
 * One control link after its TLS handshake (docs/control-link.md 2): frames,
 * heartbeats, and the streams to the worker.
 */
#ifndef CONTROL_LINK_H
#define CONTROL_LINK_H

#include <openssl/ssl.h>

#include "control/loop.h"
#include "control/protocol.h"
#include "control/stream.h"

struct link;

struct link_params {
	struct loop *loop;
	const struct stream_worker *worker;
	/* The peer's HELLO came. */
	void (*greeted)(const struct protocol *p);
};

/* Takes the TLS connection, also after an error. 0 or -errno. *p must remain. */
int link_create(struct link **out, const struct link_params *p, SSL *ssl);
/* Closes the link and all its streams at once. */
void link_destroy(struct link *l);

/* Ends the link, and tells the peer why. It is closed within 1 s. */
void link_refuse(struct link *l, const struct reason *r);
/* Ends the link without a message to the peer. */
void link_drop(struct link *l, const char *code, const char *text);

/* Heartbeats and limits of time. Returns the time of the next call, at most. */
uint64_t link_check(struct link *l, uint64_t now);

/* Why the link ended, or NULL. */
const struct reason *link_over(const struct link *l);
/* 1: nothing is under way any more, link_destroy() may be called. */
int link_is_closed(const struct link *l);

/* Calls of its streams ---------------------------------------------------- */

struct loop *link_loop(const struct link *l);
const struct stream_worker *link_worker(const struct link *l);

/* 1: much waits for TCP. No stream reads the worker until stream_resume(). */
int link_is_crowded(const struct link *l);

/* Sends a message of the worker. */
void link_data(struct link *l, uint32_t number, const uint8_t *data,
	       size_t len);

/* Destroys the stream, and sends END unless the peer did. r: NULL without a
 * reason. */
void link_end(struct link *l, struct stream *s, const struct reason *r);
/* Destroys a stream that the peer ended. */
void link_forget(struct link *l, struct stream *s);

#endif
