/* How long QPs have been idle (docs/local-interface.md 3.10, Reclaiming). */
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

uint64_t srdma_relay_idle(const struct srdma_qp *qp, uint64_t now)
{
	const uint64_t worked = srdma_qp_entry(qp)->last_work;

	if (!srdma_requester_is_idle(qp) || !srdma_responder_is_idle(qp))
		return 0;
	return now > worked ? now - worked : 0;
}
