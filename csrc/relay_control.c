/*
 * Bring-up of the relay: legs, regions and QPs, as the control socket asks
 * for them (docs/protocol.md 7, 10, 12).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "relay_impl.h"
#include "suite.h"

enum { DEFAULT_TIMEOUT_MS = 30000, MIN_MTU = 256, MIN_PN = 1 << 23 };

int srdma_relay_refuse(struct srdma_relay *r, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return err;
}

const char *srdma_relay_why(const struct srdma_relay *r)
{
	return r->why;
}

const struct srdma_stats *srdma_relay_stats(const struct srdma_relay *r)
{
	return &r->stats;
}

struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r)
{
	return &r->stats;
}

static int random_bytes(struct srdma_relay *r, void *out, size_t len)
{
	int err = r->params.random(r->params.random_ctx, out, len);

	return err ? srdma_relay_refuse(r, -EIO, "no random numbers") : 0;
}

int srdma_relay_create(struct srdma_relay **out,
		       const struct srdma_relay_params *params)
{
	struct srdma_relay *r = calloc(1, sizeof(*r));
	int err = -ENOMEM;

	if (!r)
		goto destroy_ports;
	r->params = *params;
	r->host = params->host;
	r->wire = params->wire;
	r->timer = SRDMA_NEVER;
	err = -EINVAL;
	if (params->mtu < MIN_MTU || params->mtu > SRDMA_MAX_PAYLOAD ||
	    !params->window || params->window > SRDMA_MAX_WINDOW ||
	    !params->reads || params->reads > SRDMA_MAX_READS)
		goto free_relay;
	err = srdma_op_pool_create(&r->ops, SRDMA_OPS);
	if (err)
		goto free_relay;
	err = random_bytes(r, r->eid, sizeof(r->eid));
	if (err)
		goto free_pool;
	*out = r;
	return 0;

free_pool:
	srdma_op_pool_destroy(&r->ops);
free_relay:
	free(r);
destroy_ports:
	params->host->ops->destroy(params->host);
	params->wire->ops->destroy(params->wire);
	return err;
}

static void free_everything(struct srdma_relay *r)
{
	struct srdma_link *link;

	for (int i = 0; i < SRDMA_QP_BUCKETS; i++)
		while (r->qps[i])
			srdma_relay_forget(r->qps[i]);
	for (int i = 0; i < SRDMA_MR_BUCKETS; i++)
		while (r->mrs.bucket[i])
			srdma_mr_free(&r->mrs, r->mrs.bucket[i]);
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		if (r->legs[i])
			r->host->ops->close(r->legs[i]->conn);
		free(r->legs[i]);
	}
	while ((link = r->links) != NULL) {
		r->links = link->next;
		link->conn->port->ops->close(link->conn);
		free(link);
	}
	if (r->spare)
		r->host->ops->buf_put(r->spare);
}

void srdma_relay_destroy(struct srdma_relay *r)
{
	if (!r)
		return;
	for (int i = 0; i < SRDMA_QP_BUCKETS; i++)
		for (struct srdma_qp *qp = r->qps[i]; qp; qp = qp->hash_next)
			srdma_qp_fail(qp, SRDMA_REASON_PEER_CLOSED,
				      SRDMA_OLDEST, 1);
	/* One turn says CLOSE and writes the records of what was open. */
	srdma_relay_run(r, r->now, 0);
	free_everything(r);
	r->host->ops->destroy(r->host);
	r->wire->ops->destroy(r->wire);
	srdma_op_pool_destroy(&r->ops);
	free(r);
}

/* --- legs -------------------------------------------------------------- */

int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **out,
			 struct srdma_leg_answer *answer)
{
	uint32_t ring = params->ring;
	struct srdma_leg *leg;
	int err;

	if (ring < SRDMA_MIN_RING || ring > SRDMA_MAX_RING ||
	    (ring & (ring - 1)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a ring of %u records; a power of two, %u..%u, would be right",
			ring, SRDMA_MIN_RING, SRDMA_MAX_RING);
	if (r->leg_count == SRDMA_MAX_LEGS)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the worker has its limit of %u legs",
					  SRDMA_MAX_LEGS);
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for a leg");
	err = random_bytes(r, params->token, sizeof(params->token));
	if (!err) {
		r->host->why = NULL;
		err = r->host->ops->leg_open(r->host, params, &leg->conn,
					     answer);
		if (err)
			srdma_relay_refuse(r, err, "%s",
					   r->host->why ? r->host->why
							: strerror(-err));
	}
	if (err) {
		free(leg);
		return err;
	}
	leg->conn->user = leg;
	leg->relay = r;
	leg->ring = ring;
	memcpy(leg->token, params->token, sizeof(leg->token));
	do {
		leg->id = ++r->leg_serial;
	} while (!leg->id || r->legs[leg->id % SRDMA_MAX_LEGS]);
	r->legs[leg->id % SRDMA_MAX_LEGS] = leg;
	r->leg_count++;
	*out = leg;
	return 0;
}

uint32_t srdma_relay_leg_id(const struct srdma_leg *leg)
{
	return leg->id;
}

struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id)
{
	struct srdma_leg *leg = r->legs[id % SRDMA_MAX_LEGS];

	return leg && leg->id == id && !leg->closing ? leg : NULL;
}

struct srdma_leg *srdma_relay_leg_by_token(struct srdma_relay *r,
					   const uint8_t *token)
{
	struct srdma_leg *found = NULL;

	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i] && !r->legs[i]->closing &&
		    srdma_equal(r->legs[i]->token, token, SRDMA_TOKEN_LEN))
			found = r->legs[i];
	return found;
}

void srdma_relay_leg_close(struct srdma_relay *r, struct srdma_leg *leg)
{
	(void)r;
	srdma_leg_end(leg);
}

/* --- memory regions ---------------------------------------------------- */

static int check_region(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_mr_params *params)
{
	const struct srdma_region_params *p = &params->region;

	if (!p->length || p->addr + p->length < p->addr)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a region of %llu bytes at %#llx: it must not be empty or wrap",
			(unsigned long long)p->length,
			(unsigned long long)p->addr);
	if (p->access & ~(uint32_t)SRDMA_ACCESS_ALL)
		return srdma_relay_refuse(
			r, -ENOTSUP,
			"access %#x: LOCAL_WRITE 1, REMOTE_WRITE 2, REMOTE_READ 4 are in this version",
			p->access);
	if ((p->access & SRDMA_ACCESS_REMOTE_WRITE) &&
	    !(p->access & SRDMA_ACCESS_LOCAL_WRITE))
		return srdma_relay_refuse(r, -EINVAL,
					  "REMOTE_WRITE needs LOCAL_WRITE too");
	if (leg->mrs == SRDMA_MAX_MRS)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the leg has its limit of %u regions",
					  SRDMA_MAX_MRS);
	return 0;
}

/* A key that no region has, dead ones included. */
static int new_key(struct srdma_relay *r, uint32_t *key)
{
	int err;

	do {
		err = random_bytes(r, key, sizeof(*key));
	} while (!err && (!*key || srdma_mr_find(&r->mrs, *key)));
	return err;
}

int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key)
{
	int err = check_region(r, leg, params);
	struct srdma_mr *mr;

	if (!err)
		err = new_key(r, key);
	if (err)
		return err;
	if (leg->down)
		return srdma_relay_refuse(r, -ENOTCONN, "the leg has ended");
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for a region");
	r->host->why = NULL;
	err = r->host->ops->region_open(leg->conn, &params->region,
					&mr->region);
	if (err) {
		free(mr);
		return srdma_relay_refuse(r, err, "%s",
					  r->host->why ? r->host->why
						       : strerror(-err));
	}
	mr->leg = leg;
	mr->key = *key;
	mr->access = params->region.access;
	mr->scope_qpn = params->scope_qpn;
	srdma_mr_insert(&r->mrs, mr);
	leg->mrs++;
	return 0;
}

static struct srdma_mr *mr_of(struct srdma_relay *r,
			      const struct srdma_leg *leg, uint32_t key)
{
	struct srdma_mr *mr = srdma_mr_find(&r->mrs, key);

	return mr && mr->leg == leg ? mr : NULL;
}

int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr || mr->dead)
		return srdma_relay_refuse(r, -ENOENT,
					  "the leg has no region of this key");
	mr->dead = 1;
	return srdma_relay_mr_busy(r, leg, key) ? -EINPROGRESS : 0;
}

int srdma_relay_mr_busy(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t key)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr || !mr->dead)
		return 0;
	if (mr->dmas)
		return 1;
	srdma_mr_free(&r->mrs, mr);
	leg->mrs--;
	return 0;
}

/* --- QPs ---------------------------------------------------------------- */

static int check_qp(struct srdma_relay *r, const struct srdma_leg *leg,
		    const struct srdma_qp_params *p)
{
	if (!p->sq || !p->rq || p->sq > SRDMA_MAX_DEPTH ||
	    p->rq > SRDMA_MAX_DEPTH)
		return srdma_relay_refuse(
			r, -EINVAL,
			"queues of %u and %u; 1..%u each would be right", p->sq,
			p->rq, SRDMA_MAX_DEPTH);
	if (p->timeout_ms > SRDMA_MAX_TIMEOUT_MS)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a timeout of %u ms; at most %u would be right",
			p->timeout_ms, SRDMA_MAX_TIMEOUT_MS);
	if (p->mtu && (p->mtu < MIN_MTU || p->mtu > r->params.mtu))
		return srdma_relay_refuse(r, -EINVAL,
					  "an mtu of %u; %u..%u would be right",
					  p->mtu, MIN_MTU, r->params.mtu);
	if (leg->reserved + p->sq + p->rq + 1 > leg->ring)
		return srdma_relay_refuse(
			r, -ENOSPC,
			"the leg's ring of %u records cannot hold %u more; open the PD with a larger ring",
			leg->ring, p->sq + p->rq + 1);
	if (r->qp_count == SRDMA_MAX_QPS)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the worker has its limit of %u QPs",
					  SRDMA_MAX_QPS);
	return 0;
}

static int name_qp(struct srdma_relay *r, struct srdma_qp *qp,
		   struct srdma_qp_info *info)
{
	uint8_t bytes[6];
	int err;

	do {
		err = random_bytes(r, bytes, sizeof(bytes));
		qp->qpn = srdma_load24(bytes);
	} while (!err && (!qp->qpn || srdma_relay_qp(r, qp->qpn)));
	if (!err)
		err = random_bytes(r, info->random, sizeof(info->random));
	/* [2^23, 2^24): never so low that a candidate could be negative. */
	qp->first_pn = MIN_PN | (srdma_load24(bytes + 3) & 0x7fffff);
	return err;
}

int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info)
{
	struct srdma_qp *qp;
	uint32_t ms;
	int err = check_qp(r, leg, params);

	if (!err)
		err = srdma_qp_create(&qp, r, leg, params);
	if (err)
		return err;
	err = name_qp(r, qp, info);
	if (err) {
		srdma_qp_free(qp);
		return err;
	}
	ms = params->timeout_ms ? params->timeout_ms : DEFAULT_TIMEOUT_MS;
	qp->timeout = (uint64_t)ms * (SRDMA_SECOND / 1000);
	qp->mtu = params->mtu ? params->mtu : r->params.mtu;
	qp->hash_next = r->qps[qp->qpn % SRDMA_QP_BUCKETS];
	r->qps[qp->qpn % SRDMA_QP_BUCKETS] = qp;
	qp->leg_next = leg->qps;
	leg->qps = qp;
	leg->reserved += qp->sq_depth + qp->rq_depth + 1;
	r->qp_count++;
	info->qpn = qp->qpn;
	memcpy(info->eid, r->eid, sizeof(info->eid));
	info->pn = qp->first_pn;
	info->mtu = qp->mtu;
	info->window = r->params.window;
	info->reads = r->params.reads;
	return 0;
}

void srdma_relay_forget(struct srdma_qp *qp)
{
	struct srdma_relay *r = qp->relay;
	struct srdma_qp **at = &r->qps[qp->qpn % SRDMA_QP_BUCKETS];

	while (*at != qp)
		at = &(*at)->hash_next;
	*at = qp->hash_next;
	for (at = &qp->leg->qps; *at != qp; at = &(*at)->leg_next)
		;
	*at = qp->leg_next;
	if (qp->active) {
		struct srdma_qp *before = NULL;

		for (at = &r->active_head; *at != qp; at = &(*at)->active_next)
			before = *at;
		*at = qp->active_next;
		if (r->active_tail == qp)
			r->active_tail = before;
	}
	qp->leg->reserved -= qp->sq_depth + qp->rq_depth + 1;
	r->qp_count--;
	srdma_relay_unwire(qp);
	srdma_qp_free(qp);
}

static struct srdma_qp *qp_of(struct srdma_relay *r,
			      const struct srdma_leg *leg, uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_qp(r, qpn);

	if (!qp || qp->leg != leg) {
		srdma_relay_refuse(r, -ENOENT, "the leg has no QP %u", qpn);
		return NULL;
	}
	return qp;
}

static int check_keys(struct srdma_relay *r, const struct srdma_qp *qp,
		      const struct srdma_qp_keys *k)
{
	if (qp->state != SRDMA_QP_INIT)
		return srdma_relay_refuse(
			r, -EISCONN, "QP %u has its keys already", qp->qpn);
	if (k->level == SRDMA_LEVEL_NONE && !r->params.allow_unprotected)
		return srdma_relay_refuse(
			r, -EPERM,
			"level none: this worker was not started with --allow-unprotected");
	if (k->peer_mtu < MIN_MTU || k->peer_mtu > SRDMA_MAX_PAYLOAD ||
	    !k->peer_window || k->peer_window > SRDMA_MAX_WINDOW ||
	    !k->peer_reads || k->peer_reads > SRDMA_MAX_READS)
		return srdma_relay_refuse(
			r, -EINVAL,
			"the peer's limits (mtu %u, window %u, reads %u) are outside the protocol",
			k->peer_mtu, k->peer_window, k->peer_reads);
	if (k->peer_pn < MIN_PN || k->peer_pn >= 2 * MIN_PN)
		return srdma_relay_refuse(
			r, -EINVAL,
			"the peer's first packet number %llu; 2^23..2^24-1 would be right",
			(unsigned long long)k->peer_pn);
	if (k->role > 1)
		return srdma_relay_refuse(r, -EINVAL, "role %u", k->role);
	return 0;
}

static int make_session(struct srdma_relay *r, struct srdma_qp *qp,
			const struct srdma_qp_keys *k)
{
	struct srdma_session_params sp = {
		.role = k->role,
		.suite = k->suite,
		.level = k->level,
		.mode = k->mode,
		.tag_len = k->tag_len,
		.secret_len = k->secret_len,
		.window = (uint32_t)r->wire->window,
		.mtu = qp->mtu,
		.local_qpn = qp->qpn,
		.peer_qpn = k->peer_qpn,
		.tx_pn = qp->first_pn,
		.rx_pn = k->peer_pn,
	};
	int err;

	memcpy(sp.generation, k->generation, sizeof(sp.generation));
	memcpy(sp.local_eid, r->eid, sizeof(sp.local_eid));
	memcpy(sp.peer_eid, k->peer_eid, sizeof(sp.peer_eid));
	memcpy(sp.tx_secret, k->tx_secret, sizeof(sp.tx_secret));
	memcpy(sp.rx_secret, k->rx_secret, sizeof(sp.rx_secret));
	err = srdma_session_create(&qp->session, &sp);
	srdma_wipe(&sp, sizeof(sp));
	if (err == -ENOTSUP)
		return srdma_relay_refuse(
			r, err,
			"suite %u at level %u with mode %u is not in this version",
			k->suite, k->level, k->mode);
	if (err)
		return srdma_relay_refuse(
			r, err,
			"keys refused: a field is outside the protocol (suite %u, level %u, tag %u, secret %u bytes)",
			k->suite, k->level, k->tag_len, k->secret_len);
	return 0;
}

static int connect_wire(struct srdma_relay *r, struct srdma_qp *qp,
			const char *address)
{
	struct srdma_conn *conn;
	int err;

	r->wire->why = NULL;
	err = r->wire->ops->connect(r->wire, address, &conn);
	if (err)
		return srdma_relay_refuse(r, err, "wire to %s: %s", address,
					  r->wire->why ? r->wire->why
						       : strerror(-err));
	err = srdma_relay_wire(qp, conn);
	if (err) {
		r->wire->ops->close(conn);
		return srdma_relay_refuse(r, err, "no memory for a wire");
	}
	return 0;
}

int srdma_relay_qp_keys(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_keys *k)
{
	struct srdma_qp *qp = qp_of(r, leg, k->qpn);
	int err = qp ? check_keys(r, qp, k) : -ENOENT;

	if (err)
		return err;
	qp->inflight = calloc(k->peer_window, sizeof(*qp->inflight));
	qp->parts = calloc(k->peer_reads, sizeof(*qp->parts));
	err = qp->inflight && qp->parts
		      ? make_session(r, qp, k)
		      : srdma_relay_refuse(r, -ENOMEM, "no memory for a QP");
	if (!err && k->role == 0)
		err = connect_wire(r, qp, k->peer_wire);
	if (err) {
		/* As before the call: INIT, and nothing kept. */
		srdma_session_destroy(qp->session);
		free(qp->inflight);
		free(qp->parts);
		qp->session = NULL;
		qp->inflight = NULL;
		qp->parts = NULL;
		return err;
	}
	qp->role = k->role;
	qp->level = k->level;
	qp->peer_mtu = k->peer_mtu;
	qp->peer_window = k->peer_window;
	qp->peer_reads = k->peer_reads;
	qp->acked_pn = qp->first_pn - 1;
	qp->state = SRDMA_QP_RTR;
	if (k->role == 0)
		qp->ctl |= SRDMA_CTL_OPEN;
	srdma_relay_activate(qp);
	return 0;
}

int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason)
{
	const struct srdma_qp *qp = qp_of(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	*reason = qp->reason;
	return qp->state;
}

int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn)
{
	struct srdma_qp *qp = qp_of(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	if (!qp->closing) {
		qp->closing = r->now ? r->now : 1;
		qp->silent = 1;
		srdma_qp_fail(qp, SRDMA_REASON_PEER_CLOSED, SRDMA_NONE, 1);
		srdma_relay_activate(qp);
	}
	if (!srdma_qp_removable(qp)) {
		srdma_relay_wake_at(r, r->now + SRDMA_SECOND / 1000);
		return -EINPROGRESS;
	}
	srdma_relay_forget(qp);
	return 0;
}
