#include "grant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

static uint8_t sth_flags(const struct srdma_capability *cap)
{
	static const uint8_t nobody[SRDMA_MEMKEY_HOLDER_LEN];
	int bound = memcmp(cap->bearer.holder, nobody, sizeof(nobody)) != 0;

	return SRDMA_STH_PROOF | (bound ? SRDMA_STH_HOLDER : 0);
}

static struct srdma_grant *grant_of(const struct srdma_grants *g,
				    uint32_t handle)
{
	struct srdma_grant *grant = g->slot[handle % SRDMA_MAX_GRANTS];

	return grant && grant->handle == handle ? grant : NULL;
}

int srdma_grant_add(struct srdma_grants *g, const struct srdma_capability *cap,
		    uint32_t *handle)
{
	struct srdma_grant *grant;

	if (g->count == SRDMA_MAX_GRANTS)
		return -EDQUOT;
	grant = malloc(sizeof(*grant));
	if (!grant)
		return -ENOMEM;
	do {
		g->serial++;
	} while (!g->serial || g->slot[g->serial % SRDMA_MAX_GRANTS]);
	grant->handle = g->serial;
	grant->flags = sth_flags(cap);
	grant->cap = *cap;
	g->slot[grant->handle % SRDMA_MAX_GRANTS] = grant;
	g->count++;
	*handle = grant->handle;
	return 0;
}

int srdma_grant_drop(struct srdma_grants *g, uint32_t handle)
{
	struct srdma_grant *grant = grant_of(g, handle);

	if (!grant)
		return -ENOENT;
	g->slot[handle % SRDMA_MAX_GRANTS] = NULL;
	g->count--;
	srdma_capability_wipe(&grant->cap);
	free(grant);
	return 0;
}

void srdma_grant_wipe(struct srdma_grants *g)
{
	for (int i = 0; i < SRDMA_MAX_GRANTS; i++)
		if (g->slot[i])
			srdma_grant_drop(g, g->slot[i]->handle);
}

/* Uses differences, because sums of the host's values could wrap. */
static int covers(const struct srdma_capability *cap,
		  const struct srdma_grant_want *want)
{
	uint64_t offset = want->addr - cap->tree.start;

	return want->rkey == cap->rkey && (cap->scope.rights & want->right) &&
	       want->addr >= cap->tree.start && offset >= cap->scope.lo &&
	       offset < cap->scope.hi && want->len <= cap->scope.hi - offset;
}

int srdma_grant_find(const struct srdma_grants *g,
		     const struct srdma_grant_want *want,
		     struct srdma_grant_use *use)
{
	const struct srdma_grant *grant = grant_of(g, want->handle);
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
	*use = (struct srdma_grant_use){
		.node = e.node,
		.key = e.key,
		.expiry = grant->cap.bearer.expiry,
		.flags = grant->flags,
		.run = left < want->len ? left : want->len,
	};
	return 0;
}
