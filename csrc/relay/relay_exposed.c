/*
 * Bytes that peers of several programs could reach (docs/local-interface.md 3.5,
 * *Exposed bytes*).
 */
#include <errno.h>

#include "ledger/ledger.h"
#include "memory/rights.h"
#include "relay/relay_impl.h"

/* The number of the leg's trust set (3.5): its account, else the leg alone. */
static uint64_t trust_of(const struct srdma_leg *leg)
{
	return leg->account ? srdma_account_serial(leg->account)
			    : (uintptr_t)leg;
}

/* Peers of other programs must not reach the same bytes (RFC 5042 6.3.6). */
/* RFC 5042 R6.3.6-1, A6.2.3, A6.3.6 */
int srdma_relay_expose(struct srdma_relay *r, struct srdma_mr *mr)
{
	const struct srdma_region *region = mr->region;
	const struct srdma_exposure what = {
		.dev = region->dev,
		.ino = region->ino,
		.first = region->file_at,
		.last = region->file_at + region->length - 1,
		.trust = trust_of(mr->leg),
		.written = mr->access & SRDMA_RIGHTS_WRITTEN,
		.shared = mr->access & SRDMA_ACCESS_SHARED,
	};
	struct srdma_exposed_table *t = &r->env.mrs.exposed;
	uint32_t priority;
	int err = 0;

	if (!region->ino || !(mr->access & SRDMA_RIGHTS_REMOTE))
		return 0;
	if (!t->salt)
		err = srdma_relay_random(r, &t->salt, sizeof(t->salt));
	if (!err)
		err = srdma_relay_random(r, &priority, sizeof(priority));
	if (err)
		return err;
	err = srdma_exposed_add(t, &mr->exposed, &what, priority);
	if (err != -EBUSY)
		return err ? srdma_relay_refuse(r, err,
						"no memory for a region")
			   : 0;
	return srdma_relay_refuse(
		r, err,
		"another program exposes some of bytes %llu to %llu of this memfd, and peers may write there: use others, or register both regions with SHARED",
		(unsigned long long)what.first, (unsigned long long)what.last);
}
