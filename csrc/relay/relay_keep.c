/*
 * Data that the agent keeps in the worker, so that an agent that starts again
 * takes its sessions over: KEEP, ADOPT of the control socket
 * (docs/local-interface.md 3.8).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "relay/relay_impl.h"
#include "session/session.h"

/* The data of one KEEP. It is freed with the last QP that refers to it. The
 * nodes are a list in the order of their serials. */
struct srdma_kept_node {
	struct srdma_kept_node *before, *after;
	uint64_t serial;
	uint32_t users; /* QPs that refer to it */
	uint32_t n, len;
	struct srdma_qp *qp[]; /* n; NULL: it ended, or was given other data.
				  Behind it: the data, len bytes */
};

static uint8_t *data_of(struct srdma_kept_node *k)
{
	return (uint8_t *)(k->qp + k->n);
}

static size_t size_of(uint32_t n, uint32_t len)
{
	return sizeof(struct srdma_kept_node) + n * sizeof(struct srdma_qp *) +
	       len;
}

static void free_node(struct srdma_keep_list *l, struct srdma_kept_node *k)
{
	*(k->before ? &k->before->after : &l->first) = k->after;
	*(k->after ? &k->after->before : &l->last) = k->before;
	if (l->found == k)
		l->found = k->before;
	srdma_wipe(k, size_of(k->n, k->len));
	free(k);
}

void srdma_keep_leave(struct srdma_qp *qp)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);
	struct srdma_kept_node *k = e->kept;

	if (!k)
		return;
	e->kept = NULL;
	k->qp[e->kept_at] = NULL;
	if (!--k->users)
		free_node(&e->leg->relay->kept, k);
}

/* --- KEEP ---------------------------------------------------------------- */

/* The QPs of a KEEP that have not ended. */
struct living {
	uint32_t n;
	struct srdma_qp *qp[SRDMA_KEEP_QPS];
	uint8_t index[SRDMA_KEEP_QPS]; /* place in the request */
};

static int check_sizes(struct srdma_relay *r, const struct srdma_keep *p)
{
	uint32_t rest = 0;

	if (!p->n || p->n > SRDMA_KEEP_QPS)
		return srdma_relay_refuse(r, -EINVAL,
					  "%u QPs: it must be 1 to %u", p->n,
					  SRDMA_KEEP_QPS);
	if (!p->len || p->len > SRDMA_KEEP_MAX)
		return srdma_relay_refuse(r, -EINVAL,
					  "%u bytes: it must be 1 to %u",
					  p->len, SRDMA_KEEP_MAX);
	for (uint32_t i = p->n; i < SRDMA_KEEP_QPS; i++)
		rest |= p->qpn[i];
	for (uint32_t i = p->len; i < SRDMA_KEEP_MAX; i++)
		rest |= p->data[i];
	return rest ? srdma_relay_refuse(
			      r, -EINVAL,
			      "QPs or bytes after the last one: they must be zero")
		    : 0;
}

/* 0: the QP may join those found before it. */
static int check_qp(struct srdma_relay *r, const struct living *found,
		    const struct srdma_qp *qp)
{
	const uint32_t qpn = srdma_qp_number(qp);

	if (srdma_qp_keyed(qp)->level == SRDMA_LEVEL_NONE)
		return srdma_relay_refuse(
			r, -EPERM, "QP %u has level none, and no renewal key",
			qpn);
	if (found->n && srdma_qp_leg(qp) != srdma_qp_leg(found->qp[0]))
		return srdma_relay_refuse(r, -EINVAL,
					  "QP %u is of another leg than QP %u",
					  qpn, srdma_qp_number(found->qp[0]));
	for (uint32_t i = 0; i < found->n; i++)
		if (found->qp[i] == qp)
			return srdma_relay_refuse(r, -EINVAL,
						  "QP %u is named twice", qpn);
	return 0;
}

static int find_living(struct srdma_relay *r, const struct srdma_keep *p,
		       struct living *found)
{
	int err = 0;

	found->n = 0;
	for (uint32_t i = 0; !err && i < p->n; i++) {
		struct srdma_qp *qp =
			p->qpn[i] ? srdma_relay_qp(r, p->qpn[i]) : NULL;

		if (!qp || srdma_qp_state(qp) == SRDMA_QP_ERR)
			continue;
		if (srdma_qp_state(qp) == SRDMA_QP_INIT)
			return srdma_relay_refuse(
				r, -ENOTCONN,
				"QP %u has no keys yet: send KEYS first",
				p->qpn[i]);
		err = check_qp(r, found, qp);
		found->qp[found->n] = qp;
		found->index[found->n++] = (uint8_t)i;
	}
	if (!err && !found->n)
		err = srdma_relay_refuse(
			r, -ENOTCONN,
			"no QP of these is in RTR or RTS: nothing is kept");
	return err;
}

static void append(struct srdma_keep_list *l, struct srdma_kept_node *k)
{
	k->serial = ++l->serial;
	k->before = l->last;
	*(l->last ? &l->last->after : &l->first) = k;
	l->last = k;
}

int srdma_relay_keep(struct srdma_relay *r, const struct srdma_keep *params)
{
	struct srdma_kept_node *k;
	struct living found;
	int err = check_sizes(r, params);

	if (!err)
		err = find_living(r, params, &found);
	if (err)
		return err;
	k = calloc(1, size_of(found.n, params->len));
	if (!k)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for the data");
	k->n = k->users = found.n;
	k->len = params->len;
	for (uint32_t i = 0; i < found.n; i++) {
		struct srdma_relay_entry *e = srdma_qp_entry(found.qp[i]);

		srdma_keep_leave(found.qp[i]);
		k->qp[i] = found.qp[i];
		e->kept = k;
		e->kept_at = (uint8_t)i;
		e->kept_index = found.index[i];
	}
	memcpy(data_of(k), params->data, params->len);
	append(&r->kept, k);
	return 0;
}

/* --- ADOPT --------------------------------------------------------------- */

static void fill_qp(struct srdma_kept_qp *out, const struct srdma_qp *qp)
{
	const struct srdma_endpoint *peer =
		srdma_session_peer(srdma_qp_session(qp));

	out->qpn = srdma_qp_number(qp);
	out->index = srdma_qp_entry(qp)->kept_index;
	out->peer_qpn = peer->qpn;
	memcpy(out->peer_eid, peer->eid, sizeof(out->peer_eid));
}

/* Returns the number of the QPs that have not ended. */
static uint32_t fill(struct srdma_kept *out, struct srdma_kept_node *k)
{
	out->n = 0;
	for (uint32_t i = 0; i < k->n; i++) {
		const struct srdma_qp *qp = k->qp[i];

		if (!qp || !srdma_qp_can(qp, SRDMA_QP_OPENS))
			continue;
		out->leg = srdma_qp_entry(qp)->leg->id;
		fill_qp(&out->qp[out->n++], qp);
	}
	if (out->n) {
		out->serial = k->serial;
		out->len = k->len;
		memcpy(out->data, data_of(k), k->len);
	}
	return out->n;
}

int srdma_relay_adopt(struct srdma_relay *r, uint64_t after,
		      struct srdma_kept *out)
{
	struct srdma_keep_list *l = &r->kept;
	struct srdma_kept_node *k = l->first;

	/* An agent asks in the order of the serials: the search resumes after
	 * the last node found. */
	if (l->found && l->found->serial <= after)
		k = l->found;
	memset(out, 0, sizeof(*out));
	while (k && (k->serial <= after || !fill(out, k)))
		k = k->after;
	if (k) {
		l->found = k;
		return 0;
	}
	srdma_wipe(out, sizeof(*out));
	return srdma_relay_refuse(r, -ENOENT, "nothing more is kept");
}
