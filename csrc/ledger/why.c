/* Names of resources, and texts of refusals. */
#include <inttypes.h>
#include <stdio.h>

#include "ledger/ledger_impl.h"

static const struct {
	const char *name, *noun;
	const char *less; /* what its holder can do */
	const char *more; /* what the operator can do about the capacity */
} rows[SRDMA_RESOURCES] = {
	[SRDMA_RES_CONNECTIONS] = { "connections", "control connections",
				    "close one", "start more --workers" },
	[SRDMA_RES_LEGS] = { "legs", "legs", "close a PD",
			     "start more --workers" },
	[SRDMA_RES_QPS] = { "qps", "QPs", "close one", "raise --max-qps" },
	[SRDMA_RES_REGIONS] = { "regions", "regions", "deregister one",
				"start more --workers" },
	[SRDMA_RES_BYTES] = { "bytes", "bytes of registered memory",
			      "deregister some", "start more --workers" },
	[SRDMA_RES_RECORDS] = { "records", "places of completion rings",
				"open the PD with a smaller ring",
				"start more --workers" },
	[SRDMA_RES_ENTRIES] = { "entries", "places of send and receive queues",
				"make the queues of a QP smaller",
				"raise --max-qps" },
	[SRDMA_RES_CAPABILITIES] = { "capabilities", "installed capabilities",
				     "uninstall one", "start more --workers" },
	[SRDMA_RES_OPS] = { "ops", "packets that wait for DMA",
			    "wait for some to end", "start more --workers" },
	[SRDMA_RES_KEPT] = { "kept", "out-of-order packets",
			     "wait for some to end", "start more --workers" },
	[SRDMA_RES_READS] = { "reads", "response slots", "wait for some to end",
			      "start more --workers" },
	[SRDMA_RES_ADDRESSES] = { "addresses", "source addresses",
				  "close some QPs", "start more --workers" },
};

const char *srdma_ledger_name(enum srdma_resource r)
{
	return rows[r].name;
}

const char *srdma_ledger_noun(enum srdma_resource r)
{
	return rows[r].noun;
}

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
	char more[64];

	wanted(more, sizeof(more), n);
	if (full)
		snprintf(out, len,
			 "%s%s has %" PRIu64 " of at most %" PRIu64
			 " %s%s: %s, or ask the operator to raise %s in "
			 "[quota] of the agent's policy",
			 kind_of(full), full->name, full->place[r].used,
			 full->place[r].limit, rows[r].noun, more, rows[r].less,
			 rows[r].name);
	else
		snprintf(out, len,
			 "%s%s has %" PRIu64 " %s%s, and the worker has its "
			 "limit of %" PRIu64 " %s, of which %" PRIu64
			 " are used and the others held back: %s, or ask the "
			 "operator to %s",
			 kind_of(a), a->name, a->place[r].used, rows[r].noun,
			 more, s->capacity, rows[r].noun, s->used, rows[r].less,
			 rows[r].more);
}
