/* A TLS connection over a non-blocking TCP socket. */
#ifndef CONTROL_TLS_H
#define CONTROL_TLS_H

#include <stddef.h>
#include <stdint.h>

#include <openssl/ssl.h>

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

/* Sends close_notify and ends this direction of the connection. The caller then
 * calls tls_discard() until the peer has closed it: an early close() would reset
 * the connection, and the peer would lose what it has not read. */
void tls_end(SSL *ssl);

/* Drops what came. 1 once the peer has closed the connection, else 0. */
int tls_discard(int fd);

#endif
