#include "requests.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "log.h"
#include "peer.h"
#include "requests_impl.h"

enum { MAX_WAITING = 1024, LEG_FDS = SRDMA_LEG_FDS };

int requests_refuse(struct call *c, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->out.text, sizeof(c->out.text), format, args);
	va_end(args);
	return err;
}

int requests_refused(struct call *c, int err)
{
	const char *why = srdma_relay_why(c->q->p.relay);

	return requests_refuse(c, err, "%s",
			       why && *why ? why : strerror(-err));
}

/* RFC 5042 R3-1, R2.3.4-1 */
int requests_leg(struct call *c, uint32_t id, struct srdma_leg **leg)
{
	*leg = legs_find(&c->q->legs, c->client->number, id);
	if (*leg)
		return 0;
	if (srdma_relay_leg_ended(c->q->p.relay, id) == -ETIMEDOUT)
		return requests_refuse(
			c, -EPERM,
			"leg %u has ended: its host's memory did not answer in "
			"time; register no memory with a fault handler in user "
			"space, and OPEN another leg",
			id);
	return requests_refuse(
		c, -EPERM,
		"leg %u has ended or is not a leg of this connection: OPEN "
		"one here, or ATTACH with its token",
		id);
}

int requests_leg_of_qp(struct call *c, uint32_t qpn, struct srdma_leg **leg)
{
	*leg = legs_find_qp(&c->q->legs, c->client->number, qpn);
	if (*leg)
		return 0;
	if (!srdma_relay_leg_of_qp(c->q->p.relay, qpn))
		return requests_refuse(c, -ENOENT,
				       "QP 0x%06x does not exist, or no longer",
				       qpn);
	return requests_refuse(
		c, -EPERM,
		"QP 0x%06x is on no leg of this connection: INIT it "
		"here, or ATTACH to its leg",
		qpn);
}

int requests_defer(struct call *c, struct srdma_leg *leg,
		   const struct deferred *d)
{
	struct deferred waiting = *d;
	int err;

	waiting.client = c->client;
	waiting.kind = c->in.kind;
	waiting.tag = c->in.tag;
	waiting.leg = srdma_relay_leg_id(leg);
	err = deferred_add(&c->q->deferred, &waiting);
	if (err)
		return requests_refuse(c, err, "out of memory");
	c->client->waiting++;
	return REQUESTS_DEFERRED;
}

static int handle_hello(struct call *c)
{
	struct srdma_ctl_hello_answer *a = &c->out.hello;
	const struct requests_params *p = &c->q->p;

	if (c->in.version != SRDMA_CTL_VERSION)
		return requests_refuse(
			c, -EPROTONOSUPPORT,
			"version %u of the control protocol: this worker "
			"supports version %d",
			c->in.version, SRDMA_CTL_VERSION);
	a->version = SRDMA_CTL_VERSION;
	a->flags = p->allow_unprotected ? SRDMA_CTL_ALLOW_UNPROTECTED : 0;
	a->host_kind = p->host->kind;
	a->pid = (uint32_t)getpid();
	snprintf(a->host_device, sizeof(a->host_device), "%s", p->host_dev);
	snprintf(a->wire, sizeof(a->wire), "%s", p->wire->address);
	snprintf(a->name, sizeof(a->name), "%s", p->name);
	memcpy(a->suites, p->suites, sizeof(a->suites));
	a->threads = p->workers;
	a->thread = p->index;
	memcpy(a->gid, p->gid, sizeof(a->gid));
	return 0;
}

/*
 * The client's pid. 0: its process has ended, and the pid may be reused; or it is
 * of another user, whose memory process_vm_* would reach by the privileges of the
 * worker.
 */
static int living_pid(const struct client *client)
{
	if (client->uid != geteuid())
		return 0;
	return client->pidfd >= 0 && !peer_ended(client->pidfd) ? client->pid
								: 0;
}

static int handle_open(struct call *c)
{
	struct srdma_leg_params params = {
		.ring = c->in.open.ring,
		.shared = c->in.open.flags & SRDMA_CTL_SHARED,
		.fds = { -1, -1, -1 },
		.pid = living_pid(c->client),
		.pidfd = c->client->pidfd,
		.account = c->client->account,
	};
	struct srdma_leg_answer answer = { .fds = { -1, -1 } };
	struct srdma_leg *leg;
	int rc;

	if (c->in.open.flags & ~(uint32_t)SRDMA_CTL_SHARED)
		return requests_refuse(
			c, -EINVAL,
			"OPEN with flags 0x%x: give 0, or %d for a trust group",
			c->in.open.flags, SRDMA_CTL_SHARED);
	for (unsigned i = 0; i < c->message->nfds; i++)
		params.fds[i] = c->message->fds[i];
	rc = srdma_relay_leg_open(c->q->p.relay, &params, &leg, &answer);
	if (rc < 0)
		return requests_refused(c, rc);
	legs_add(&c->q->legs, c->client->number, leg,
		 &(struct legs_opener){ c->client->uid, c->client->account,
					c->client->keep });
	c->out.opened.leg = srdma_relay_leg_id(leg);
	memcpy(c->out.opened.token, params.token, SRDMA_TOKEN_LEN);
	memcpy(c->out.opened.address, answer.address, SRDMA_NAME_LEN);
	memcpy(c->fds, answer.fds, sizeof(c->fds));
	srdma_wipe(params.token, sizeof(params.token));
	log_debug("leg %u opened by process %d", c->out.opened.leg,
		  c->client->pid);
	return 0;
}

static int handle_attach(struct call *c)
{
	struct srdma_ctl_attach_answer *out = &c->out.attached;
	const int restricted = requests_restrict_is(c->client->account);
	const struct legs_opener *opener = NULL;
	struct srdma_leg *leg;

	leg = srdma_relay_leg_by_token(c->q->p.relay, c->in.token);
	if (leg)
		opener = legs_opener(&c->q->legs, leg);
	if (!opener || (restricted && opener->account != c->client->account))
		return requests_refuse(
			c, -EPERM,
			"no leg has this token: give the token of the OPEN "
			"response while its process is alive");
	legs_attach(&c->q->legs, c->client->number, leg);
	if (restricted)
		legs_adopt(&c->q->legs, c->client->number, c->client->keep,
			   leg);
	out->leg = srdma_relay_leg_id(leg);
	out->user = opener->user;
	if (requests_restrict_is(opener->account))
		snprintf(out->account, sizeof(out->account), "%s",
			 srdma_account_name(opener->account));
	return 0;
}

static int handle_stats(struct call *c)
{
	struct srdma_ctl_stats_answer *a = &c->out.stats;

	_Static_assert(sizeof(struct srdma_stats) <= sizeof(a->counter),
		       "the counters must fit in a message");
	srdma_relay_stats_measure(c->q->p.relay);
	a->count = srdma_stats_count();
	memcpy(a->counter, srdma_relay_stats(c->q->p.relay),
	       a->count * sizeof(a->counter[0]));
	return 0;
}

/*
 * File descriptors may accompany a message only on the shared-memory port (11).
 */
static const struct {
	int (*handle)(struct call *c);
	unsigned least_fds, most_fds;
} handlers[SRDMA_CTL_KINDS] = {
	[SRDMA_CTL_HELLO] = { handle_hello, 0, 0 },
	[SRDMA_CTL_OPEN] = { handle_open, LEG_FDS, LEG_FDS },
	[SRDMA_CTL_ATTACH] = { handle_attach, 0, 0 },
	[SRDMA_CTL_REG_MR] = { requests_memory_register, 0, 1 },
	[SRDMA_CTL_DEREG_MR] = { requests_memory_deregister, 0, 0 },
	[SRDMA_CTL_INIT] = { requests_qp_init, 0, 0 },
	[SRDMA_CTL_KEYS] = { requests_qp_keys, 0, 0 },
	[SRDMA_CTL_WAIT] = { requests_qp_wait, 0, 0 },
	[SRDMA_CTL_DESTROY] = { requests_qp_destroy, 0, 0 },
	[SRDMA_CTL_STATS] = { handle_stats, 0, 0 },
	[SRDMA_CTL_KEY] = { requests_qp_secret, 0, 0 },
	[SRDMA_CTL_CAP] = { requests_memory_capability, 0, 0 },
	[SRDMA_CTL_INSTALL] = { requests_memory_install, 0, 0 },
	[SRDMA_CTL_UNINSTALL] = { requests_memory_uninstall, 0, 0 },
	[SRDMA_CTL_REVOKE] = { requests_memory_revoke, 0, 0 },
	[SRDMA_CTL_ROTATE] = { requests_qp_rotate, 0, 0 },
	[SRDMA_CTL_REKEY] = { requests_qp_rekey, 0, 0 },
	[SRDMA_CTL_EXPIRE] = { requests_qp_expire, 0, 0 },
	[SRDMA_CTL_END] = { requests_qp_end, 0, 0 },
	[SRDMA_CTL_LIFE] = { requests_qp_life, 0, 0 },
	[SRDMA_CTL_AGENT] = { requests_agent, 0, 0 },
	[SRDMA_CTL_PROVE] = { requests_qp_prove, 0, 0 },
	[SRDMA_CTL_KEEP] = { requests_agent_keep, 0, 0 },
	[SRDMA_CTL_ADOPT] = { requests_agent_adopt, 0, 0 },
	[SRDMA_CTL_RESTRICT] = { requests_restrict, 0, 0 },
	[SRDMA_CTL_QUOTA] = { requests_quota, 0, 0 },
	[SRDMA_CTL_USAGE] = { requests_quota_usage, 0, 0 },
	[SRDMA_CTL_QPS] = { requests_quota_qps, 0, 0 },
	[SRDMA_CTL_WITHDRAW] = { requests_memory_withdraw, 0, 0 },
	[SRDMA_CTL_MODIFY] = { requests_qp_modify, 0, 0 },
	[SRDMA_CTL_SHARE] = { requests_qp_share, 0, 0 },
	[SRDMA_CTL_RESET] = { requests_qp_reset, 0, 0 },
	[SRDMA_CTL_REINIT] = { requests_qp_reinit, 0, 0 },
	[SRDMA_CTL_REPLACE] = { requests_memory_replace, 0, 0 },
};

static int check_fds(struct call *c)
{
	int shm = c->q->p.host->kind == SRDMA_PORT_SHM;
	unsigned least = shm ? handlers[c->in.kind].least_fds : 0;
	unsigned most = shm ? handlers[c->in.kind].most_fds : 0;

	if (c->message->nfds >= least && c->message->nfds <= most)
		return 0;
	return requests_refuse(
		c, -EPROTO,
		"%s with %s%u file descriptors: this worker accepts %u "
		"to %u with it",
		srdma_ctl_name(c->in.kind),
		c->message->nfds > REQUESTS_MAX_FDS ? "more than " : "",
		c->message->nfds > REQUESTS_MAX_FDS ? REQUESTS_MAX_FDS
						    : c->message->nfds,
		least, most);
}

static int malformed(struct call *c)
{
	const struct srdma_ctl_span want =
		srdma_ctl_body_len(c->in.kind, SRDMA_CTL_REQUEST);
	size_t len = c->message->len - SRDMA_CTL_HEADER_LEN;
	char range[32] = "";

	if (c->in.status != 0)
		return requests_refuse(c, -EPROTO,
				       "a request has status 0, not %u",
				       c->in.status);
	if (want.most > want.least)
		snprintf(range, sizeof(range), "%u to ", want.least);
	if (len < want.least || len > want.most)
		return requests_refuse(
			c, -EPROTO, "%s has a body of %s%u bytes, not %zu",
			srdma_ctl_name(c->in.kind), range, want.most, len);
	return requests_refuse(
		c, -EPROTO,
		"%s: a text is not UTF-8 padded with zeros, or a reserved field "
		"is not zero",
		srdma_ctl_name(c->in.kind));
}

static int dispatch(struct call *c)
{
	int rc;

	if (c->message->len > SRDMA_CTL_MAX)
		return requests_refuse(c, -EPROTO,
				       "a message is at most %d bytes",
				       SRDMA_CTL_MAX);
	rc = srdma_ctl_decode(&c->in, SRDMA_CTL_REQUEST, c->message->data,
			      c->message->len);
	if (rc == -EOPNOTSUPP)
		return requests_refuse(
			c, rc, "unknown kind %u: this worker accepts 1 to %d",
			c->in.kind, SRDMA_CTL_KINDS - 1);
	if (rc < 0)
		return malformed(c);
	rc = check_fds(c);
	if (rc == 0)
		rc = requests_restrict_check(c);
	if (rc == 0)
		rc = requests_agent_check(c);
	if (rc < 0)
		return rc;
	if (c->client->waiting >= MAX_WAITING)
		return requests_refuse(
			c, -EBUSY,
			"%d requests of this connection are pending: "
			"wait for some responses",
			MAX_WAITING);
	return handlers[c->in.kind].handle(c);
}

/* Send out as the response to the request with its kind and tag. */
static void reply(const struct requests *q, struct client *client,
		  struct srdma_ctl_msg *out, const int fds[REQUESTS_ANSWER_FDS])
{
	struct answer a;
	int len = srdma_ctl_encode(a.data, SRDMA_CTL_ANSWER, out);

	if (len < 0) { /* one of our strings is not valid UTF-8 */
		log_error("response to %s cannot be encoded: %s",
			  srdma_ctl_name(out->kind), strerror(-len));
		return;
	}
	if (out->status != 0)
		log_debug("refused process %d: %s", client->pid, out->text);
	a.len = (size_t)len;
	memcpy(a.fds, fds, sizeof(a.fds));
	q->p.send(client, &a);
	srdma_wipe(a.data, a.len); /* it may contain a token, a secret or a
				      capability */
}

static uint32_t status_of(int rc)
{
	return rc < 0 ? (uint32_t)-rc : 0;
}

static void reply_deferred(void *ctx, const struct deferred *d,
			   struct srdma_ctl_msg *out, int rc)
{
	static const int none[REQUESTS_ANSWER_FDS] = { -1, -1 };

	if (!d->client)
		return;
	d->client->waiting--;
	out->kind = d->kind;
	out->tag = d->tag;
	out->status = status_of(rc);
	reply(ctx, d->client, out, none);
}

int requests_handle(struct requests *q, struct client *client,
		    const struct message *message)
{
	struct call c = {
		.q = q,
		.client = client,
		.message = message,
		.fds = { -1, -1 },
	};
	size_t len =
		message->len < SRDMA_CTL_MAX ? message->len : SRDMA_CTL_MAX;
	int rc = srdma_ctl_peek(&c.in, message->data, len);

	if (rc < 0)
		return rc;
	rc = dispatch(&c);
	if (rc != REQUESTS_DEFERRED) {
		c.out.kind = c.in.kind;
		c.out.tag = c.in.tag;
		c.out.status = status_of(rc);
		reply(q, client, &c.out, c.fds);
	}
	srdma_wipe(&c.in, sizeof(c.in));
	srdma_wipe(&c.out, sizeof(c.out));
	return 0;
}

unsigned requests_poll(struct requests *q)
{
	legs_expire(&q->legs);
	return deferred_poll(&q->deferred);
}

void requests_leave(struct requests *q, struct client *client)
{
	requests_agent_leave(q, client);
	deferred_leave(&q->deferred, client);
	legs_leave(&q->legs, client->number);
	requests_account_leave(client);
}

uint64_t requests_timer(const struct requests *q)
{
	return legs_timer(&q->legs);
}

int requests_create(struct requests **out, const struct requests_params *p)
{
	struct requests *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->p = *p;
	q->legs.relay = p->relay;
	deferred_init(&q->deferred);
	q->deferred.legs = &q->legs;
	q->deferred.answer = reply_deferred;
	q->deferred.ctx = q;
	*out = q;
	return 0;
}

void requests_destroy(struct requests *q)
{
	if (!q)
		return;
	deferred_clear(&q->deferred);
	free(q);
}
