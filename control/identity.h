/* The identity that a certificate names (docs/protocol.md 8). */
#ifndef CONTROL_IDENTITY_H
#define CONTROL_IDENTITY_H

#include <stddef.h>

#include <openssl/x509.h>

#include "control/reason.h"

enum { IDENTITY_MAX = 255 }; /* bytes */

/* 1 if a URI can be an identity: scheme and authority, printable ASCII, at most
 * IDENTITY_MAX bytes. */
int identity_is_valid(const char *uri, size_t len);

/*
 * The only subject alternative name of type URI. 0, or -EPROTO: *r tells what is
 * wrong with the certificate.
 */
int identity_of(char out[IDENTITY_MAX + 1], X509 *cert, struct reason *r);

#endif
