/* The table of resources. */
#include "ledger/resource.h"

enum { LOCAL = 1 << SRDMA_SIDE_LOCAL, REMOTE = 1 << SRDMA_SIDE_REMOTE };

static const struct srdma_resource_row rows[SRDMA_RESOURCES] = {
	[SRDMA_RES_CONNECTIONS] = { LOCAL, "connections", "control connections",
				    "close one", "start more --workers" },
	[SRDMA_RES_LEGS] = { LOCAL, "legs", "legs", "close a PD",
			     "start more --workers" },
	[SRDMA_RES_QPS] = { LOCAL | REMOTE, "qps", "QPs", "close one",
			    "raise --max-qps" },
	[SRDMA_RES_REGIONS] = { LOCAL, "regions", "regions", "deregister one",
				"start more --workers" },
	[SRDMA_RES_BYTES] = { LOCAL, "bytes", "bytes of registered memory",
			      "deregister some", "start more --workers" },
	[SRDMA_RES_RECORDS] = { LOCAL, "records", "places of completion rings",
				"open the PD with a smaller ring",
				"start more --workers" },
	[SRDMA_RES_ENTRIES] = { LOCAL, "entries",
				"places of send and receive queues",
				"make the queues of a QP smaller",
				"raise --max-qps" },
	[SRDMA_RES_CAPABILITIES] = { LOCAL, "capabilities",
				     "installed capabilities", "uninstall one",
				     "start more --workers" },
	[SRDMA_RES_OPS] = { REMOTE, "ops", "packets that wait for DMA",
			    "wait for some to end", "start more --workers" },
	[SRDMA_RES_KEPT] = { REMOTE, "kept", "out-of-order packets",
			     "wait for some to end", "start more --workers" },
	[SRDMA_RES_READS] = { REMOTE, "reads", "response slots",
			      "wait for some to end", "start more --workers" },
	[SRDMA_RES_ADDRESSES] = { REMOTE, "addresses", "source addresses",
				  "close some QPs", "start more --workers" },
	[SRDMA_RES_HOMES] = { REMOTE, "homes", "homes of QPs", "close some QPs",
			      "start more --workers" },
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
