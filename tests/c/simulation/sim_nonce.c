/*
 * Simulation: no nonce is used twice with one key, even if several sessions
 * share the key. The provider here wraps another one and notes key and nonce of
 * each sealed packet. For a MAC without a nonce, the packet number in the
 * associated data takes its place (docs/protocol.md 4.4).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/provider.h"
#include "simulation/sim.h"

enum { AD_DIRECTION = 5, AD_PN = 12, AD_LEAST = 80 };

struct watch {
	struct srdma_provider provider;
	struct srdma_provider *inner; /* NULL: OpenSSL */
	struct sim *w;
};

struct srdma_suite_ctx {
	struct srdma_suite_ctx *inner;
	const struct srdma_suite_verbs *verbs;
	const struct srdma_suite *suite;
	const struct watch *watch;
	uint64_t key; /* digest of the key */
};

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Mixes bytes into a digest. */
static uint64_t digest(uint64_t z, const uint8_t *at, size_t len)
{
	uint8_t last[8] = { 0 };

	for (; len > sizeof(last); len -= sizeof(last), at += sizeof(last))
		z = mix(z ^ srdma_load64(at));
	memcpy(last, at, len);
	return mix(z ^ srdma_load64(last));
}

static void spend(struct sim *w, uint64_t pair)
{
	uint64_t at = pair & (SIM_NONCES - 1);

	pair |= !pair; /* 0 marks a free place */
	SIM_CHECK(w, ++w->nonce_count < SIM_NONCES / 4 * 3, "too many packets");
	for (; w->nonces[at]; at = (at + 1) & (SIM_NONCES - 1))
		SIM_CHECK(w, w->nonces[at] != pair,
			  "a nonce is used twice with one key");
	w->nonces[at] = pair;
}

static void note(struct srdma_suite_ctx *c, const struct srdma_suite_io *io)
{
	struct sim *w = c->watch->w;
	uint8_t number[9];

	if (c->suite->iv_len) {
		spend(w, digest(c->key, io->nonce, c->suite->iv_len));
		return;
	}
	if (!io->in) /* KDF or memory proof */
		return;
	SIM_CHECK(w, io->ad_len >= AD_LEAST, "no associated data");
	number[0] = io->ad[AD_DIRECTION];
	memcpy(number + 1, io->ad + AD_PN, 8);
	spend(w, digest(c->key, number, sizeof(number)));
}

/* --- provider functions --------------------------------------------------- */

static void set_key(struct srdma_suite_ctx *c, const uint8_t *key)
{
	c->key = digest(c->suite->id, key, c->suite->key_len);
}

static int create(struct srdma_suite_ctx **ctx, struct srdma_provider *p,
		  const struct srdma_suite_key *k)
{
	const struct watch *watch = (struct watch *)p;
	struct srdma_suite_ctx *c = calloc(1, sizeof(*c));
	int r;

	*ctx = NULL;
	if (!c)
		return -ENOMEM;
	c->verbs = srdma_provider_verbs(watch->inner, k->suite);
	c->suite = k->suite;
	c->watch = watch;
	r = c->verbs->create(&c->inner, watch->inner, k);
	if (r) {
		free(c);
		return r;
	}
	set_key(c, k->key);
	*ctx = c;
	return 0;
}

static int again(struct srdma_suite_ctx *c, const struct srdma_suite_key *k)
{
	set_key(c, k->key);
	return c->verbs->again(c->inner, k);
}

static int forget(struct srdma_suite_ctx *c)
{
	return c->verbs->forget(c->inner);
}

static int seal(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		uint8_t *tag)
{
	note(c, io);
	return c->verbs->seal(c->inner, io, tag);
}

static int open(struct srdma_suite_ctx *c, const struct srdma_suite_io *io,
		const uint8_t *tag)
{
	return c->verbs->open(c->inner, io, tag);
}

static void destroy(struct srdma_suite_ctx *c)
{
	if (!c)
		return;
	c->verbs->destroy(c->inner);
	free(c);
}

static const struct srdma_suite_verbs *verbs(const struct srdma_suite *s)
{
	static const struct srdma_suite_verbs all = {
		.create = create,
		.again = again,
		.forget = forget,
		.seal = seal,
		.open = open,
		.destroy = destroy,
	};

	(void)s;
	return &all;
}

/* --- provider ------------------------------------------------------------- */

/* The fastest provider, created once because it runs a self-test. */
static struct srdma_provider *fastest(const struct sim *w)
{
	static struct srdma_provider *made;
	static int done;

	if (!done)
		SIM_CHECK(w, !srdma_provider_create(&made, NULL),
			  "a provider fails");
	done = 1;
	return made;
}

struct srdma_provider *sim_nonce_watch(struct sim *w, int side)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	SIM_CHECK(w, watch, "no memory");
	watch->provider.name = "watch";
	watch->provider.verbs = verbs;
	watch->w = w;
	/*
	 * In two of three seeds one side uses OpenSSL, so that packets of both
	 * providers meet.
	 */
	watch->inner = side == (int)(w->seed % 3) ? NULL : fastest(w);
	return &watch->provider;
}

void sim_nonce_forget(struct srdma_provider *p)
{
	free(p);
}
