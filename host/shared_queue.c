/* Receives that several QPs share (docs/local-interface.md 3.6, SHARE). */
#include <string.h>

#include "host/error.h"
#include "host/objects.h"

int srdma_shared_queue_create(struct srdma_qp **holder, struct srdma_pd *pd,
			      uint32_t depth)
{
	const struct srdma_qp_attr attr = { .sq = 1, .rq = depth };
	int r = srdma_create_qp(holder, pd, &attr);

	if (r)
		return r;
	r = srdma_host_share(pd->host, (*holder)->made.qp.qpn);
	if (!r)
		return 0;
	srdma_destroy_qp(*holder);
	*holder = NULL;
	return srdma_error_set(r, "a shared queue: %s", strerror(-r));
}

int srdma_shared_queue_join(struct srdma_qp *qp, struct srdma_qp *holder)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_SHARE,
				   .share = { .qpn = qp->made.qp.qpn,
					      .holder = holder->made.qp.qpn } };
	int r = srdma_pd_call(qp->pd, &m, NULL);

	return r ? r
		 : srdma_host_join(qp->pd->host, qp->made.qp.qpn,
				   holder->made.qp.qpn);
}

uint32_t srdma_shared_queue_posted(const struct srdma_qp *holder)
{
	return srdma_host_shared(holder->pd->host, holder->made.qp.qpn);
}
