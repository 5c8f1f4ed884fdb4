/*
 * Keys of one direction by epoch: which keys are live, what they are derived
 * from, how the next ones are made (docs/protocol.md 3.2, 3.4, 3.5). rekey.c
 * and open.c decide when an epoch begins. Private to csrc.
 */
#ifndef SRDMA_EPOCH_H
#define SRDMA_EPOCH_H

#include <stdint.h>

#include "session/keycache.h"
#include "session/pdkeys.h"
#include "session/session.h"
#include "crypto/suite.h"

/* Key slots. A sender holds the current key, and the next key only while it
 * switches. A slot FRESH is live as soon as the new secret is given. */
enum srdma_epoch_at {
	SRDMA_EPOCH_NOW,
	SRDMA_EPOCH_BEFORE, /* receiver: previous epoch while it is live */
	SRDMA_EPOCH_CHAIN,  /* next epoch by the key chain */
	SRDMA_EPOCH_FRESH,  /* next epoch by a new secret */
	SRDMA_EPOCHS,
};

/* A traffic key. It is derived from S when a packet first needs it. */
struct srdma_epoch_key {
	union {
		struct srdma_keyed own; /* ctx NULL: not derived yet */
		/* mode with PD: its entry in the key cache, or NULL */
		struct srdma_keyslot *slot;
	};
	uint8_t live;	 /* 1: the epoch may be used */
	uint32_t serial; /* serial of the K_PD that S is derived from, held */
	uint8_t secret[SRDMA_MAX_SECRET]; /* S if stored; unused for BEFORE */
};

struct srdma_epochs {
	const struct srdma_suite *suite; /* NULL: level none */
	const struct srdma_suite_verbs *verbs;
	struct srdma_provider *provider;
	struct srdma_pdkeys *pd;      /* NULL: no PD, or an observer */
	struct srdma_keycache *cache; /* NULL if pd is NULL */
	uint8_t use;		      /* enum srdma_suite_use */
	uint8_t derived;	      /* 1: S is derived from K_PD on demand */
	uint8_t constant; /* 1: a mode with PD, whose chain keeps S (3.5) */
	uint8_t direction, level, tag_len;
	uint32_t number; /* current epoch */
	struct srdma_epoch_key key[SRDMA_EPOCHS];
	struct srdma_pdkeys_flow flow;
};

/* Length of a direction's secret S in bytes (3.2). */
static inline uint8_t srdma_epoch_secret_len(const struct srdma_suite *s)
{
	return s->key_len <= 16 ? 16 : 32;
}

/* Epoch number of a slot. */
static inline uint32_t srdma_epoch_number(const struct srdma_epochs *e,
					  enum srdma_epoch_at at)
{
	if (at == SRDMA_EPOCH_NOW)
		return e->number;
	return at == SRDMA_EPOCH_BEFORE ? e->number - 1 : e->number + 1;
}

/* Starts epoch 0. suite NULL: level none. 0, -ENOMEM, -EIO. The caller calls
 * srdma_epoch_destroy() after a failure, too. */
int srdma_epoch_create(struct srdma_epochs *e, const struct srdma_suite *suite,
		       const struct srdma_session_params *params,
		       enum srdma_suite_use use);
/* Wipes all keys. */
void srdma_epoch_destroy(struct srdma_epochs *e);

/*
 * srdma_epoch_key() returns in *keyed the key of slot `at`, which is live or
 * CHAIN, and derives it first if necessary. 0, -ENOMEM, -EIO.
 * The key stays valid until srdma_epoch_done(). r is the result of the packet's
 * seal or open; srdma_epoch_done() returns it.
 */
int srdma_epoch_key(struct srdma_epochs *e, enum srdma_epoch_at at,
		    const struct srdma_keyed **keyed);
int srdma_epoch_done(struct srdma_epochs *e, enum srdma_epoch_at at, int r);

/* Copies S of the current epoch, or derives it from K_PD, into out, whose first
 * srdma_epoch_secret_len() bytes it fills. 0, -ENOMEM, -EIO; on failure out is
 * wiped or unchanged. The caller wipes it. */
int srdma_epoch_secret(const struct srdma_epochs *e,
		       uint8_t out[SRDMA_MAX_SECRET]);

/* Prefetches the current key if it was derived already. */
void srdma_epoch_ahead(const struct srdma_epochs *e);

/*
 * Begins the next epoch with the key in FRESH or CHAIN, which has been derived.
 * A receiver keeps the former key as BEFORE. If the epoch begins by the chain,
 * a new secret in FRESH stays there for the epoch after it.
 */
void srdma_epoch_begin(struct srdma_epochs *e, enum srdma_epoch_at at);

/* Sender: begins the next epoch, with the new secret if one was given, else by
 * the chain. 0, -ENOMEM, -EIO; on failure nothing changes. */
int srdma_epoch_step(struct srdma_epochs *e);

/* Wipes the key and secret of a slot. */
void srdma_epoch_forget(struct srdma_epochs *e, enum srdma_epoch_at at);

/* Gives the new secret of the next epoch; if S is derived from K_PD, the serial
 * of the K_PD instead. 0, or -EBUSY if an unused new secret exists already. */
int srdma_epoch_give(struct srdma_epochs *e, const uint8_t *secret,
		     uint32_t serial);

/* Bytes stored in e: keys and secrets; IVs. */
uint32_t srdma_epoch_key_bytes(const struct srdma_epochs *e);
uint32_t srdma_epoch_iv_bytes(const struct srdma_epochs *e);

#endif
