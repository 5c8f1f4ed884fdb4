/*
 * Restricted connections (local-interface.md 3.9): RESTRICT, by which the agent
 * prepares a connection for a program of another user, the requests that such a
 * connection may not send, and its memory.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "closer.h"
#include "log.h"
#include "requests_impl.h"

int requests_restrict_is(const struct srdma_account *a)
{
	return a && srdma_account_kind(a) == SRDMA_ACCOUNT_PROGRAM;
}

int requests_restrict_check(struct call *c)
{
	if (!requests_restrict_is(c->client->account) ||
	    !requests_agent_only(c->in.kind))
		return 0;
	return requests_refuse(
		c, -EPERM,
		"%s on a restricted connection: only the agent may send it",
		srdma_ctl_name(c->in.kind));
}

static int check(struct call *c)
{
	const struct srdma_ctl_restrict *in = &c->in.restrict_;

	if (!*in->account)
		return requests_refuse(c, -EINVAL,
				       "RESTRICT without an account: name one");
	if (c->client->waiting || legs_used_by(&c->q->legs, c->client->number))
		return requests_refuse(
			c, -EISCONN,
			"this connection is in use: restrict a new one");
	if (in->keep > SRDMA_CTL_KEEP_LEGS_MAX)
		return requests_refuse(
			c, -EINVAL,
			"RESTRICT with legs kept for %u s: give at most %d",
			in->keep, SRDMA_CTL_KEEP_LEGS_MAX);
	return 0;
}

static void set_limits(struct srdma_account *a,
		       const struct srdma_ctl_restrict *in)
{
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q)); /* SRDMA_QUOTA_DEFAULT */
	q.of[SRDMA_RES_CONNECTIONS].limit = in->connections;
	q.of[SRDMA_RES_LEGS].limit = in->legs;
	q.of[SRDMA_RES_QPS].limit = in->qps;
	q.of[SRDMA_RES_REGIONS].limit = in->regions;
	q.of[SRDMA_RES_BYTES].limit = in->bytes;
	srdma_account_limit(a, &q);
}

/* The account of this RESTRICT, with its limits. */
static int open_account(struct call *c, struct srdma_account **out)
{
	const struct srdma_ctl_restrict *in = &c->in.restrict_;
	struct srdma_ledger *l = srdma_relay_ledger(c->q->p.relay);
	struct srdma_account *group = NULL;
	int rc = 0;

	if (*in->group)
		rc = srdma_account_open(l, SRDMA_ACCOUNT_GROUP, in->group, NULL,
					&group);
	if (rc == 0)
		rc = srdma_account_open(l, SRDMA_ACCOUNT_PROGRAM, in->account,
					group, out);
	srdma_account_close(group); /* the account holds it */
	if (rc < 0)
		return requests_account_full(c, rc, in->account);
	set_limits(*out, in);
	return 0;
}

int requests_restrict(struct call *c)
{
	const struct srdma_ctl_restrict *in = &c->in.restrict_;
	struct client *client = c->client;
	struct srdma_account *a;
	int rc = check(c);

	if (rc == 0 && closer_is_crowded(in->account))
		rc = requests_refuse(
			c, -EDQUOT,
			"the worker still closes %d files that programs of %s passed: try again later",
			CLOSER_FILES, in->account);
	if (rc == 0)
		rc = open_account(c, &a);
	if (rc == 0)
		rc = requests_account_move(c, a);
	if (rc < 0)
		return rc;
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

int requests_restrict_memory(struct call *c)
{
	if (!requests_restrict_is(c->client->account) ||
	    c->q->p.host->kind != SRDMA_PORT_SHM || c->message->nfds)
		return 0;
	return requests_refuse(
		c, -EPERM,
		"a program of another user than the worker's registers memfds "
		"only: allocate the memory by pd.alloc() or srdma_alloc_mr()");
}
