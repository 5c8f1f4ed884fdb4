#include "tls_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>

#include "clock.h"

enum { MAX_PATH = 4096 };

_Noreturn void tls_fail(const char *what)
{
	fprintf(stderr, "tls: %s failed\n", what);
	ERR_print_errors_fp(stderr);
	exit(1);
}

SSL_CTX *tls_context(const char *folder, const char *name, int server)
{
	char cert[MAX_PATH], key[MAX_PATH], ca[MAX_PATH];
	SSL_CTX *ctx =
		SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

	snprintf(cert, sizeof(cert), "%s/%s.pem", folder, name);
	snprintf(key, sizeof(key), "%s/%s.key", folder, name);
	snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
	if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256"))
		tls_fail("TLS 1.3 with AES-128-GCM");
	if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
		tls_fail("reading certificates");
	SSL_CTX_set_verify(
		ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	/*
	 * Session tickets from the server would have to be read during the
	 * measurement.
	 */
	SSL_CTX_set_num_tickets(ctx, 0);
	return ctx;
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

int tls_listen(uint16_t *port)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&at, &len))
		tls_fail("listen");
	*port = ntohs(at.sin_port);
	return fd;
}

static void without_delay(int fd)
{
	const int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		tls_fail("TCP_NODELAY");
}

int tls_dial(uint16_t port)
{
	struct sockaddr_in at = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)))
		tls_fail("connect");
	without_delay(fd);
	return fd;
}

int tls_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		tls_fail("accept");
	without_delay(fd);
	return fd;
}

SSL *tls_start(SSL_CTX *ctx, int fd, int server)
{
	SSL *ssl = SSL_new(ctx);

	if (!ssl || !SSL_set_fd(ssl, fd) ||
	    (server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1)
		tls_fail("handshake");
	return ssl;
}

void tls_unblock(SSL *ssl)
{
	const int fd = SSL_get_fd(ssl);

	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
		tls_fail("O_NONBLOCK");
}

/* Returns 1 to call again, 0 if the peer has ended. */
static int again(SSL *ssl, int result)
{
	switch (SSL_get_error(ssl, result)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return 1;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		tls_fail("read or write");
	}
}

int tls_read(SSL *ssl, void *data, int len)
{
	for (int done = 0; done < len;) {
		int n = SSL_read(ssl, (char *)data + done, len - done);

		if (n > 0)
			done += n;
		else if (!again(ssl, n))
			return 0;
	}
	return 1;
}

int tls_write(SSL *ssl, const void *data, int len)
{
	int n;

	do
		n = SSL_write(ssl, data, len);
	while (n <= 0 && again(ssl, n));
	return n == len;
}

void tls_end(SSL *ssl)
{
	int n;

	do
		n = SSL_shutdown(ssl);
	while (n < 0 && again(ssl, n));
}

uint64_t tls_cpu_of(pid_t pid)
{
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock))
		tls_fail("the CPU clock of a process");
	return clock_ns(clock);
}

void tls_pin(int core)
{
	cpu_set_t set;

	if (core < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		tls_fail("pinning to a core");
}
