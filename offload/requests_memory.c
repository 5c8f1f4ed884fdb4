/*
 * Requests about memory: REG_MR, DEREG_MR, REVOKE, and the capabilities that
 * are made (CAP) and used (INSTALL, UNINSTALL) here (docs/protocol.md 10, 6).
 */
#include <errno.h>

#include "requests_impl.h"

int requests_memory_register(struct call *c)
{
	struct srdma_mr_params *params = &c->in.reg_mr.mr;
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.reg_mr.leg, &leg);

	if (rc < 0)
		return rc;
	params->region.fd = c->message->nfds ? c->message->fds[0] : -1;
	if (params->region.fd < 0 && params->region.fd_offset != 0)
		return requests_refuse(
			c, -EINVAL,
			"REG_MR has a memfd offset and no memfd: pass the "
			"memfd beside the message, or offset 0");
	rc = srdma_relay_mr_reg(c->q->p.relay, leg, params, &c->out.key);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_memory_deregister(struct call *c)
{
	uint32_t key = c->in.dereg_mr.key;
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.dereg_mr.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_mr_dereg(c->q->p.relay, leg, key);
	if (rc == -EINPROGRESS)
		return requests_defer(c, leg,
				      &(struct deferred){ .number = key });
	return rc < 0 ? requests_refused(c, rc) : 0;
}
