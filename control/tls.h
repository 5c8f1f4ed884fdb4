/* A TLS connection over a non-blocking TCP socket. */
#ifndef CONTROL_TLS_H
#define CONTROL_TLS_H

#include <stddef.h>
#include <stdint.h>

#include <openssl/ssl.h>

#include "base/time.h"
#include "control/queue.h"

/* Results below 0. */
enum tls_result {
	TLS_WAIT = -1,	 /* for the socket */
	TLS_CLOSED = -2, /* the peer ended the connection */
	TLS_FAILED = -3, /* the error is in OpenSSL's queue */
};

/* 1: the handshake is complete; or enum tls_result. */
int tls_accept(SSL *ssl);

/* Decrypts at most len bytes, which hold a whole record if len is 16,384 or more.
 * Returns how many, or enum tls_result. */
int tls_read(SSL *ssl, uint8_t *out, size_t len);

/* Sends what waits. 0 if nothing waits any more, or enum tls_result. */
int tls_flush(SSL *ssl, struct queue *q);

#define TLS_END_MAX SRDMA_SECOND /* for the end of a connection */

/*
 * Ends a connection: sends what waits, then close_notify, then drops what the peer
 * sends until it has closed the connection: an early close() would reset it, and
 * the peer would lose what it has not read. *said, 0 before the first call, tells
 * how far it is. Returns the epoll events for the next call, or 0: the caller
 * closes the connection. It also does so TLS_END_MAX after the first call.
 */
uint32_t tls_end(SSL *ssl, struct queue *q, int *said);

#endif
