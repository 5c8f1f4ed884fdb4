/*
 * TLS 1.3 over loopback TCP by OpenSSL, for the programs that srdma is compared
 * with. Both ends have a certificate of one CA and verify that of the peer.
 * Failures exit the program with a message.
 */
#ifndef TLS_LINK_H
#define TLS_LINK_H

#include <stdint.h>
#include <sys/types.h>

#include <openssl/ssl.h>

_Noreturn void tls_fail(const char *what);

/* Uses ca.pem, NAME.pem and NAME.key of a directory. */
SSL_CTX *tls_context(const char *folder, const char *name, int server);

/* A listening socket on 127.0.0.1; *port receives its port. */
int tls_listen(uint16_t *port);
/* A connected socket with TCP_NODELAY. */
int tls_dial(uint16_t port);
int tls_accept(int listener);

/* Performs the handshake on fd; blocking. */
SSL *tls_start(SSL_CTX *ctx, int fd, int server);
/* Make the socket non-blocking. */
void tls_unblock(SSL *ssl);

/*
 * Read or write exactly len bytes; a non-blocking socket is polled. Return 1;
 * tls_read() returns 0 if the peer has ended.
 */
int tls_read(SSL *ssl, void *data, int len);
int tls_write(SSL *ssl, const void *data, int len);
/* Send close_notify, on a blocking or non-blocking socket. */
void tls_end(SSL *ssl);

/* CPU time of a process including its threads, ns. */
uint64_t tls_cpu_of(pid_t pid);

/* Pin this process to a core; -1: any core. */
void tls_pin(int core);

#endif
