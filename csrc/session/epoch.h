/*
 * The keys of one direction, by epoch: which are live, what they come from, and
 * how the next ones are made (docs/protocol.md 3.2, 3.4, 3.5). When an epoch
 * begins, others decide (rekey.c, open.c). Inside csrc only.
 */
#ifndef SRDMA_EPOCH_H
#define SRDMA_EPOCH_H

#include <stdint.h>

#include "session/keycache.h"
#include "session/pdkeys.h"
#include "session/session.h"
#include "crypto/suite.h"

/* Places of keys. Who seals has NOW, and what comes behind it only while it
 * steps; FRESH has a secret as soon as it was given. */
enum srdma_epoch_at {
	SRDMA_EPOCH_NOW,
	SRDMA_EPOCH_BEFORE, /* who opens: of the epoch before, while it lives */
	SRDMA_EPOCH_CHAIN,  /* of the next one, by the chain */
	SRDMA_EPOCH_FRESH,  /* of the next one, by a new secret */
	SRDMA_EPOCHS,
};

/* A traffic key, which is derived when a packet needs it first. */
struct srdma_epoch_key {
	union {
		struct srdma_keyed own;	    /* ctx NULL: not derived yet */
		struct srdma_keyslot *slot; /* mode with PD: what the cache
					       keeps of it now, or NULL */
	};
	uint8_t live;			  /* there is such a key */
	uint32_t serial;		  /* S is derived: of its K_PD, held */
	uint8_t secret[SRDMA_MAX_SECRET]; /* S is stored; BEFORE needs none */
};

struct srdma_epochs {
	const struct srdma_suite *suite; /* NULL: level none */
	const struct srdma_suite_verbs *verbs;
	struct srdma_provider *provider;
	struct srdma_pdkeys *pd;      /* NULL: a mode without PD */
	struct srdma_keycache *cache; /* NULL likewise */
	uint8_t use;		      /* enum srdma_suite_use */
	uint8_t derived;	      /* S comes from K_PD each time */
	uint8_t direction, level, tag_len;
	uint32_t number; /* the epoch */
	struct srdma_pdkeys_flow flow;
	struct srdma_epoch_key key[SRDMA_EPOCHS];
};

/* Bytes of a direction's secret (3.2). */
static inline uint8_t srdma_epoch_secret_len(const struct srdma_suite *s)
{
	return s->key_len <= 16 ? 16 : 32;
}

/* Epoch of the key in a place. */
static inline uint32_t srdma_epoch_number(const struct srdma_epochs *e,
					  enum srdma_epoch_at at)
{
	if (at == SRDMA_EPOCH_NOW)
		return e->number;
	return at == SRDMA_EPOCH_BEFORE ? e->number - 1 : e->number + 1;
}

/* Epoch 0. suite NULL: level none. 0, -ENOMEM, -EIO; the caller destroys e in
 * any case. */
int srdma_epoch_create(struct srdma_epochs *e, const struct srdma_suite *suite,
		       const struct srdma_session_params *params,
		       enum srdma_suite_use use);
/* Forget all keys. */
void srdma_epoch_destroy(struct srdma_epochs *e);

/*
 * The key in a place, which lives or is CHAIN; it stays until the packet is
 * done, which went as r says. 0, -ENOMEM, -EIO. done() returns r.
 */
int srdma_epoch_key(struct srdma_epochs *e, enum srdma_epoch_at at,
		    const struct srdma_keyed **keyed);
int srdma_epoch_done(struct srdma_epochs *e, enum srdma_epoch_at at, int r);

/* The key in NOW is about to be needed: ask for it, if it is there. */
void srdma_epoch_ahead(const struct srdma_epochs *e);

/*
 * The next epoch begins with the key in FRESH or CHAIN, which was used. Who
 * opens keeps the former one as BEFORE. A new secret that was not taken goes on
 * waiting, for the epoch behind.
 */
void srdma_epoch_begin(struct srdma_epochs *e, enum srdma_epoch_at at);

/* Who seals: begin the next one, by the new secret if one waits. 0, -ENOMEM,
 * -EIO: all is as it was. */
int srdma_epoch_step(struct srdma_epochs *e);

/* The key in a place is not needed any more. */
void srdma_epoch_forget(struct srdma_epochs *e, enum srdma_epoch_at at);

/* Give the new secret of the next epoch; in a direction whose S is derived
 * instead the serial of its K_PD. -EBUSY: one waits already. */
int srdma_epoch_give(struct srdma_epochs *e, const uint8_t *secret,
		     uint32_t serial);

/* Bytes of keys and secrets, and of IVs, that are stored here. */
uint32_t srdma_epoch_key_bytes(const struct srdma_epochs *e);
uint32_t srdma_epoch_iv_bytes(const struct srdma_epochs *e);

#endif
