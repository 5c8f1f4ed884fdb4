#include "pdkeys.h"

#include <string.h>

#include "bytes.h"
#include "cmac.h"
#include "kdf.h"

enum {
	KEY_16 = 16,
	ENDPOINT_LEN = SRDMA_EID_LEN + 4,
	CONTEXT_LEN = 2 * ENDPOINT_LEN + SRDMA_GENERATION_LEN,
};

_Static_assert(KEY_16 + 32 == SRDMA_GROUP_KEY_LEN, "3.4");

static uint8_t *lay_endpoint(uint8_t *at, const struct srdma_endpoint *e)
{
	memcpy(at, e->eid, SRDMA_EID_LEN);
	srdma_store32(at + SRDMA_EID_LEN, e->qpn);
	return at + ENDPOINT_LEN;
}

int srdma_pdkeys_secret_with(struct srdma_cmac *c,
			     const struct srdma_pdkeys *keys, uint8_t *out,
			     const struct srdma_pdkeys_flow *flow)
{
	uint8_t context[CONTEXT_LEN], *at = context;
	const struct srdma_kdf_info info = {
		.label = "qp rx",
		.context = context,
		.context_len = sizeof(context),
	};

	at = lay_endpoint(at, &flow->receiver);
	at = lay_endpoint(at, &flow->sender);
	memcpy(at, flow->generation, SRDMA_GENERATION_LEN);
	/* the parent is as long as S */
	return srdma_kdf_with(c, out, c->key_len,
			      keys->pd + (c->key_len == KEY_16 ? 0 : KEY_16),
			      &info);
}

int srdma_pdkeys_secret(const struct srdma_pdkeys *keys, uint8_t *out,
			size_t len, const struct srdma_pdkeys_flow *flow)
{
	struct srdma_cmac c;
	int r = srdma_cmac_create(&c, len);

	if (!r)
		r = srdma_pdkeys_secret_with(&c, keys, out, flow);
	else
		srdma_wipe(out, len);
	srdma_cmac_destroy(&c);
	return r;
}
