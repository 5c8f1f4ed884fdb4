#include "session/keycache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "crypto/cmac.h"
#include "crypto/suite.h"

struct srdma_keycache {
	unsigned contexts; /* capacity */
	uint32_t used;
	uint64_t hits, misses;
	struct srdma_cmac prf_16, prf_32;
	/*
	 * Head of a circular LRU list of the entries: ring.older is the most
	 * recently used entry, ring.newer the least recently used one. Free
	 * entries are at the least recently used end.
	 */
	struct srdma_keyslot ring;
	struct srdma_keyslot slots[];
};

static void detach(struct srdma_keyslot *s)
{
	s->newer->older = s->older;
	s->older->newer = s->newer;
}

/* Inserts s between two neighbours. */
static void attach(struct srdma_keyslot *s, struct srdma_keyslot *newer,
		   struct srdma_keyslot *older)
{
	s->newer = newer;
	s->older = older;
	newer->older = s;
	older->newer = s;
}

/* Destroys context and key. */
static void empty(struct srdma_keyslot *s)
{
	if (s->keyed.ctx)
		srdma_keyed_wipe(&s->keyed, s->verbs);
}

int srdma_keycache_create(struct srdma_keycache **out, unsigned contexts,
			  struct srdma_provider *provider)
{
	/* the current packet needs one entry in any case */
	const unsigned n = contexts ? contexts : 1;
	struct srdma_keycache *c;
	int r;

	*out = NULL;
	c = calloc(1, sizeof(*c) + n * sizeof(c->slots[0]));
	if (!c)
		return -ENOMEM;
	c->contexts = contexts;
	c->ring.newer = c->ring.older = &c->ring;
	for (unsigned i = 0; i < n; i++)
		attach(&c->slots[i], &c->ring, c->ring.older);
	r = srdma_cmac_create(&c->prf_16, 16, provider);
	if (!r)
		r = srdma_cmac_create(&c->prf_32, 32, provider);
	if (r) {
		srdma_keycache_destroy(c);
		return r;
	}
	*out = c;
	return 0;
}

void srdma_keycache_destroy(struct srdma_keycache *c)
{
	if (!c)
		return;
	assert(!c->used);
	for (struct srdma_keyslot *s = c->ring.newer; s != &c->ring;
	     s = s->newer)
		empty(s);
	srdma_cmac_destroy(&c->prf_16);
	srdma_cmac_destroy(&c->prf_32);
	free(c);
}

void srdma_keycache_count(const struct srdma_keycache *c,
			  struct srdma_keycache_counts *counts)
{
	*counts = (struct srdma_keycache_counts){ c->hits, c->misses, c->used };
}

void srdma_keyed_wipe(struct srdma_keyed *k,
		      const struct srdma_suite_verbs *verbs)
{
	verbs->destroy(k->ctx);
	srdma_wipe(k, sizeof(*k));
}

/* Separates the entry from its flow. */
static void unlink_slot(struct srdma_keycache *c, struct srdma_keyslot *s)
{
	*s->link = NULL;
	s->link = NULL;
	c->used--;
}

/* Wipes the flow's key but keeps the context for the next flow. */
/* RFC 5042 R5.4.5-3 */
static void retire(struct srdma_keycache *c, struct srdma_keyslot *s)
{
	srdma_wipe(s->keyed.iv, sizeof(s->keyed.iv));
	if (s->verbs->forget(s->keyed.ctx))
		empty(s);
	unlink_slot(c, s);
}

/* RFC 5042 R5.4.5-2 */
int srdma_keycache_take(struct srdma_keycache *c, struct srdma_keyslot **link,
			const struct srdma_suite *suite,
			const struct srdma_suite_verbs *verbs)
{
	struct srdma_keyslot *s = *link ? *link : c->ring.newer;
	const int hit = *link != NULL;

	if (hit)
		c->hits++;
	else
		c->misses++;
	if (!hit && s->link)
		retire(c, s);
	detach(s);
	attach(s, &c->ring, c->ring.older);
	if (hit)
		return 1;
	if (s->suite != suite || s->verbs != verbs)
		empty(s);
	s->link = link;
	s->suite = suite;
	s->verbs = verbs;
	*link = s;
	c->used++;
	return 0;
}

void srdma_keycache_release(struct srdma_keycache *c,
			    struct srdma_keyslot **link)
{
	if (!c->contexts)
		retire(c, *link);
}

void srdma_keycache_drop(struct srdma_keycache *c, struct srdma_keyslot **link)
{
	struct srdma_keyslot *s = *link;

	if (!s)
		return;
	empty(s);
	unlink_slot(c, s);
	detach(s);
	attach(s, c->ring.newer, &c->ring);
}

void srdma_keycache_move(struct srdma_keyslot **to, struct srdma_keyslot **from)
{
	*to = *from;
	*from = NULL;
	if (*to)
		(*to)->link = to;
}

struct srdma_cmac *srdma_keycache_prf(struct srdma_keycache *c, size_t key_len)
{
	return key_len == 16 ? &c->prf_16 : &c->prf_32;
}
