#include "session/flow.h"

#include <stddef.h>
#include <string.h>

#include "base/bytes.h"
#include "base/prefetch.h"

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
	BTH_FECN = 4, /* FECN and BECN: routers may change them */
	VERSION = 1,
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

static void lay_endpoint(uint8_t *at, const struct srdma_endpoint *e)
{
	memcpy(at, e->eid, SRDMA_EID_LEN);
	srdma_store32(at + SRDMA_EID_LEN, e->qpn);
}

int srdma_flow_create(struct srdma_flow *f, const struct srdma_suite *suite,
		      const struct srdma_session_params *params,
		      enum srdma_suite_use use)
{
	const struct srdma_pdkeys_flow *ends = &f->epochs.flow;
	int r = srdma_epoch_create(&f->epochs, suite, params, use);

	if (!suite)
		return 0;
	memcpy(f->generation, ends->generation, SRDMA_GENERATION_LEN);
	f->ad[AD_VERSION] = VERSION;
	f->ad[AD_SUITE] = params->suite;
	f->ad[AD_LEVEL] = params->level;
	f->ad[AD_MODE] = params->mode;
	f->ad[AD_TAG_LEN] = params->tag_len;
	f->ad[AD_DIRECTION] = f->epochs.direction;
	lay_endpoint(f->ad + AD_SENDER, &ends->sender);
	lay_endpoint(f->ad + AD_RECEIVER, &ends->receiver);
	return r;
}

void srdma_flow_destroy(struct srdma_flow *f)
{
	srdma_epoch_destroy(&f->epochs);
	srdma_wipe(f, sizeof(*f));
}

void srdma_flow_ahead(const struct srdma_flow *f)
{
	srdma_prefetch(f, offsetof(struct srdma_flow, epochs.key[1]));
	srdma_prefetch(f->claim, SRDMA_CLAIM_MAX);
}

/* RFC 5042 R5.4.2-1, A5.1.3, A5.4.2 */
uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p,
			 uint32_t epoch)
{
	const uint32_t body_at = p->tag_at + p->tag_len;
	uint8_t *at = f->ad + SRDMA_AD_FIXED;

	srdma_store16(f->ad + AD_PAYLOAD_LEN, p->payload_len);
	srdma_store32(f->ad + AD_EPOCH, epoch);
	srdma_store64(f->ad + AD_PN, p->pn);
	srdma_store64(f->ad + AD_REQUEST_ID, p->request_id);
	/* BTH, extension headers and STH are contiguous before the tag. */
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

/* Nonce (4.3): iv XOR (0x00000000 | direction | 0 | packet number). */
static void make_nonce(const struct srdma_flow *f, const uint8_t *iv,
		       uint64_t pn, uint8_t nonce[SRDMA_NONCE_LEN])
{
	srdma_store32(nonce, 0);
	srdma_store64(nonce + 4, (uint64_t)f->ad[AD_DIRECTION] << 63 | pn);
	for (int i = 0; i < SRDMA_NONCE_LEN; i++)
		nonce[i] ^= iv[i];
}

/* Sets nonce and AD of io. *ctx is the key until srdma_epoch_done(). */
static int begin(struct srdma_flow *f, enum srdma_epoch_at at, uint64_t pn,
		 struct srdma_suite_io *io, uint8_t nonce[SRDMA_NONCE_LEN],
		 struct srdma_suite_ctx **ctx)
{
	const struct srdma_keyed *keyed;
	int r = srdma_epoch_key(&f->epochs, at, &keyed);

	if (r)
		return r;
	make_nonce(f, keyed->iv, pn, nonce);
	io->nonce = nonce;
	io->ad = f->ad;
	*ctx = keyed->ctx;
	return 0;
}

int srdma_flow_seal(struct srdma_flow *f, uint64_t pn,
		    struct srdma_suite_io *io, uint8_t *tag)
{
	const struct srdma_suite_verbs *verbs = f->epochs.verbs;
	uint8_t nonce[SRDMA_NONCE_LEN];
	struct srdma_suite_ctx *ctx;
	int r = begin(f, SRDMA_EPOCH_NOW, pn, io, nonce, &ctx);

	return r ? r
		 : srdma_epoch_done(&f->epochs, SRDMA_EPOCH_NOW,
				    verbs->seal(ctx, io, tag));
}

int srdma_flow_open(struct srdma_flow *f, enum srdma_epoch_at at, uint64_t pn,
		    struct srdma_suite_io *io, const uint8_t *tag)
{
	const struct srdma_suite_verbs *verbs = f->epochs.verbs;
	uint8_t nonce[SRDMA_NONCE_LEN];
	struct srdma_suite_ctx *ctx;
	int r = begin(f, at, pn, io, nonce, &ctx);

	return r ? r
		 : srdma_epoch_done(&f->epochs, at, verbs->open(ctx, io, tag));
}
