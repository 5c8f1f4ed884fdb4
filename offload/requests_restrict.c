/*
 * Restricted connections (local-interface.md 3.9): RESTRICT, by which the agent
 * prepares a connection for a program of another user, the requests that such a
 * connection may not send, and the limits of its account.
 */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "log.h"
#include "requests_impl.h"

int requests_restrict_check(struct call *c)
{
	if (!c->client->account || !requests_agent_only(c->in.kind))
		return 0;
	return requests_refuse(
		c, -EPERM,
		"%s on a restricted connection: only the agent may send it",
		srdma_ctl_name(c->in.kind));
}

int requests_restrict(struct call *c)
{
	const struct srdma_ctl_restrict *in = &c->in.restrict_;
	const struct account_limits limits = {
		in->connections, in->legs, in->qps, in->regions, in->bytes,
	};
	struct client *client = c->client;

	if (!*in->account)
		return requests_refuse(c, -EINVAL,
				       "RESTRICT without an account: name one");
	if (client->waiting || legs_used_by(&c->q->legs, client->number))
		return requests_refuse(
			c, -EISCONN,
			"this connection is in use: restrict a new one");
	if (in->keep > SRDMA_CTL_KEEP_LEGS_MAX)
		return requests_refuse(
			c, -EINVAL,
			"RESTRICT with legs kept for %u s: give at most %d",
			in->keep, SRDMA_CTL_KEEP_LEGS_MAX);
	client->account = accounts_join(&c->q->accounts, in->account, &limits);
	if (!client->account)
		return requests_refuse(
			c, -EDQUOT,
			"%s has its limit of %u connections to this worker: "
			"close one",
			in->account, in->connections);
	requests_agent_leave(c->q, client);
	/* Over shared memory nothing else shows that the program lives. */
	client->keep = c->q->p.host->kind == SRDMA_PORT_SHM ? 0 : in->keep;
	/* The program's process is unknown: its memory is in memfds only. */
	if (client->pidfd >= 0)
		close(client->pidfd);
	client->pidfd = -1;
	log_info("a connection of process %d is passed on to %s", client->pid,
		 in->account);
	return 0;
}

static int over(struct call *c, const struct account *a, const char *what,
		uint64_t limit)
{
	return requests_refuse(c, -EDQUOT,
			       "%s has its limit of %" PRIu64
			       " %s: close some, or raise it in [quota] of the "
			       "agent's policy",
			       a->name, limit, what);
}

int requests_restrict_leg(struct call *c)
{
	const struct account *a = c->client->account;

	if (!a || legs_usage(&c->q->legs, a).legs < a->limits.legs)
		return 0;
	return over(c, a, "legs", a->limits.legs);
}

static const struct account *account_of(struct call *c,
					const struct srdma_leg *leg)
{
	const struct legs_opener *opener = legs_opener(&c->q->legs, leg);

	return opener ? opener->account : NULL;
}

int requests_restrict_qp(struct call *c, const struct srdma_leg *leg)
{
	const struct account *a = account_of(c, leg);

	if (!a || legs_usage(&c->q->legs, a).qps < a->limits.qps)
		return 0;
	return over(c, a, "QPs", a->limits.qps);
}

int requests_restrict_region(struct call *c, const struct srdma_leg *leg,
			     uint64_t length)
{
	const struct account *a = account_of(c, leg);
	struct legs_usage used;

	if (!a)
		return 0;
	used = legs_usage(&c->q->legs, a);
	if (used.regions >= a->limits.regions)
		return over(c, a, "regions", a->limits.regions);
	/* The limit may have been lowered below what is used. */
	if (used.bytes > a->limits.bytes ||
	    length > a->limits.bytes - used.bytes)
		return over(c, a, "bytes of registered memory",
			    a->limits.bytes);
	return 0;
}

int requests_restrict_memory(struct call *c)
{
	if (!c->client->account || c->q->p.host->kind != SRDMA_PORT_SHM ||
	    c->message->nfds)
		return 0;
	return requests_refuse(
		c, -EPERM,
		"a program of another user than the worker's registers memfds "
		"only: allocate the memory by pd.alloc() or srdma_alloc_mr()");
}
