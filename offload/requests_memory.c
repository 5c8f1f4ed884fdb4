/*
 * Requests about memory: REG_MR, WITHDRAW, DEREG_MR, REVOKE, and the creation
 * (CAP) and use (INSTALL, UNINSTALL) of capabilities (docs/protocol.md 6;
 * local-interface.md 3).
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
	rc = requests_restrict_memory(c);
	if (rc < 0)
		return rc;
	rc = srdma_memkey_holder(params->scope_holder, c->in.reg_mr.identity);
	if (rc < 0)
		return requests_refuse(c, rc, "SHA-256 failed");
	rc = srdma_relay_mr_reg(c->q->p.relay, leg, params, &c->out.key);
	if (rc == 0)
		rc = srdma_relay_mr_opening(c->q->p.relay, leg, c->out.key);
	if (rc == -EINPROGRESS)
		return requests_defer(
			c, leg, &(struct deferred){ .number = c->out.key });
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

int requests_memory_replace(struct call *c)
{
	const struct srdma_ctl_replace *in = &c->in.replace;
	struct srdma_leg *leg;
	int rc = requests_leg(c, in->leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_mr_replace(c->q->p.relay, leg, in->key, in->other);
	if (rc == -EINPROGRESS)
		return requests_defer(
			c, leg,
			&(struct deferred){ .number = in->key,
					    .ticket = in->other });
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_memory_withdraw(struct call *c)
{
	struct deferred d = { .number = c->in.dereg_mr.key };
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.dereg_mr.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_mr_withdraw(c->q->p.relay, leg, d.number, &d.ticket);
	if (rc == -EINPROGRESS)
		return requests_defer(c, leg, &d);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_memory_capability(struct call *c)
{
	struct srdma_ctl_token *token = &c->out.capability;
	struct srdma_capability cap;
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.cap.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_mr_capability(c->q->p.relay, leg, &c->in.cap.cap,
				       &cap);
	if (rc < 0)
		return requests_refused(c, rc);
	rc = srdma_capability_encode(token->bytes, &cap);
	srdma_capability_wipe(&cap);
	if (rc < 0)
		return requests_refuse(c, rc,
				       "encoding the capability token failed");
	token->len = (uint32_t)rc;
	return 0;
}

int requests_memory_install(struct call *c)
{
	const struct srdma_ctl_token *token = &c->in.install.token;
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.install.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_install(c->q->p.relay, leg, token->bytes, token->len,
				 &c->out.handle);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_memory_uninstall(struct call *c)
{
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.uninstall.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_uninstall(c->q->p.relay, leg, c->in.uninstall.handle);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_memory_revoke(struct call *c)
{
	const struct srdma_revoke_params *range = &c->in.revoke.range;
	struct deferred d = { .number = range->key, .range = *range };
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.revoke.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_mr_revoke(c->q->p.relay, leg, range, &d.ticket);
	if (rc == -EINPROGRESS)
		return requests_defer(c, leg, &d);
	return rc < 0 ? requests_refused(c, rc) : 0;
}
