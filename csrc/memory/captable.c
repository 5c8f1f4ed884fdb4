#include "memory/captable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

static uint8_t sth_flags(const struct srdma_capability *cap)
{
	static const uint8_t nobody[SRDMA_MEMKEY_HOLDER_LEN];
	int bound = memcmp(cap->bearer.holder, nobody, sizeof(nobody)) != 0;

	return SRDMA_STH_PROOF | (bound ? SRDMA_STH_HOLDER : 0);
}

static struct srdma_captable_entry *grant_of(const struct srdma_captable *g,
				    uint32_t handle)
{
	struct srdma_captable_entry *grant = g->slot[handle % SRDMA_CAPTABLE_MAX];

	return grant && grant->handle == handle ? grant : NULL;
}

int srdma_captable_add(struct srdma_captable *g, const struct srdma_capability *cap,
		    uint32_t *handle)
{
	struct srdma_captable_entry *grant;

	if (g->count == SRDMA_CAPTABLE_MAX)
		return -EDQUOT;
	grant = malloc(sizeof(*grant));
	if (!grant)
		return -ENOMEM;
	do {
		g->serial++;
	} while (!g->serial || g->slot[g->serial % SRDMA_CAPTABLE_MAX]);
	grant->handle = g->serial;
	grant->flags = sth_flags(cap);
	grant->cap = *cap;
	g->slot[grant->handle % SRDMA_CAPTABLE_MAX] = grant;
	g->count++;
	*handle = grant->handle;
	return 0;
}

int srdma_captable_drop(struct srdma_captable *g, uint32_t handle)
{
	struct srdma_captable_entry *grant = grant_of(g, handle);

	if (!grant)
		return -ENOENT;
	g->slot[handle % SRDMA_CAPTABLE_MAX] = NULL;
	g->count--;
	srdma_capability_wipe(&grant->cap);
	free(grant);
	return 0;
}

void srdma_captable_wipe(struct srdma_captable *g)
{
	for (int i = 0; i < SRDMA_CAPTABLE_MAX; i++)
		if (g->slot[i])
			srdma_captable_drop(g, g->slot[i]->handle);
}

/* Differences and no sums: what a host names may wrap. */
static int covers(const struct srdma_capability *cap,
		  const struct srdma_captable_want *want)
{
	uint64_t offset = want->addr - cap->tree.start;

	return want->rkey == cap->rkey && (cap->scope.rights & want->right) &&
	       want->addr >= cap->tree.start && offset >= cap->scope.lo &&
	       offset < cap->scope.hi && want->len <= cap->scope.hi - offset;
}

int srdma_captable_find(const struct srdma_captable *g,
		     const struct srdma_captable_want *want,
		     struct srdma_captable_use *use)
{
	const struct srdma_captable_entry *grant = grant_of(g, want->handle);
	struct srdma_capability_entry e;
	uint64_t offset, left;

	if (!grant)
		return -ENOENT;
	if (!want->len)
		return 0;
	offset = want->addr - grant->cap.tree.start;
	if (!covers(&grant->cap, want) ||
	    srdma_capability_find(&grant->cap, want->right, offset, &e))
		return -EACCES;
	left = e.node->hi - offset;
	*use = (struct srdma_captable_use){
		.node = e.node,
		.key = e.key,
		.expiry = grant->cap.bearer.expiry,
		.flags = grant->flags,
		.run = left < want->len ? left : want->len,
	};
	return 0;
}
