/*
 * Creation and end of QPs: INIT, WAIT, END, DESTROY, RESET, REINIT of the control socket
 * (docs/protocol.md 7; local-interface.md 3, 5).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "memory/rights.h"
#include "path/path.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

enum {
	DEFAULT_TIMEOUT_MS = 30000,
	CLOSE_PATIENCE_MS = 1000, /* most time that a NAK or CLOSE waits */
	/* Most descriptors that a host has on their way: the requests of full
	 * queues, and as many of QPs that it destroyed. */
	MAX_AHEAD = 2 * SRDMA_MAX_RING,
};

/* RFC 5042 R6.4.3.2-1, R6.4.3.2-2, R6.4.3.2-3, A6.4.3.2a */
static int check_qp(struct srdma_relay *r, const struct srdma_leg *leg,
		    const struct srdma_qp_params *p)
{
	if (!p->sq || !p->rq || p->sq > SRDMA_MAX_DEPTH ||
	    p->rq > SRDMA_MAX_DEPTH)
		return srdma_relay_refuse(
			r, -EINVAL,
			"queues of %u and %u: the depths must be 1..%u", p->sq,
			p->rq, SRDMA_MAX_DEPTH);
	if (p->timeout_ms > SRDMA_MAX_TIMEOUT_MS)
		return srdma_relay_refuse(
			r, -EINVAL, "a timeout of %u ms: at most %u is allowed",
			p->timeout_ms, SRDMA_MAX_TIMEOUT_MS);
	if (p->mtu && (p->mtu < SRDMA_MIN_MTU || p->mtu > r->params.mtu))
		return srdma_relay_refuse(r, -EINVAL,
					  "an mtu of %u: %u..%u is allowed",
					  p->mtu, SRDMA_MIN_MTU, r->params.mtu);
	if (leg->reserved + p->sq + p->rq + 1 > leg->cq.ring)
		return srdma_relay_refuse(
			r, -ENOSPC,
			"the leg's ring of %u records cannot hold %u more; open the PD with a larger ring",
			leg->cq.ring, p->sq + p->rq + 1);
	return 0;
}

/* Random numbers of a new QP. */
struct name {
	uint32_t qpn;
	uint64_t first_pn;
};

/* A QPN of this process, made of 24 random bits. 0: none. */
static uint32_t qpn_of(const struct srdma_relay *r, uint32_t random)
{
	const uint32_t n = r->params.processes;
	uint32_t qpn = random - random % n + r->params.process;

	return qpn <= SRDMA_MAX_QPN ? qpn : 0;
}

/* qpn: that of the QP; 0: it is drawn. */
static int choose_name(struct srdma_relay *r, uint32_t qpn, struct name *name,
		       struct srdma_qp_info *info)
{
	uint8_t bytes[6];
	int err;

	do {
		err = srdma_relay_random(r, bytes, sizeof(bytes));
		name->qpn = qpn ? qpn : qpn_of(r, srdma_load24(bytes));
	} while (!err && (!name->qpn || srdma_relay_qp(r, name->qpn)));
	if (!err)
		err = srdma_relay_random(r, info->random, sizeof(info->random));
	/* [2^23, 2^24): widening a packet number gives no negative one. */
	name->first_pn = SRDMA_MIN_PN | (srdma_load24(bytes + 3) & 0x7fffff);
	return err;
}

/* RFC 5042 R6.4.3.2-4 */
static void join_leg(struct srdma_leg *leg, struct srdma_qp *qp)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);

	e->leg = leg;
	e->leg_next = leg->qps;
	if (e->leg_next)
		srdma_qp_entry(e->leg_next)->leg_at = &e->leg_next;
	e->leg_at = &leg->qps;
	leg->qps = qp;
}

static void leave_leg(struct srdma_qp *qp)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);

	*e->leg_at = e->leg_next;
	if (e->leg_next)
		srdma_qp_entry(e->leg_next)->leg_at = e->leg_at;
}

static void enter(struct srdma_relay *r, struct srdma_qp *qp)
{
	struct srdma_qp **bucket = srdma_relay_bucket(r, srdma_qp_number(qp));

	srdma_qp_entry(qp)->hash_next = *bucket;
	*bucket = qp;
	r->qp_count++;
}

static void leave(struct srdma_relay *r, struct srdma_qp *qp)
{
	struct srdma_qp **at = srdma_relay_bucket(r, srdma_qp_number(qp));

	while (*at != qp)
		at = &srdma_qp_entry(*at)->hash_next;
	*at = srdma_qp_entry(qp)->hash_next;
	r->qp_count--;
}

/* Completion records that the QP may need: of its requests and receives, and
 * QP_EVENT. */
static uint32_t records_of(const struct srdma_qp *qp)
{
	return srdma_post_depth(qp) + srdma_receive_queue_depth(qp) + 1;
}

static int create(struct srdma_relay *r, struct srdma_leg *leg,
		  const struct srdma_qp_params *params, uint32_t qpn,
		  struct srdma_qp **out, struct srdma_qp_info *info)
{
	const uint32_t ms =
		params->timeout_ms ? params->timeout_ms : DEFAULT_TIMEOUT_MS;
	struct srdma_qp_make make = {
		.env = &r->env,
		.leg = leg,
		.cq = &leg->cq,
		.pdkeys = &leg->keys,
		.captable = &leg->captable,
		.sq = params->sq,
		.rq = params->rq,
		.timeout = ms * SRDMA_MS,
	};
	struct name name;
	int err = choose_name(r, qpn, &name, info);

	if (err)
		return err;
	make.qpn = name.qpn;
	err = srdma_qp_create(out, &make);
	if (err)
		return srdma_relay_refuse(r, err, "no memory for a QP");
	srdma_path_begin(*out, name.first_pn);
	return 0;
}

/* qpn: that of the QP; 0: it is drawn. */
/* RFC 5042 R6.4.1-1 */
static int init(struct srdma_relay *r, struct srdma_leg *leg,
		const struct srdma_qp_params *params, uint32_t qpn,
		struct srdma_qp_info *info)
{
	struct srdma_relay_entry *e;
	struct srdma_qp *qp;
	const uint32_t entries = params->sq + params->rq;
	int err = check_qp(r, leg, params);

	if (!err)
		err = srdma_relay_charge_qp(r, leg->account, entries);
	if (err)
		return err;
	err = create(r, leg, params, qpn, &qp, info);
	if (err) {
		srdma_relay_release_qp(leg->account, entries);
		return err;
	}
	e = srdma_qp_entry(qp);
	e->last_work = r->env.now;
	e->mtu = params->mtu ? params->mtu : r->params.mtu;
	enter(r, qp);
	join_leg(leg, qp);
	leg->reserved += records_of(qp);
	info->qpn = srdma_qp_number(qp);
	memcpy(info->eid, r->eid, sizeof(info->eid));
	info->pn = srdma_path_first(qp);
	info->mtu = e->mtu;
	info->window = r->params.window;
	info->reads = r->params.reads;
	return 0;
}

int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info)
{
	return init(r, leg, params, 0, info);
}

int srdma_relay_qp_share(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t holder)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);
	struct srdma_qp *from = qp ? srdma_relay_own_qp(r, leg, holder) : NULL;

	if (!from)
		return -ENOENT;
	if (srdma_qp_state(qp) != SRDMA_QP_INIT ||
	    srdma_qp_state(from) != SRDMA_QP_INIT ||
	    srdma_shared_queue_join(qp, from))
		return srdma_relay_refuse(
			r, -EINVAL,
			"QP %u cannot take the receives of QP %u: both must be "
			"in INIT, the first one without receives, and neither "
			"may share a queue already",
			qpn, holder);
	return 0;
}

/* The QPs that take its receives get none any more. */
static void end_sharing(struct srdma_leg *leg, struct srdma_qp *holder)
{
	struct srdma_qp *qp = leg->qps;

	for (; qp && srdma_shared_queue_users(holder);
	     qp = srdma_qp_entry(qp)->leg_next)
		srdma_shared_queue_leave(qp, holder);
}

void srdma_relay_forget(struct srdma_qp *qp)
{
	struct srdma_leg *leg = srdma_qp_entry(qp)->leg;
	struct srdma_account *identity = srdma_qp_identity(qp);
	const uint32_t entries =
		srdma_post_depth(qp) + srdma_receive_queue_depth(qp);

	end_sharing(leg, qp);
	srdma_keep_leave(qp);
	srdma_relay_fold_counts(qp);
	leave(leg->relay, qp);
	leave_leg(qp);
	leg->reserved -= records_of(qp);
	srdma_path_leave(qp);
	srdma_qp_retire(qp);
	srdma_qp_free(qp);
	srdma_relay_release_qp(leg->account, entries);
	srdma_relay_release_identity(identity);
}

int srdma_relay_is_removable(const struct srdma_qp *qp)
{
	uint64_t patience = CLOSE_PATIENCE_MS * SRDMA_MS;

	if (srdma_qp_dmas(qp))
		return 0;
	return !srdma_qp_scheduled(qp) || !srdma_path_conn(qp) ||
	       srdma_qp_env(qp)->now >= srdma_qp_entry(qp)->closing + patience;
}

struct srdma_qp *srdma_relay_own_qp(struct srdma_relay *r,
				    const struct srdma_leg *leg, uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_qp(r, qpn);

	if (!qp || srdma_qp_leg(qp) != leg) {
		srdma_relay_refuse(r, -ENOENT, "the leg has no QP %u", qpn);
		return NULL;
	}
	return qp;
}

int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason)
{
	const struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	*reason = srdma_qp_reason(qp);
	return (int)srdma_qp_state(qp);
}

int srdma_relay_qp_end(struct srdma_relay *r, struct srdma_leg *leg,
		       uint32_t qpn, uint32_t reason)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	if (reason < SRDMA_REASON_PEER_CLOSED ||
	    reason > SRDMA_REASON_WIRE_LOST)
		return srdma_relay_refuse(
			r, -EINVAL,
			"reason %u: only %u (PEER_CLOSED), %u (PEER_HOST_GONE) and %u (WIRE_LOST) are allowed",
			reason, SRDMA_REASON_PEER_CLOSED,
			SRDMA_REASON_PEER_HOST_GONE, SRDMA_REASON_WIRE_LOST);
	srdma_qp_end(qp, (enum srdma_reason)reason, SRDMA_OLDEST);
	return 0;
}

/* Begins the end of a QP, if it has not begun. 1: the QP has ended. */
static int end(struct srdma_relay *r, struct srdma_qp *qp)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);

	if (!e->closing) {
		e->closing = r->env.now ? r->env.now : 1;
		srdma_qp_silence(qp);
		srdma_qp_fail(qp, SRDMA_REASON_PEER_CLOSED, SRDMA_NONE, 1);
		srdma_qp_activate(qp);
	}
	return srdma_relay_is_removable(qp);
}

static int in_progress(struct srdma_relay *r)
{
	srdma_env_wake(&r->env, r->env.now + SRDMA_MS);
	return -EINPROGRESS;
}

int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	if (!end(r, qp))
		return in_progress(r);
	srdma_relay_forget(qp);
	return 0;
}

int srdma_relay_qp_reset(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t posted)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);
	const int32_t ahead = (int32_t)(posted - leg->taken);

	if (!qp)
		return -ENOENT;
	if (ahead > MAX_AHEAD)
		return srdma_relay_refuse(
			r, -EINVAL,
			"RESET after %u descriptors, of which %u were taken: at most %d more may be on their way",
			posted, leg->taken, MAX_AHEAD);
	if (!end(r, qp) || ahead > 0)
		return in_progress(r);
	srdma_qp_entry(qp)->reset = 1;
	return 0;
}

int srdma_relay_qp_reinit(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn, const struct srdma_qp_params *params,
			  struct srdma_qp_info *info, uint32_t *records)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	if (!srdma_qp_entry(qp)->reset)
		return srdma_relay_refuse(
			r, -EINVAL,
			"QP %u was not reset: send RESET and wait for its answer",
			qpn);
	srdma_relay_forget(qp);
	*records = leg->cq.written;
	return init(r, leg, params, qpn, info);
}

static int check_change(struct srdma_relay *r, const struct srdma_qp_change *c)
{
	const uint32_t fields = SRDMA_QP_FIELD_ACCESS | SRDMA_QP_FIELD_TIMEOUT |
				SRDMA_QP_FIELD_GRACE;

	if (!c->fields || (c->fields & ~fields))
		return srdma_relay_refuse(r, -EINVAL,
					  "fields 0x%x: known are 1, 2 and 4",
					  c->fields);
	if ((c->fields & SRDMA_QP_FIELD_ACCESS) &&
	    (c->access & ~(uint32_t)SRDMA_RIGHTS_REMOTE))
		return srdma_relay_refuse(
			r, -EINVAL,
			"access 0x%x: the rights of a QP are REMOTE_WRITE 2, REMOTE_READ 4 and REMOTE_ATOMIC 8",
			c->access);
	if ((c->fields & SRDMA_QP_FIELD_TIMEOUT) &&
	    (!c->timeout_ms || (c->timeout_ms > SRDMA_MAX_TIMEOUT_MS &&
				c->timeout_ms != SRDMA_NO_TIMEOUT)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a timeout of %u ms: it must be 1 to %u, or 2^32 - 1 for none",
			c->timeout_ms, SRDMA_MAX_TIMEOUT_MS);
	if ((c->fields & SRDMA_QP_FIELD_GRACE) &&
	    c->grace_ms > SRDMA_MAX_TIMEOUT_MS)
		return srdma_relay_refuse(
			r, -EINVAL, "a grace of %u ms: at most %u is allowed",
			c->grace_ms, SRDMA_MAX_TIMEOUT_MS);
	return 0;
}

/* RFC 5042 R6.3.5-1 */
int srdma_relay_qp_modify(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_qp_change *change)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, change->qpn);
	int err;

	if (!qp)
		return -ENOENT;
	err = check_change(r, change);
	if (err)
		return err;
	if (change->fields & SRDMA_QP_FIELD_ACCESS)
		srdma_responder_set_access(qp, change->access);
	if (change->fields & SRDMA_QP_FIELD_TIMEOUT)
		srdma_requester_set_timeout(
			qp, change->timeout_ms == SRDMA_NO_TIMEOUT
				    ? SRDMA_NEVER
				    : change->timeout_ms * SRDMA_MS);
	if (change->fields & SRDMA_QP_FIELD_GRACE)
		srdma_qp_set_grace(qp, change->grace_ms * SRDMA_MS);
	return 0;
}
