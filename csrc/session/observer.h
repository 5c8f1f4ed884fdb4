/*
 * An observer of one direction of a session: it knows the secret S and verifies
 * the tags of captured packets (docs/verify-wire.md), without being an end. It
 * accepts packets in any order and tells repeated ones; it never seals. One
 * thread at a time.
 *
 * Numbers in comments are sections of docs/protocol.md.
 */
#ifndef SRDMA_OBSERVER_H
#define SRDMA_OBSERVER_H

#include <stddef.h>
#include <stdint.h>

#include "session/pdkeys.h"
#include "session/session.h"
#include "wire/wire.h"

struct srdma_observer;

struct srdma_observer_params {
	uint8_t suite;		     /* id of 3.3 */
	uint8_t level;		     /* enum srdma_level, not NONE */
	uint8_t mode;		     /* enum srdma_mode */
	uint8_t tag_len, secret_len; /* bytes */
	uint8_t direction;	     /* 0: packets of the client, 1: server */
	uint32_t epoch;		     /* the epoch that secret belongs to */
	uint64_t pn;		     /* first packet number that is expected */
	struct srdma_pdkeys_flow flow;
	uint8_t secret[SRDMA_MAX_SECRET];
};

/* Creates an observer. The caller wipes *params. Returns 0, -EINVAL (a field is
 * out of range), -ENOTSUP (suite or level), -ENOMEM, -EIO (the provider). */
int srdma_observer_create(struct srdma_observer **out,
			  const struct srdma_observer_params *params);
/* Wipes the keys and frees the observer. NULL is allowed. */
void srdma_observer_destroy(struct srdma_observer *o);

/*
 * Verifies one packet in the epoch before, the current one or the next one, and
 * follows its numbers and its epoch (3.5, 4.1, 4.2). Sets p->pn and the 62-bit
 * request id. plain: SRDMA_MAX_PAYLOAD bytes, which hold the payload
 * afterwards, or nothing of it. Returns 0; 1: the tag is right and the packet
 * was seen before, or is older than the 1,024 newest numbers; or
 * -(enum srdma_refusal), and nothing changes.
 */
int srdma_observer_open(struct srdma_observer *o, struct srdma_packet *p,
			const uint8_t *data, size_t len, uint8_t *plain);

/* Begins the next epoch by the chain of 3.5. 0, -ENOMEM, -EIO; -EINVAL: the last
 * epoch has no successor. */
int srdma_observer_step(struct srdma_observer *o);

/* Gives the new secret of a later epoch (3.5, New secrets). 0, or -EBUSY: the
 * one before was not used yet. */
int srdma_observer_renew(struct srdma_observer *o, const uint8_t *secret);

/* Sets the packet number and the request id next to which numbers are sought, for
 * an observer that begins in the middle of a session. */
void srdma_observer_seek(struct srdma_observer *o, uint64_t pn,
			 uint64_t request_id);

/* One more than the highest request id that was verified in a request. */
uint64_t srdma_observer_requests(const struct srdma_observer *o);

/* Tells the requests of the other direction, which responses and acks name
 * (4.2): srdma_observer_requests() of its observer. */
void srdma_observer_hear(struct srdma_observer *o, uint64_t requests);

/* The current epoch. */
uint32_t srdma_observer_epoch(const struct srdma_observer *o);

#endif
