#include "flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "cmac.h"
#include "kdf.h"

/* Offsets in the associated data (4.4) */
enum {
	AD_VERSION = 0,
	AD_SUITE = 1,
	AD_LEVEL = 2,
	AD_MODE = 3,
	AD_TAG_LEN = 4,
	AD_DIRECTION = 5,
	AD_PAYLOAD_LEN = 6,
	AD_EPOCH = 8,
	AD_PN = 12,
	AD_SENDER = 20,
	AD_RECEIVER = 40,
	AD_REQUEST_ID = 60,
	AD_BTH = 68,
	BTH_FECN = 4, /* the byte that routers may change */
	VERSION = 1,
	CONTEXT_LEN = SRDMA_GENERATION_LEN + 8,
	EPOCH = 0, /* the only one of this version */
};

_Static_assert(AD_BTH + SRDMA_BTH_LEN == SRDMA_AD_FIXED, "4.4");
_Static_assert(SRDMA_GENERATION_LEN + SRDMA_AD_FIXED + SRDMA_ATOMIC_ETH_LEN +
			       SRDMA_STH_PROOF_LEN - SRDMA_PROOF_LEN ==
		       SRDMA_CLAIM_MAX,
	       "6.1");
_Static_assert(SRDMA_AD_FIXED + SRDMA_MAX_HEADER - SRDMA_BTH_LEN -
			       SRDMA_MAX_TAG + 3 <=
		       SRDMA_AD_MAX,
	       "4.4");

static int has_root(const struct srdma_flow *f)
{
	return f->suite && (f->ad[AD_MODE] & SRDMA_MODE_PD);
}

/* key | iv of 3.2 from S, of c->key_len bytes, and the keyed context. */
static int derive(const struct srdma_flow *f, struct srdma_cmac *c,
		  const uint8_t *secret, struct srdma_keyed *keyed)
{
	const struct srdma_suite *suite = f->suite;
	uint8_t out[SRDMA_SUITE_MAX_KEY + SRDMA_NONCE_LEN],
		context[CONTEXT_LEN];
	const struct srdma_kdf_info info = {
		.label = "traffic",
		.context = context,
		.context_len = sizeof(context),
	};
	uint8_t *at = context + SRDMA_GENERATION_LEN;
	int r;

	memcpy(context, f->generation, SRDMA_GENERATION_LEN);
	at[0] = f->ad[AD_DIRECTION];
	srdma_store32(at + 1, EPOCH);
	at[5] = f->ad[AD_SUITE];
	at[6] = f->ad[AD_LEVEL];
	at[7] = f->ad[AD_TAG_LEN];
	r = srdma_kdf_with(c, out, (size_t)suite->key_len + suite->iv_len,
			   secret, &info);
	if (!r)
		r = suite->verbs->key(&keyed->ctx, suite, f->use, out,
				      f->ad[AD_TAG_LEN]);
	if (!r)
		memcpy(keyed->iv, out + suite->key_len, suite->iv_len);
	srdma_wipe(out, sizeof(out));
	return r;
}

/* From S, which the session that is being made has and will not keep. */
static int derive_own(struct srdma_flow *f,
		      const struct srdma_session_params *params)
{
	const uint8_t *secret = f->use == SRDMA_SUITE_SEAL ? params->tx_secret
							   : params->rx_secret;
	struct srdma_cmac c;
	int r = srdma_cmac_create(&c, params->secret_len);

	if (!r)
		r = derive(f, &c, secret, &f->own);
	srdma_cmac_destroy(&c);
	return r;
}

static void load_endpoint(struct srdma_endpoint *e, const uint8_t *at)
{
	memcpy(e->eid, at, SRDMA_EID_LEN);
	e->qpn = srdma_load32(at + SRDMA_EID_LEN);
}

/* S of 3.4 of this flow, from K_PD. */
static int derive_secret(const struct srdma_flow *f, struct srdma_cmac *c,
			 uint8_t *secret)
{
	struct srdma_pdkeys_flow flow;

	load_endpoint(&flow.receiver, f->ad + AD_RECEIVER);
	load_endpoint(&flow.sender, f->ad + AD_SENDER);
	memcpy(flow.generation, f->generation, SRDMA_GENERATION_LEN);
	return srdma_pdkeys_secret_with(c, f->root.pd, secret, &flow);
}

/* Fill the slot that the cache gave. */
static int derive_slot(struct srdma_flow *f)
{
	struct srdma_flow_root *root = &f->root;
	struct srdma_cmac *c = srdma_keycache_prf(
		root->cache, srdma_flow_secret_len(f->suite));
	uint8_t derived[SRDMA_MAX_SECRET];
	int r = root->secret ? 0 : derive_secret(f, c, derived);

	if (!r)
		r = derive(f, c, root->secret ? root->secret : derived,
			   &root->slot->keyed);
	srdma_wipe(derived, sizeof(derived));
	srdma_cmac_forget(c); /* S is not kept there either */
	return r;
}

/* What a mode with PD keeps instead of keys. */
static int keep_root(struct srdma_flow *f,
		     const struct srdma_session_params *params)
{
	struct srdma_flow_root *root = &f->root;

	root->pd = params->pd;
	root->cache = params->cache;
	if (f->use == SRDMA_SUITE_OPEN || params->shared)
		return 0;
	root->secret = malloc(params->secret_len);
	if (!root->secret)
		return -ENOMEM;
	memcpy(root->secret, params->tx_secret, params->secret_len);
	return 0;
}

static void lay_endpoint(uint8_t *at, const uint8_t *eid, uint32_t qpn)
{
	memcpy(at, eid, SRDMA_EID_LEN);
	srdma_store32(at + SRDMA_EID_LEN, qpn);
}

int srdma_flow_create(struct srdma_flow *f, const struct srdma_suite *suite,
		      const struct srdma_session_params *params,
		      enum srdma_suite_use use)
{
	const int tx = use == SRDMA_SUITE_SEAL;

	memset(f, 0, sizeof(*f));
	f->suite = suite;
	f->use = use;
	if (!suite)
		return 0;
	memcpy(f->generation, params->generation, SRDMA_GENERATION_LEN);
	f->ad[AD_VERSION] = VERSION;
	f->ad[AD_SUITE] = params->suite;
	f->ad[AD_LEVEL] = params->level;
	f->ad[AD_MODE] = params->mode;
	f->ad[AD_TAG_LEN] = params->tag_len;
	f->ad[AD_DIRECTION] = tx ? params->role : !params->role;
	srdma_store32(f->ad + AD_EPOCH, EPOCH);
	lay_endpoint(f->ad + (tx ? AD_SENDER : AD_RECEIVER), params->local_eid,
		     params->local_qpn);
	lay_endpoint(f->ad + (tx ? AD_RECEIVER : AD_SENDER), params->peer_eid,
		     params->peer_qpn);
	return has_root(f) ? keep_root(f, params) : derive_own(f, params);
}

void srdma_flow_destroy(struct srdma_flow *f)
{
	if (has_root(f)) {
		srdma_keycache_drop(f->root.cache, &f->root.slot);
		if (f->root.secret)
			srdma_wipe(f->root.secret,
				   srdma_flow_secret_len(f->suite));
		free(f->root.secret);
	} else if (f->suite) {
		srdma_keyed_wipe(&f->own, f->suite);
	}
	srdma_wipe(f, sizeof(*f));
}

uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p)
{
	const uint32_t body_at = p->tag_at + p->tag_len;
	uint8_t *at = f->ad + SRDMA_AD_FIXED;

	srdma_store16(f->ad + AD_PAYLOAD_LEN, p->payload_len);
	srdma_store64(f->ad + AD_PN, p->pn);
	srdma_store64(f->ad + AD_REQUEST_ID, p->request_id);
	/* BTH, extension headers and STH are one piece before the tag. */
	memcpy(f->ad + AD_BTH, p->data, p->tag_at);
	f->ad[AD_BTH + BTH_FECN] = 0;
	at += p->tag_at - SRDMA_BTH_LEN;
	memcpy(at, p->data + body_at, p->payload_at - body_at);
	at += p->payload_at - body_at;
	memcpy(at, p->data + p->payload_at + p->payload_len, p->pad);
	return (uint32_t)(at + p->pad - f->ad);
}

uint32_t srdma_flow_claim_len(const struct srdma_packet *p)
{
	return SRDMA_GENERATION_LEN + AD_BTH + p->tag_at - SRDMA_PROOF_LEN;
}

/* iv XOR (0x00000000 | direction | 0 | packet number), 4.3. */
static void make_nonce(const struct srdma_flow *f, const uint8_t *iv,
		       uint64_t pn, uint8_t nonce[SRDMA_NONCE_LEN])
{
	srdma_store32(nonce, 0);
	srdma_store64(nonce + 4, (uint64_t)f->ad[AD_DIRECTION] << 63 | pn);
	for (int i = 0; i < SRDMA_NONCE_LEN; i++)
		nonce[i] ^= iv[i];
}

/* The key for a packet, which stays until end(). */
static int find_key(struct srdma_flow *f, const struct srdma_keyed **keyed)
{
	struct srdma_flow_root *root = &f->root;
	int r = 0;

	*keyed = &f->own;
	if (!has_root(f))
		return 0;
	if (!srdma_keycache_take(root->cache, &root->slot, f->suite))
		r = derive_slot(f);
	if (r)
		srdma_keycache_drop(root->cache, &root->slot);
	else
		*keyed = &root->slot->keyed;
	return r;
}

/* All but the text; *ctx stays until end(). */
static int begin(struct srdma_flow *f, uint64_t pn, struct srdma_suite_io *io,
		 uint8_t nonce[SRDMA_NONCE_LEN], struct srdma_suite_ctx **ctx)
{
	const struct srdma_keyed *keyed;
	int r = find_key(f, &keyed);

	if (r)
		return r;
	make_nonce(f, keyed->iv, pn, nonce);
	io->nonce = nonce;
	io->ad = f->ad;
	*ctx = keyed->ctx;
	return 0;
}

/* r: how it went. Where the provider failed the context is not used again. */
static int end(struct srdma_flow *f, int r)
{
	if (!has_root(f))
		return r;
	if (r && r != -EBADMSG)
		srdma_keycache_drop(f->root.cache, &f->root.slot);
	else
		srdma_keycache_release(f->root.cache, &f->root.slot);
	return r;
}

int srdma_flow_seal(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, uint8_t *tag)
{
	uint8_t nonce[SRDMA_NONCE_LEN];
	struct srdma_suite_ctx *ctx;
	int r = begin(f, pn, io, nonce, &ctx);

	return r ? r : end(f, f->suite->verbs->seal(ctx, io, tag));
}

int srdma_flow_open(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, const uint8_t *tag)
{
	uint8_t nonce[SRDMA_NONCE_LEN];
	struct srdma_suite_ctx *ctx;
	int r = begin(f, pn, io, nonce, &ctx);

	return r ? r : end(f, f->suite->verbs->open(ctx, io, tag));
}

uint32_t srdma_flow_key_bytes(const struct srdma_flow *f)
{
	if (!f->suite)
		return 0;
	if (!has_root(f))
		return f->suite->key_len;
	return f->root.secret ? srdma_flow_secret_len(f->suite) : 0;
}

uint32_t srdma_flow_iv_bytes(const struct srdma_flow *f)
{
	return f->suite && !has_root(f) ? f->suite->iv_len : 0;
}
