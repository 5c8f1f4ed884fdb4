/* Resources that accounts have, and what QPs are counted by
 * (docs/local-interface.md 3.10). */
#ifndef SRDMA_LEDGER_RESOURCE_H
#define SRDMA_LEDGER_RESOURCE_H

#include <stddef.h>
#include <stdint.h>

enum srdma_side { SRDMA_SIDE_LOCAL, SRDMA_SIDE_REMOTE, SRDMA_SIDES };

/* The order is that of QUOTA and USAGE (3.10). */
enum srdma_resource {
	SRDMA_RES_CONNECTIONS,	/* control connections */
	SRDMA_RES_LEGS,		/* legs, which are PDs */
	SRDMA_RES_QPS,		/* remote: QPs with keys */
	SRDMA_RES_REGIONS,	/* memory regions: one wire rkey each */
	SRDMA_RES_BYTES,	/* sum of the lengths of regions */
	SRDMA_RES_RECORDS,	/* places of completion rings */
	SRDMA_RES_ENTRIES,	/* places of SQs and RQs */
	SRDMA_RES_CAPABILITIES, /* installed */
	SRDMA_RES_OPS,		/* packets and answers that wait for DMA, with
				   their buffers (qp/op.h) */
	SRDMA_RES_KEPT,		/* out-of-order packets (responder/reorder.h) */
	SRDMA_RES_READS,	/* response slots in use */
	SRDMA_RES_ADDRESSES,	/* source addresses kept by the wire */
	SRDMA_RES_HOMES,	/* homes that server QPs connected */
	SRDMA_RESOURCES
};

struct srdma_resource_row {
	unsigned sides; /* bits 1 << enum srdma_side: whose accounts have it */
	const char *name; /* "qps", as in policies */
	const char *noun; /* "QPs", as in texts */
	const char *less; /* what its holder can do */
	const char *more; /* what the operator can do about the capacity */
};
const struct srdma_resource_row *srdma_resource(enum srdma_resource r);

/* Counters of a QP, and of an account the sum of its QPs (A46). */
#define SRDMA_ACCOUNT_COUNTS(X)                                                \
	X(packets_sent)                                                        \
	X(bytes_sent) /* payload */                                            \
	X(packets_verified)                                                    \
	X(bytes_verified) /* payload */                                        \
	X(packets_resent)                                                      \
	X(bad_tags) /* of the peer's packets, as the next two */               \
	X(replays)                                                             \
	X(dropped) /* refused for another reason */                            \
	X(epochs_sent)                                                         \
	X(epochs_received)                                                     \
	X(qps_failed) /* QPs that ended for a reason other than PEER_CLOSED */

struct srdma_account_counts {
#define X(name) uint64_t name;
	SRDMA_ACCOUNT_COUNTS(X)
#undef X
};

/* "packets_sent": the name of a counter by its number; NULL: there is none. */
const char *srdma_resource_count_name(unsigned i);

#endif
