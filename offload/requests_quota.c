/*
 * Quotas and what they are compared with (docs/local-interface.md 3.10): QUOTA
 * of the agent, and USAGE and QPS.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "requests_impl.h"

_Static_assert((int)SRDMA_RESOURCES <= (int)SRDMA_CTL_RESOURCES,
	       "a place per resource");

enum { LOOKS = 64 }; /* QPs of others that a request passes over */

/*
 * An agent that does not know a resource leaves its place zero: as if both were
 * not given.
 */
static void decode_place(const uint8_t *at, uint64_t *minimum, uint64_t *limit)
{
	*minimum = srdma_load64(at);
	*limit = srdma_load64(at + 8);
	if (!*minimum && !*limit)
		*minimum = *limit = SRDMA_QUOTA_DEFAULT;
}

/* 0, or -1: a reserved place gives a value. */
static int decode(struct srdma_quota *out, const struct srdma_ctl_quota *in)
{
	const uint8_t *at = in->quotas;

	out->idle = in->idle;
	for (int r = 0; r < SRDMA_CTL_RESOURCES; r++) {
		uint64_t minimum, limit;

		decode_place(at, &minimum, &limit);
		at += SRDMA_CTL_QUOTA_LEN;
		if (r < SRDMA_RESOURCES) {
			out->of[r].minimum = minimum;
			out->of[r].limit = limit;
		} else if (minimum != SRDMA_QUOTA_DEFAULT ||
			   limit != SRDMA_QUOTA_DEFAULT) {
			return -1;
		}
	}
	return 0;
}

static int refuse_quota(struct call *c, int err)
{
	const struct srdma_ctl_quota *in = &c->in.quota;

	switch (err) {
	case -EINVAL:
		return requests_refuse(
			c, err,
			"QUOTA of kind %u for \"%s\": the kind is 1 to %d, a "
			"minimum is at most its limit, and kind %d has no "
			"minima",
			in->kind, in->name, SRDMA_ACCOUNT_KINDS - 1,
			SRDMA_ACCOUNT_GROUP);
	case -ENOSPC:
		return requests_refuse(
			c, -EDQUOT,
			"the worker has its limit of %d quotas with a name, or "
			"of %d accounts: give fewer",
			SRDMA_LEDGER_QUOTAS, SRDMA_LEDGER_ACCOUNTS);
	default:
		return requests_refuse(c, err, "no memory for a quota");
	}
}

int requests_quota(struct call *c)
{
	const struct srdma_ctl_quota *in = &c->in.quota;
	struct srdma_ledger *l = srdma_relay_ledger(c->q->p.relay);
	struct srdma_quota quota;
	int rc;

	if (in->flags & ~(uint32_t)SRDMA_CTL_QUOTA_LAST)
		return requests_refuse(c, -EINVAL, "QUOTA with flags %#x",
				       in->flags);
	if (decode(&quota, in) < 0)
		return requests_refuse(
			c, -EINVAL,
			"QUOTA for resource %d or above: this worker has %d",
			SRDMA_RESOURCES, SRDMA_RESOURCES);
	rc = srdma_quota_set(l, (enum srdma_account_kind)in->kind, in->name,
			     &quota, in->revision);
	if (rc < 0)
		return refuse_quota(c, rc);
	if (in->flags & SRDMA_CTL_QUOTA_LAST)
		srdma_quota_prune(l, in->revision);
	return 0;
}

static void encode_usage(uint8_t *at, const struct srdma_account *a)
{
	for (int r = 0; r < SRDMA_RESOURCES; r++) {
		struct srdma_usage u;

		srdma_account_usage(a, (enum srdma_resource)r, &u);
		srdma_store64(at, u.used);
		srdma_store64(at + 8, u.minimum);
		srdma_store64(at + 16, u.limit);
		srdma_store64(at + 24, u.refused);
		at += SRDMA_CTL_USAGE_LEN;
	}
}

int requests_quota_usage(struct call *c)
{
	struct srdma_ctl_usage_answer *out = &c->out.usage;
	struct srdma_relay *relay = c->q->p.relay;
	struct srdma_account *a =
		srdma_ledger_next(srdma_relay_ledger(relay), c->in.after);
	const struct srdma_account *group;

	if (requests_restrict_is(c->client->account))
		return requests_refuse(
			c, -EPERM,
			"USAGE on a restricted connection: only the worker's "
			"own user and root see the accounts of others");
	if (!a)
		return requests_refuse(
			c, -ENOENT, "no account has a higher serial than %llu",
			(unsigned long long)c->in.after);
	out->serial = srdma_account_serial(a);
	out->kind = srdma_account_kind(a);
	out->idle = srdma_account_idle(a);
	snprintf(out->name, sizeof(out->name), "%s", srdma_account_name(a));
	group = srdma_account_parent(a);
	if (group)
		snprintf(out->group, sizeof(out->group), "%s",
			 srdma_account_name(group));
	encode_usage(out->usages, a);
	srdma_relay_counts(relay, a, &out->counts);
	return 0;
}

static int may_see(const struct call *c, const struct srdma_leg *leg)
{
	return !requests_restrict_is(c->client->account) ||
	       legs_find(&c->q->legs, c->client->number,
			 srdma_relay_leg_id(leg));
}

/* Of the QPs examined, the first that the client may see. 0 or -ENOENT. */
static int next_qp(struct call *c, uint64_t *cursor, struct srdma_qp_report *s,
		   struct srdma_leg **leg)
{
	for (int looks = 0; looks < LOOKS; looks++) {
		int rc = srdma_relay_qp_next(c->q->p.relay, cursor, s, leg);

		if (rc < 0 || !*leg || may_see(c, *leg))
			return rc;
	}
	*leg = NULL;
	return 0;
}

int requests_quota_qps(struct call *c)
{
	struct srdma_ctl_qps_answer *out = &c->out.qps;
	struct srdma_qp_report s;
	struct srdma_leg *leg;

	out->next = c->in.after;
	if (next_qp(c, &out->next, &s, &leg) < 0)
		return requests_refuse(c, -ENOENT, "there are no more QPs");
	if (!leg)
		return 0;
	out->qpn = s.qpn;
	out->leg = srdma_relay_leg_id(leg);
	out->state = s.state;
	out->reason = s.reason;
	out->idle = s.idle;
	snprintf(out->identity, sizeof(out->identity), "%s", s.identity);
	out->counts = s.counts;
	return 0;
}
