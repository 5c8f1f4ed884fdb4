/*
 * The control identity of this NIC: files of certificate, key, CAs and revocation
 * list, and the rules of TLS (docs/control-link.md 2, docs/protocol.md 8).
 */
#ifndef CONTROL_CREDENTIALS_H
#define CONTROL_CREDENTIALS_H

#include <stdint.h>

#include <openssl/ssl.h>

#include "control/identity.h"
#include "control/reason.h"
#include "control/settings.h"

enum { CREDENTIALS_FILES = 4 };

/* ALPN of the control link, after its length. */
#define CREDENTIALS_ALPN "\x0fsrdma-control/1"

struct credentials {
	const struct settings_files *files;
	SSL_CTX *ctx;
	int64_t begin; /* notBefore of the certificate, seconds since 1970 */
	char identity[IDENTITY_MAX + 1];
	int64_t written[CREDENTIALS_FILES]; /* ns since 1970; 0: absent */
};

/* Reads the files, which *files names until credentials_close(). 0, or -EPROTO: *r
 * tells why they cannot be used. */
int credentials_open(struct credentials *c, const struct settings_files *files,
		     struct reason *r);
void credentials_close(struct credentials *c);

/*
 * Reads the files again if one was replaced. 0, also if nothing changed. -EPROTO:
 * *r tells why the new files cannot be used; the former remain in use.
 */
int credentials_refresh(struct credentials *c, struct reason *r);

/*
 * 0 if certificates can be checked at this time, in seconds since 1970; else
 * -EPROTO: the clock was never set.
 */
int credentials_check_clock(const struct credentials *c, int64_t now,
			    struct reason *r);

/*
 * Checks a complete handshake: ALPN, and the peer's certificate, whose identity
 * must be `peer`. 0, or -EPROTO with the reason for the peer.
 */
int credentials_check_peer(const SSL *ssl, const char *peer, struct reason *r);

/* The reason why a handshake failed, from OpenSSL. */
void credentials_failure(const SSL *ssl, struct reason *r);

#endif
