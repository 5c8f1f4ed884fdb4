#include "control/tls.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <openssl/err.h>

static int result(SSL *ssl, int rc)
{
	switch (SSL_get_error(ssl, rc)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return TLS_WAIT;
	case SSL_ERROR_ZERO_RETURN:
	case SSL_ERROR_SYSCALL:
		return TLS_CLOSED;
	}
	if (ERR_GET_REASON(ERR_peek_error()) ==
	    SSL_R_UNEXPECTED_EOF_WHILE_READING)
		return TLS_CLOSED;
	return TLS_FAILED;
}

int tls_accept(SSL *ssl)
{
	int rc;

	ERR_clear_error();
	rc = SSL_accept(ssl);
	return rc == 1 ? 1 : result(ssl, rc);
}

int tls_read(SSL *ssl, uint8_t *out, size_t len)
{
	int n;

	ERR_clear_error();
	n = SSL_read(ssl, out, len < INT_MAX ? (int)len : INT_MAX);
	return n > 0 ? n : result(ssl, n);
}

int tls_flush(SSL *ssl, struct queue *q)
{
	while (q->first) {
		const struct chunk *c = q->first;
		int n;

		ERR_clear_error();
		n = SSL_write(ssl, c->data + c->done, (int)(c->len - c->done));
		if (n <= 0)
			return result(ssl, n);
		queue_take(q, (size_t)n);
	}
	return 0;
}

/* 1 if the peer has closed the connection. */
static int discard(int fd)
{
	char dropped[16384];
	ssize_t n;

	n = recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

uint32_t tls_end(SSL *ssl, struct queue *q, int *said)
{
	if (*said)
		return discard(SSL_get_fd(ssl)) ? 0 : EPOLLIN;
	switch (tls_flush(ssl, q)) {
	case 0:
		break;
	case TLS_WAIT:
		return EPOLLOUT;
	default:
		return 0;
	}
	ERR_clear_error();
	SSL_shutdown(ssl);
	shutdown(SSL_get_fd(ssl), SHUT_WR);
	*said = 1;
	return EPOLLIN;
}
