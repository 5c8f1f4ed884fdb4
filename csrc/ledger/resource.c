/* The table of resources. */
#include "ledger/resource.h"

static const struct srdma_resource_row rows[SRDMA_RESOURCES] = {
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

const struct srdma_resource_row *srdma_resource(enum srdma_resource r)
{
	return &rows[r];
}

static const char *const counts[] = {
#define X(name) #name,
	SRDMA_ACCOUNT_COUNTS(X)
#undef X
};

const char *srdma_resource_count_name(unsigned i)
{
	return i < sizeof(counts) / sizeof(*counts) ? counts[i] : NULL;
}
