/* Texts of refusals. */
#include <inttypes.h>
#include <stdio.h>

#include "ledger/ledger_impl.h"

static const char *kind_of(const struct srdma_account *a)
{
	return a->kind == SRDMA_ACCOUNT_IDENTITY ? "identity " : "";
}

/* ", and 4096 more were asked for": of one, it is clear. */
static const char *wanted(char *out, size_t len, uint64_t n)
{
	*out = '\0';
	if (n != 1)
		snprintf(out, len, ", and %" PRIu64 " more were asked for", n);
	return out;
}

void srdma_account_why(const struct srdma_account *a, enum srdma_resource r,
		       uint64_t n, char *out, size_t len)
{
	const struct srdma_account *full = srdma_account_limited_by(a, r, n);
	const struct srdma_stock *s = srdma_ledger_stock(a, r);
	const struct srdma_resource_row *row = srdma_resource(r);
	char more[64];

	wanted(more, sizeof(more), n);
	if (full)
		snprintf(out, len,
			 "%s%s has %" PRIu64 " of at most %" PRIu64
			 " %s%s: %s, or ask the operator to raise %s in "
			 "[quota] of the agent's policy",
			 kind_of(full), full->name, full->place[r].used,
			 full->place[r].limit, row->noun, more, row->less,
			 row->name);
	else
		snprintf(out, len,
			 "%s%s has %" PRIu64 " %s%s, and the worker has its "
			 "limit of %" PRIu64 " %s, of which %" PRIu64
			 " are used and the others held back: %s, or ask the "
			 "operator to %s",
			 kind_of(a), a->name, a->place[r].used, row->noun, more,
			 s->capacity, row->noun, s->used, row->less, row->more);
}
