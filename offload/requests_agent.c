/*
 * Requests of the agent: AGENT, the role itself, and KEEP and ADOPT, which let
 * an agent that starts again take its sessions over (local-interface.md 3.8).
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "log.h"
#include "requests_impl.h"

/* Kinds that only the agent may send, as bits. */
#define BIT(NAME) (UINT64_C(1) << SRDMA_CTL_##NAME)
static const uint64_t keys_and_ends = BIT(KEYS) | BIT(KEY) | BIT(REKEY) |
				      BIT(ROTATE) | BIT(EXPIRE) | BIT(END) |
				      BIT(LIFE) | BIT(PROVE);
static const uint64_t always =
	BIT(KEEP) | BIT(ADOPT) | BIT(RESTRICT) | BIT(QUOTA);
_Static_assert(SRDMA_CTL_KINDS <= 64, "a bit per kind");

int requests_agent_only(uint32_t kind)
{
	return (keys_and_ends | always | BIT(AGENT)) >> kind & 1;
}

/* RFC 5042 R3-1 */
int requests_agent_check(struct call *c)
{
	const struct requests *q = c->q;
	const uint64_t bit = UINT64_C(1) << c->in.kind;

	if (c->client->is_agent &&
	    (!(bit & always) ||
	     !(c->client->agent_flags & SRDMA_CTL_AGENT_ATTACHED)))
		return 0;
	if (bit & always)
		return requests_refuse(
			c, -EPERM,
			"%s without the role AGENT for all legs: send AGENT "
			"first",
			srdma_ctl_name(c->in.kind));
	if (!(bit & keys_and_ends) || (!q->agents && !q->p.agent_only))
		return 0;
	return requests_refuse(
		c, -EPERM,
		"%s is accepted from the agent of this worker only: connect "
		"through the agent",
		srdma_ctl_name(c->in.kind));
}

void requests_agent_leave(struct requests *q, struct client *client)
{
	if (!client->is_agent)
		return;
	client->is_agent = 0;
	legs_set_agent(&q->legs, client->number, 0);
	if (--q->agents == 0)
		log_info("the agent, process %d, has disconnected",
			 client->pid);
}

/* RFC 5042 R6.5-1, A6.5b */
int requests_agent(struct call *c)
{
	struct requests *q = c->q;
	struct client *client = c->client;

	if (c->in.agent.flags & ~(uint32_t)SRDMA_CTL_AGENT_ATTACHED)
		return requests_refuse(c, -EINVAL, "AGENT with flags %#x",
				       c->in.agent.flags);
	if (client->uid != q->p.agent_uid && client->uid != 0)
		return requests_refuse(
			c, -EPERM,
			"user %u: the agent of this worker is of user %u or root",
			client->uid, q->p.agent_uid);
	if (client->pid == 0)
		return requests_refuse(
			c, -EPERM,
			"the agent is in another PID namespace: start it in "
			"that of the worker");
	if (client->is_agent && client->agent_flags != c->in.agent.flags)
		return requests_refuse(
			c, -EISCONN,
			"this connection has the role AGENT with other flags");
	if (client->is_agent)
		return 0;
	if (q->agents && client->pid != q->agent_pid)
		return requests_refuse(
			c, -EBUSY,
			"process %d is the agent of this worker: stop it, or "
			"send AGENT again when its connections have ended",
			q->agent_pid);
	if (!q->agents)
		log_info("process %d of user %u is the agent", client->pid,
			 client->uid);
	q->agents++;
	q->agent_pid = client->pid;
	client->is_agent = 1;
	client->agent_flags = c->in.agent.flags;
	if (!(c->in.agent.flags & SRDMA_CTL_AGENT_ATTACHED))
		legs_set_agent(&q->legs, client->number, 1);
	return 0;
}

int requests_agent_keep(struct call *c)
{
	const struct srdma_ctl_keep *in = &c->in.keep;
	struct srdma_keep keep = { .n = in->n, .len = in->len };
	int rc;

	for (unsigned i = 0; i < SRDMA_KEEP_QPS; i++)
		keep.qpn[i] = srdma_load32(in->qpns + 4 * i);
	memcpy(keep.data, in->data, sizeof(keep.data));
	rc = srdma_relay_keep(c->q->p.relay, &keep);
	srdma_wipe(keep.data, sizeof(keep.data));
	return rc < 0 ? requests_refused(c, rc) : 0;
}

static void encode_qp(uint8_t *out, const struct srdma_kept_qp *qp)
{
	srdma_store32(out, qp->qpn);
	srdma_store32(out + 4, qp->index << 24 | qp->peer_qpn);
	memcpy(out + 8, qp->peer_eid, sizeof(qp->peer_eid));
}

int requests_agent_adopt(struct call *c)
{
	struct srdma_ctl_adopt_answer *out = &c->out.adopted;
	struct srdma_kept kept;
	int rc = srdma_relay_adopt(c->q->p.relay, c->in.after, &kept);

	if (rc < 0)
		return requests_refused(c, rc);
	out->serial = kept.serial;
	out->leg = kept.leg;
	out->n = kept.n;
	out->len = kept.len;
	for (uint32_t i = 0; i < kept.n; i++)
		encode_qp(out->qps + i * SRDMA_CTL_KEPT_QP_LEN, &kept.qp[i]);
	memcpy(out->data, kept.data, sizeof(out->data));
	srdma_wipe(&kept, sizeof(kept));
	return 0;
}
