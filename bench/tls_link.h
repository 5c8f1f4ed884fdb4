/*
 * TLS 1.3 over loopback TCP, by OpenSSL, for the programs that srdma is
 * compared with: both ends have a certificate of one CA and verify the
 * other's. Whatever fails ends the program with a word.
 */
#ifndef TLS_LINK_H
#define TLS_LINK_H

#include <stdint.h>
#include <sys/types.h>

#include <openssl/ssl.h>

_Noreturn void tls_fail(const char *what);

/* By ca.pem, and NAME.pem and NAME.key, of a folder. */
SSL_CTX *tls_context(const char *folder, const char *name, int server);

/* A listening socket of 127.0.0.1; *port is where. */
int tls_listen(uint16_t *port);
/* A connected socket, without delay. */
int tls_dial(uint16_t port);
int tls_accept(int listener);

/* The handshake on it; blocking. */
SSL *tls_start(SSL_CTX *ctx, int fd, int server);
/* From now on calls return at once. */
void tls_unblock(SSL *ssl);

/*
 * All len bytes; on an unblocked one by calling again and again. 1; read: 0
 * if the peer has ended.
 */
int tls_read(SSL *ssl, void *data, int len);
int tls_write(SSL *ssl, const void *data, int len);
/* Tell the peer that nothing more will be written, on either kind. */
void tls_end(SSL *ssl);

/* ns of CPU time that a process and its threads have taken. */
uint64_t tls_cpu_of(pid_t pid);

/* To be run on one core; -1: on any. */
void tls_pin(int core);

#endif
