#include "session/pdkeys.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/cmac.h"
#include "crypto/kdf.h"

enum {
	KEY_16 = 16,
	ENDPOINT_LEN = SRDMA_EID_LEN + 4,
	CONTEXT_LEN = 2 * ENDPOINT_LEN + SRDMA_GENERATION_LEN,
};

_Static_assert(KEY_16 + 32 == SRDMA_GROUP_KEY_LEN, "3.4");

static uint32_t *users_of(struct srdma_pdkeys *keys, uint32_t serial)
{
	assert(serial == keys->serial || serial + 1 == keys->serial);
	return serial == keys->serial ? &keys->users : &keys->users_before;
}

void srdma_pdkeys_hold(struct srdma_pdkeys *keys, uint32_t serial)
{
	++*users_of(keys, serial);
}

void srdma_pdkeys_release(struct srdma_pdkeys *keys, uint32_t serial)
{
	uint32_t *users = users_of(keys, serial);

	assert(*users);
	--*users;
	if (!keys->users_before)
		srdma_wipe(keys->before, sizeof(keys->before));
}

/* RFC 5042 X6 */
int srdma_pdkeys_rotate(struct srdma_pdkeys *keys,
			const uint8_t pd[SRDMA_GROUP_KEY_LEN])
{
	if (keys->users_before)
		return -EBUSY;
	if (keys->users)
		memcpy(keys->before, keys->pd, sizeof(keys->before));
	memcpy(keys->pd, pd, sizeof(keys->pd));
	keys->serial++;
	keys->users_before = keys->users;
	keys->users = 0;
	return 0;
}

uint32_t srdma_pdkeys_bytes(const struct srdma_pdkeys *keys)
{
	return sizeof(keys->pd) + sizeof(keys->mem) +
	       (keys->users_before ? sizeof(keys->before) : 0);
}

static uint8_t *lay_endpoint(uint8_t *at, const struct srdma_endpoint *e)
{
	memcpy(at, e->eid, SRDMA_EID_LEN);
	srdma_store32(at + SRDMA_EID_LEN, e->qpn);
	return at + ENDPOINT_LEN;
}

/* RFC 5042 X7 */
int srdma_pdkeys_secret_with(struct srdma_cmac *c,
			     const struct srdma_pdkeys *keys, uint32_t serial,
			     uint8_t *out, const struct srdma_pdkeys_flow *flow)
{
	const uint8_t *parent =
		serial == keys->serial ? keys->pd : keys->before;
	uint8_t context[CONTEXT_LEN], *at = context;
	const struct srdma_kdf_info info = {
		.label = "qp rx",
		.context = context,
		.context_len = sizeof(context),
	};

	at = lay_endpoint(at, &flow->receiver);
	at = lay_endpoint(at, &flow->sender);
	memcpy(at, flow->generation, SRDMA_GENERATION_LEN);
	/* parent and S have the same length */
	return srdma_kdf_with(c, out, c->key_len,
			      parent + (c->key_len == KEY_16 ? 0 : KEY_16),
			      &info);
}

int srdma_pdkeys_secret(const struct srdma_pdkeys *keys, uint8_t *out,
			size_t len, const struct srdma_pdkeys_flow *flow)
{
	struct srdma_cmac c;
	int r = srdma_cmac_create(&c, len, NULL);

	if (!r)
		r = srdma_pdkeys_secret_with(&c, keys, keys->serial, out, flow);
	else
		srdma_wipe(out, len);
	srdma_cmac_destroy(&c);
	return r;
}
