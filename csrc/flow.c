#include "flow.h"

#include <string.h>

#include "bytes.h"
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
_Static_assert(SRDMA_AD_FIXED + SRDMA_MAX_HEADER - SRDMA_BTH_LEN -
			       SRDMA_MAX_TAG + 3 <=
		       SRDMA_AD_MAX,
	       "4.4");

/* key | iv of 3.2, and the keyed context. */
static int derive(struct srdma_flow *f, const struct srdma_suite *suite,
		  const struct srdma_session_params *params,
		  enum srdma_suite_use use)
{
	uint8_t out[SRDMA_SUITE_MAX_KEY + SRDMA_NONCE_LEN],
		context[CONTEXT_LEN];
	const struct srdma_kdf_info info = {
		.label = "traffic",
		.context = context,
		.context_len = sizeof(context),
	};
	const uint8_t *secret =
		use == SRDMA_SUITE_SEAL ? params->tx_secret : params->rx_secret;
	uint8_t *at = context + SRDMA_GENERATION_LEN;
	int r;

	memcpy(context, params->generation, SRDMA_GENERATION_LEN);
	at[0] = f->direction;
	srdma_store32(at + 1, EPOCH);
	at[5] = params->suite;
	at[6] = params->level;
	at[7] = params->tag_len;
	r = srdma_kdf(out, (size_t)suite->key_len + suite->iv_len, secret,
		      params->secret_len, &info);
	if (!r)
		r = suite->verbs->key(&f->ctx, suite, use, out,
				      params->tag_len);
	if (!r)
		memcpy(f->iv, out + suite->key_len, suite->iv_len);
	srdma_wipe(out, sizeof(out));
	return r;
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
	f->direction = tx ? params->role : !params->role;
	if (!suite)
		return 0;
	f->ad[AD_VERSION] = VERSION;
	f->ad[AD_SUITE] = params->suite;
	f->ad[AD_LEVEL] = params->level;
	f->ad[AD_MODE] = params->mode;
	f->ad[AD_TAG_LEN] = params->tag_len;
	f->ad[AD_DIRECTION] = f->direction;
	srdma_store32(f->ad + AD_EPOCH, EPOCH);
	lay_endpoint(f->ad + (tx ? AD_SENDER : AD_RECEIVER), params->local_eid,
		     params->local_qpn);
	lay_endpoint(f->ad + (tx ? AD_RECEIVER : AD_SENDER), params->peer_eid,
		     params->peer_qpn);
	return derive(f, suite, params, use);
}

void srdma_flow_destroy(struct srdma_flow *f, const struct srdma_suite *suite)
{
	if (suite)
		suite->verbs->destroy(f->ctx);
	srdma_wipe(f, sizeof(*f));
}

/* iv XOR (0x00000000 | direction | 0 | packet number), 4.3. */
static void make_nonce(struct srdma_flow *f, uint64_t pn)
{
	srdma_store32(f->nonce, 0);
	srdma_store64(f->nonce + 4, (uint64_t)f->direction << 63 | pn);
	for (int i = 0; i < SRDMA_NONCE_LEN; i++)
		f->nonce[i] ^= f->iv[i];
}

uint32_t srdma_flow_bind(struct srdma_flow *f, const struct srdma_packet *p)
{
	const uint32_t body_at = p->tag_at + p->tag_len;
	uint8_t *at = f->ad + SRDMA_AD_FIXED;

	make_nonce(f, p->pn);
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
