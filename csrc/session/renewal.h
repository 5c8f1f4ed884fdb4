/*
 * The renewal key of a session. It is derived from both secrets of the first
 * epoch and never changes. With it an end proves on another TLS connection that
 * it is the end of this session (docs/protocol.md 8.6). Private to csrc; other
 * code uses session.h.
 */
#ifndef SRDMA_RENEWAL_H
#define SRDMA_RENEWAL_H

#include "session/session.h"

/* Derives the renewal key of a new session, whose epochs are at their first
 * secrets. Level none has no renewal key: 0. 0, -ENOMEM, -EIO. */
int srdma_renewal_create(struct srdma_session *s);

#endif
