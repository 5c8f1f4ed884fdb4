#include "session/epoch.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/cmac.h"
#include "crypto/kdf.h"
#include "crypto/provider.h"

enum {
	CONTEXT_CHAIN = SRDMA_GENERATION_LEN + 5,
	CONTEXT_TRAFFIC = CONTEXT_CHAIN + 3,
};

/* Writes generation | direction | epoch, the start of the contexts of 3.2 and
 * 3.5. */
static void lay_context(const struct srdma_epochs *e, uint32_t number,
			uint8_t context[CONTEXT_CHAIN])
{
	memcpy(context, e->flow.generation, SRDMA_GENERATION_LEN);
	context[SRDMA_GENERATION_LEN] = e->direction;
	srdma_store32(context + SRDMA_GENERATION_LEN + 1, number);
}

/* Derives key | iv of 3.2 from S (c->key_len bytes) and keys keyed->ctx with
 * it, which is created if it is NULL. */
static int derive(const struct srdma_epochs *e, struct srdma_cmac *c,
		  uint32_t number, const uint8_t *secret,
		  struct srdma_keyed *keyed)
{
	const struct srdma_suite *suite = e->suite;
	uint8_t out[SRDMA_SUITE_MAX_KEY + SRDMA_NONCE_LEN],
		context[CONTEXT_TRAFFIC];
	const struct srdma_kdf_info info = {
		.label = "traffic",
		.context = context,
		.context_len = sizeof(context),
	};
	const struct srdma_suite_key key = { suite, e->use, e->tag_len, out };
	int r;

	lay_context(e, number, context);
	context[CONTEXT_CHAIN] = suite->id;
	context[CONTEXT_CHAIN + 1] = e->level;
	context[CONTEXT_CHAIN + 2] = e->tag_len;
	r = srdma_kdf_with(c, out, (size_t)suite->key_len + suite->iv_len,
			   secret, &info);
	if (!r)
		r = keyed->ctx
			    ? e->verbs->again(keyed->ctx, &key)
			    : e->verbs->create(&keyed->ctx, e->provider, &key);
	if (!r)
		memcpy(keyed->iv, out + suite->key_len, suite->iv_len);
	srdma_wipe(out, sizeof(out));
	return r;
}

/* Derives S of the next epoch from the current S (3.5). */
static int ratchet(const struct srdma_epochs *e, uint8_t *secret)
{
	uint8_t context[CONTEXT_CHAIN];
	const struct srdma_kdf_info info = {
		.label = "next",
		.context = context,
		.context_len = sizeof(context),
	};
	const size_t len = srdma_epoch_secret_len(e->suite);

	lay_context(e, e->number + 1, context);
	return srdma_kdf(secret, len, e->key[SRDMA_EPOCH_NOW].secret, len,
			 &info);
}

/* Makes slot CHAIN live. */
static int make_chain(struct srdma_epochs *e)
{
	const struct srdma_epoch_key *now = &e->key[SRDMA_EPOCH_NOW];
	struct srdma_epoch_key *next = &e->key[SRDMA_EPOCH_CHAIN];
	int r = 0;

	if (!e->constant)
		r = ratchet(e, next->secret);
	else if (e->derived)
		srdma_pdkeys_hold(e->pd, next->serial = now->serial);
	else
		memcpy(next->secret, now->secret, sizeof(next->secret));
	next->live = !r;
	return r;
}

/* Derives the key of a slot in a mode without PD. */
static int derive_own(struct srdma_epochs *e, enum srdma_epoch_at at)
{
	struct srdma_epoch_key *k = &e->key[at];
	struct srdma_cmac c;
	int r;

	if (k->own.ctx)
		return 0;
	r = srdma_cmac_create(&c, srdma_epoch_secret_len(e->suite),
			      e->provider);
	if (!r)
		r = derive(e, &c, srdma_epoch_number(e, at), k->secret,
			   &k->own);
	srdma_cmac_destroy(&c);
	return r;
}

/* Derives the key of a slot in a mode with PD into the cache entry. */
static int derive_slot(struct srdma_epochs *e, enum srdma_epoch_at at)
{
	struct srdma_epoch_key *k = &e->key[at];
	struct srdma_cmac *c =
		srdma_keycache_prf(e->cache, srdma_epoch_secret_len(e->suite));
	uint8_t derived[SRDMA_MAX_SECRET];
	int r = 0;

	if (e->derived)
		r = srdma_pdkeys_secret_with(c, e->pd, k->serial, derived,
					     &e->flow);
	if (!r)
		r = derive(e, c, srdma_epoch_number(e, at),
			   e->derived ? derived : k->secret, &k->slot->keyed);
	srdma_wipe(derived, sizeof(derived));
	srdma_cmac_forget(c); /* c still holds S */
	return r;
}

int srdma_epoch_key(struct srdma_epochs *e, enum srdma_epoch_at at,
		    const struct srdma_keyed **keyed)
{
	struct srdma_epoch_key *k = &e->key[at];
	int r = 0;

	if (!k->live)
		r = make_chain(e);
	if (r)
		return r;
	if (!e->pd) {
		*keyed = &k->own;
		return derive_own(e, at);
	}
	if (!srdma_keycache_take(e->cache, &k->slot, e->suite, e->verbs))
		r = derive_slot(e, at);
	if (r)
		srdma_keycache_drop(e->cache, &k->slot);
	else
		*keyed = &k->slot->keyed;
	return r;
}

int srdma_epoch_secret(const struct srdma_epochs *e,
		       uint8_t out[SRDMA_MAX_SECRET])
{
	const struct srdma_epoch_key *k = &e->key[SRDMA_EPOCH_NOW];
	const uint8_t len = srdma_epoch_secret_len(e->suite);
	struct srdma_cmac c;
	int r;

	if (!e->derived) {
		memcpy(out, k->secret, len);
		return 0;
	}
	r = srdma_cmac_create(&c, len, NULL);
	if (!r)
		r = srdma_pdkeys_secret_with(&c, e->pd, k->serial, out,
					     &e->flow);
	srdma_cmac_destroy(&c);
	return r;
}

/* A context whose provider failed is not used again. */
int srdma_epoch_done(struct srdma_epochs *e, enum srdma_epoch_at at, int r)
{
	if (!e->pd)
		return r;
	if (r && r != -EBADMSG)
		srdma_keycache_drop(e->cache, &e->key[at].slot);
	else
		srdma_keycache_release(e->cache, &e->key[at].slot);
	return r;
}

void srdma_epoch_ahead(const struct srdma_epochs *e)
{
	const struct srdma_epoch_key *k = &e->key[SRDMA_EPOCH_NOW];

	if (!e->pd && k->own.ctx && e->verbs->prefetch)
		e->verbs->prefetch(k->own.ctx);
}

/* Wipes the traffic key, not the secret that it was derived from. */
static void forget_derived(struct srdma_epochs *e, struct srdma_epoch_key *k)
{
	if (e->pd)
		srdma_keycache_drop(e->cache, &k->slot);
	else
		srdma_keyed_wipe(&k->own, e->verbs);
}

void srdma_epoch_forget(struct srdma_epochs *e, enum srdma_epoch_at at)
{
	struct srdma_epoch_key *k = &e->key[at];

	if (!k->live)
		return;
	forget_derived(e, k);
	if (e->derived)
		srdma_pdkeys_release(e->pd, k->serial);
	srdma_wipe(k, sizeof(*k));
}

static void move(struct srdma_epochs *e, enum srdma_epoch_at to,
		 enum srdma_epoch_at from)
{
	struct srdma_epoch_key *k = &e->key[to], *old = &e->key[from];

	*k = *old;
	if (e->pd)
		srdma_keycache_move(&k->slot, &old->slot);
	srdma_wipe(old, sizeof(*old));
}

void srdma_epoch_begin(struct srdma_epochs *e, enum srdma_epoch_at at)
{
	struct srdma_epoch_key *before = &e->key[SRDMA_EPOCH_BEFORE];

	srdma_epoch_forget(e, SRDMA_EPOCH_BEFORE);
	if (e->use == SRDMA_SUITE_OPEN) {
		move(e, SRDMA_EPOCH_BEFORE, SRDMA_EPOCH_NOW);
		srdma_wipe(before->secret, sizeof(before->secret));
	} else {
		srdma_epoch_forget(e, SRDMA_EPOCH_NOW);
	}
	move(e, SRDMA_EPOCH_NOW, at);
	if (at == SRDMA_EPOCH_FRESH)
		srdma_epoch_forget(e, SRDMA_EPOCH_CHAIN);
	else if (e->key[SRDMA_EPOCH_FRESH].live)
		forget_derived(e, &e->key[SRDMA_EPOCH_FRESH]);
	e->number++;
}

int srdma_epoch_step(struct srdma_epochs *e)
{
	const enum srdma_epoch_at at = e->key[SRDMA_EPOCH_FRESH].live
					       ? SRDMA_EPOCH_FRESH
					       : SRDMA_EPOCH_CHAIN;
	const struct srdma_keyed *keyed;
	int r = srdma_epoch_key(e, at, &keyed);

	if (r) {
		srdma_epoch_forget(e, SRDMA_EPOCH_CHAIN);
		return r;
	}
	srdma_epoch_done(e, at, 0);
	srdma_epoch_begin(e, at);
	return 0;
}

/* Stores the secret or K_PD serial of a slot and makes it live. */
static void give(struct srdma_epochs *e, enum srdma_epoch_at at,
		 const uint8_t *secret, uint32_t serial)
{
	struct srdma_epoch_key *k = &e->key[at];

	if (e->derived)
		srdma_pdkeys_hold(e->pd, k->serial = serial);
	else
		memcpy(k->secret, secret, srdma_epoch_secret_len(e->suite));
	k->live = 1;
}

int srdma_epoch_give(struct srdma_epochs *e, const uint8_t *secret,
		     uint32_t serial)
{
	if (e->key[SRDMA_EPOCH_FRESH].live)
		return -EBUSY;
	give(e, SRDMA_EPOCH_FRESH, secret, serial);
	return 0;
}

static void set_flow(struct srdma_epochs *e,
		     const struct srdma_session_params *p)
{
	const int tx = e->use == SRDMA_SUITE_SEAL;
	struct srdma_endpoint *local = tx ? &e->flow.sender : &e->flow.receiver;
	struct srdma_endpoint *peer = tx ? &e->flow.receiver : &e->flow.sender;

	memcpy(local->eid, p->local_eid, SRDMA_EID_LEN);
	local->qpn = p->local_qpn;
	memcpy(peer->eid, p->peer_eid, SRDMA_EID_LEN);
	peer->qpn = p->peer_qpn;
	memcpy(e->flow.generation, p->generation, SRDMA_GENERATION_LEN);
}

int srdma_epoch_create(struct srdma_epochs *e, const struct srdma_suite *suite,
		       const struct srdma_session_params *params,
		       enum srdma_suite_use use)
{
	const int tx = use == SRDMA_SUITE_SEAL;

	memset(e, 0, sizeof(*e));
	if (!suite)
		return 0;
	e->suite = suite;
	e->verbs = srdma_provider_verbs(params->provider, suite);
	e->provider = params->provider;
	e->use = use;
	e->direction = tx ? params->role : !params->role;
	e->level = params->level;
	e->tag_len = params->tag_len;
	e->number = tx ? 0 : params->rx_epoch;
	e->constant = params->mode & SRDMA_MODE_PD;
	set_flow(e, params);
	if (e->constant && params->pd) {
		e->pd = params->pd;
		e->cache = params->cache;
		e->derived = !tx || params->shared;
	}
	give(e, SRDMA_EPOCH_NOW, tx ? params->tx_secret : params->rx_secret,
	     params->pd_serial);
	return e->pd ? 0 : derive_own(e, SRDMA_EPOCH_NOW);
}

void srdma_epoch_destroy(struct srdma_epochs *e)
{
	for (int at = 0; at < SRDMA_EPOCHS; at++)
		srdma_epoch_forget(e, at);
	srdma_wipe(e, sizeof(*e));
}

uint32_t srdma_epoch_key_bytes(const struct srdma_epochs *e)
{
	uint32_t n = 0;

	for (int at = 0; at < SRDMA_EPOCHS; at++) {
		const struct srdma_epoch_key *k = &e->key[at];

		if (k->live && !e->derived && at != SRDMA_EPOCH_BEFORE)
			n += srdma_epoch_secret_len(e->suite);
		if (!e->pd && k->own.ctx)
			n += e->suite->key_len;
	}
	return n;
}

uint32_t srdma_epoch_iv_bytes(const struct srdma_epochs *e)
{
	uint32_t n = 0;

	for (int at = 0; at < SRDMA_EPOCHS; at++)
		if (!e->pd && e->key[at].own.ctx)
			n += e->suite->iv_len;
	return n;
}
