#include "memory/captable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

static uint8_t sth_flags(const struct srdma_capability *cap)
{
	static const uint8_t none[SRDMA_MEMKEY_HOLDER_LEN];
	int bound = memcmp(cap->bearer.holder, none, sizeof(none)) != 0;

	return SRDMA_STH_PROOF | (bound ? SRDMA_STH_HOLDER : 0);
}

static struct srdma_captable_entry *entry_of(const struct srdma_captable *g,
					     uint32_t handle)
{
	struct srdma_captable_entry *entry =
		g->slot[handle % SRDMA_CAPTABLE_MAX];

	return entry && entry->handle == handle ? entry : NULL;
}

int srdma_captable_add(struct srdma_captable *g,
		       const struct srdma_capability *cap, uint32_t *handle)
{
	struct srdma_captable_entry *entry;

	if (g->count == SRDMA_CAPTABLE_MAX)
		return -EDQUOT;
	entry = malloc(sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	do {
		g->serial++;
	} while (!g->serial || g->slot[g->serial % SRDMA_CAPTABLE_MAX]);
	entry->number = ++g->installed;
	entry->handle = g->serial;
	entry->flags = sth_flags(cap);
	entry->cap = *cap;
	g->slot[entry->handle % SRDMA_CAPTABLE_MAX] = entry;
	g->count++;
	*handle = entry->handle;
	return 0;
}

int srdma_captable_drop(struct srdma_captable *g, uint32_t handle)
{
	struct srdma_captable_entry *entry = entry_of(g, handle);

	if (!entry)
		return -ENOENT;
	g->slot[handle % SRDMA_CAPTABLE_MAX] = NULL;
	g->count--;
	srdma_capability_wipe(&entry->cap);
	free(entry);
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
	const struct srdma_captable_entry *entry = entry_of(g, want->handle);
	struct srdma_capability_entry e;
	uint64_t offset, left;

	if (!entry)
		return -ENOENT;
	if (!want->len)
		return 0;
	offset = want->addr - entry->cap.tree.start;
	if (!covers(&entry->cap, want) ||
	    srdma_capability_find(&entry->cap, want->right, offset, &e))
		return -EACCES;
	left = e.node->hi - offset;
	*use = (struct srdma_captable_use){
		.number = entry->number,
		.node = e.node,
		.key = e.key,
		.expiry = entry->cap.bearer.expiry,
		.flags = entry->flags,
		.run = left < want->len ? left : want->len,
	};
	return 0;
}

int srdma_captable_is_current(const struct srdma_captable *g, uint32_t handle,
			      const struct srdma_captable_use *use)
{
	const struct srdma_captable_entry *entry = entry_of(g, handle);

	return entry && entry->number == use->number;
}
