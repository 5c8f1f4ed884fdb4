/*
 * Keys of QPs, as the key exchange asks for them and brings them: KEY and
 * KEYS (docs/protocol.md 3.4, 10).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "relay_impl.h"

enum { SECRET_SHORT = 16, MAX_QPN = 0xffffff };

/* The QP waits for its keys. */
static int check_state(struct srdma_relay *r, const struct srdma_qp *qp)
{
	if (qp->state == SRDMA_QP_INIT)
		return 0;
	if (qp->session)
		return srdma_relay_refuse(
			r, -EISCONN, "QP %u has its keys already", qp->qpn);
	return srdma_relay_refuse(
		r, -ENOTCONN,
		"QP %u went to error before it had keys (%s): INIT another",
		qp->qpn, srdma_reason(qp->reason)->text);
}

/* A leg is for a trust group, or for none: what K_PD makes for others, all
 * members of the group could make too. */
static int check_leg(struct srdma_relay *r, const struct srdma_leg *leg,
		     int group)
{
	if (group == leg->shared)
		return 0;
	if (group)
		return srdma_relay_refuse(
			r, -EPERM,
			"the leg was not opened for a trust group: it gives its K_PD to nobody and takes none");
	return srdma_relay_refuse(
		r, -EPERM,
		"the leg was opened for a trust group: in key mode pd it is with members of the group only, by the group's key");
}

/* --- KEY ----------------------------------------------------------------- */

static int check_secret(struct srdma_relay *r, const struct srdma_leg *leg,
			const struct srdma_qp *qp,
			const struct srdma_qp_secret *p)
{
	int err = qp->session ? 0 : check_state(r, qp);

	if (err)
		return err;
	if (p->secret_len != SECRET_SHORT && p->secret_len != SRDMA_MAX_SECRET)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a secret of %u bytes; %u or %u would be right",
			p->secret_len, SECRET_SHORT, SRDMA_MAX_SECRET);
	if (!p->peer_qpn || p->peer_qpn > MAX_QPN)
		return srdma_relay_refuse(
			r, -EINVAL, "the peer's QP %u; 1..%u would be right",
			p->peer_qpn, MAX_QPN);
	if (p->group > 1)
		return srdma_relay_refuse(r, -EINVAL,
					  "group %u; 0 or 1 would be right",
					  p->group);
	return check_leg(r, leg, p->group);
}

/* A QP that has its keys: of its session, for REKEY. */
static int check_session(struct srdma_relay *r, const struct srdma_qp *qp,
			 const struct srdma_pdkeys_flow *flow,
			 const struct srdma_qp_secret *p)
{
	if (!qp->session)
		return 0;
	if (qp->state != SRDMA_QP_RTR && qp->state != SRDMA_QP_RTS)
		return srdma_relay_refuse(r, -ENOTCONN,
					  "QP %u went to error (%s)", qp->qpn,
					  srdma_reason(qp->reason)->text);
	if (!p->group &&
	    srdma_session_receives(qp->session, flow, p->secret_len))
		return 0;
	return srdma_relay_refuse(
		r, -EISCONN,
		"QP %u has its keys already; the peer, the generation and the size of its session, in key mode pd without a group, would be right",
		qp->qpn);
}

int srdma_relay_qp_secret(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_qp_secret *params,
			  struct srdma_qp_secret_answer *answer)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, params->qpn);
	struct srdma_pdkeys_flow flow = { .receiver.qpn = params->qpn,
					  .sender.qpn = params->peer_qpn };
	int err = qp ? check_secret(r, leg, qp, params) : -ENOENT;

	memset(answer, 0, sizeof(*answer));
	if (err)
		return err;
	memcpy(flow.receiver.eid, r->eid, sizeof(flow.receiver.eid));
	memcpy(flow.sender.eid, params->peer_eid, sizeof(flow.sender.eid));
	memcpy(flow.generation, params->generation, sizeof(flow.generation));
	err = check_session(r, qp, &flow, params);
	if (err)
		return err;
	err = srdma_pdkeys_secret(&leg->keys, answer->secret,
				  params->secret_len, &flow);
	if (err)
		return srdma_relay_refuse(r, err, "the secret: %s",
					  strerror(-err));
	if (params->group)
		memcpy(answer->group_key, leg->keys.pd,
		       sizeof(answer->group_key));
	leg->keys_in_use = 1;
	srdma_rekey_hold(qp);
	return 0;
}

/* --- KEYS ---------------------------------------------------------------- */

static int check_keys(struct srdma_relay *r, const struct srdma_qp *qp,
		      const struct srdma_qp_keys *k)
{
	int err = check_state(r, qp);

	if (err)
		return err;
	if (k->level == SRDMA_LEVEL_NONE && !r->params.allow_unprotected)
		return srdma_relay_refuse(
			r, -EPERM,
			"level none: this worker was not started with --allow-unprotected");
	if (k->peer_mtu < SRDMA_MIN_MTU || k->peer_mtu > SRDMA_MAX_PAYLOAD ||
	    !k->peer_window || k->peer_window > SRDMA_MAX_WINDOW ||
	    !k->peer_reads || k->peer_reads > SRDMA_MAX_READS)
		return srdma_relay_refuse(
			r, -EINVAL,
			"the peer's limits (mtu %u, window %u, reads %u) are outside the protocol",
			k->peer_mtu, k->peer_window, k->peer_reads);
	if (k->peer_pn < SRDMA_MIN_PN || k->peer_pn >= 2 * SRDMA_MIN_PN)
		return srdma_relay_refuse(
			r, -EINVAL,
			"the peer's first packet number %llu; 2^23..2^24-1 would be right",
			(unsigned long long)k->peer_pn);
	if (k->role > 1)
		return srdma_relay_refuse(r, -EINVAL, "role %u", k->role);
	return 0;
}

static int is_zero(const uint8_t *secret, size_t len)
{
	static const uint8_t zero[SRDMA_GROUP_KEY_LEN];

	return srdma_equal(secret, zero, len);
}

static int has_group(const struct srdma_qp_keys *k)
{
	return !is_zero(k->group_key, sizeof(k->group_key));
}

static int is_own_group(const struct srdma_leg *leg,
			const struct srdma_qp_keys *k)
{
	return srdma_equal(leg->keys.pd, k->group_key, sizeof(k->group_key));
}

/* The leg can use the group's key, or none was given. */
static int check_group(struct srdma_relay *r, const struct srdma_leg *leg,
		       const struct srdma_qp_keys *k)
{
	int group = has_group(k), err = check_leg(r, leg, group);

	if (err || !group)
		return err;
	if (!is_own_group(leg, k) && leg->keys_in_use)
		return srdma_relay_refuse(
			r, -EBUSY,
			"the leg uses the K_PD of another group, or its own; a PD of its own for this group would be right");
	return 0;
}

/* Each secret comes from one place: TLS, the peer's worker, or K_PD (3.4). */
static int check_secrets(struct srdma_relay *r, const struct srdma_leg *leg,
			 const struct srdma_qp_keys *k)
{
	int group = has_group(k);

	if (!(k->mode & SRDMA_MODE_PD))
		return group ? srdma_relay_refuse(
				       r, -EINVAL,
				       "a group key in key mode %u; zero would be right without pd",
				       k->mode)
			     : 0;
	if (!is_zero(k->rx_secret, sizeof(k->rx_secret)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"an rx secret in key mode pd; zero would be right: the worker derives it");
	if (group != is_zero(k->tx_secret, sizeof(k->tx_secret)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"%s; the tx secret or the group key would be right",
			group ? "both a tx secret and a group key"
			      : "neither a tx secret nor a group key");
	return check_group(r, leg, k);
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
		.pd = &qp->leg->keys,
		.pd_serial = qp->pd_held ? qp->pd_serial : qp->leg->keys.serial,
		.shared = (uint8_t)has_group(k),
		.rekey_packets = r->params.rekey_packets,
		.rekey_bytes = r->params.rekey_bytes,
		.rekey_ns = r->params.rekey_ns,
		.cache = r->keys,
		.provider = r->params.provider,
		.cmac = &r->cmac,
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
	if (err == -EINVAL)
		return srdma_relay_refuse(
			r, err,
			"keys refused: a field is outside the protocol (suite %u, level %u, tag %u, secret %u bytes)",
			k->suite, k->level, k->tag_len, k->secret_len);
	return err ? srdma_relay_refuse(r, err, "keys: %s", strerror(-err)) : 0;
}

/* Session and wire of a QP; on failure it is as it was. */
static int set_up(struct srdma_relay *r, struct srdma_qp *qp,
		  const struct srdma_qp_keys *k)
{
	int err;

	err = make_session(r, qp, k);
	if (!err)
		err = srdma_dial_begin(qp, k->role ? NULL : k->peer_wire);
	if (err) {
		srdma_session_destroy(qp->session);
		qp->session = NULL;
		return err;
	}
	srdma_flight_create(&qp->flights, &r->tables, k->peer_window);
	srdma_part_create(&qp->parts, &r->tables, SRDMA_PARTS);
	return 0;
}

/* The same, from the group's K_PD if there is one, which the leg keeps. */
static int set_up_with_group(struct srdma_relay *r, struct srdma_qp *qp,
			     const struct srdma_qp_keys *k)
{
	struct srdma_pdkeys *keys = &qp->leg->keys;
	uint8_t before[SRDMA_GROUP_KEY_LEN];
	int err;

	memcpy(before, keys->pd, sizeof(before));
	if (has_group(k))
		memcpy(keys->pd, k->group_key, sizeof(keys->pd));
	err = set_up(r, qp, k);
	if (err)
		memcpy(keys->pd, before, sizeof(before));
	else if (k->mode & SRDMA_MODE_PD)
		qp->leg->keys_in_use = 1;
	srdma_wipe(before, sizeof(before));
	return err;
}

int srdma_relay_qp_keys(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_keys *k)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, k->qpn);
	int err = qp ? check_keys(r, qp, k) : -ENOENT;

	if (!err)
		err = check_secrets(r, leg, k);
	if (!err)
		err = set_up_with_group(r, qp, k);
	if (err)
		return err;
	qp->role = k->role;
	qp->level = k->level;
	qp->mode = k->mode;
	memcpy(qp->peer_holder, k->peer_holder, sizeof(qp->peer_holder));
	qp->peer_mtu = srdma_relay_fit(r, k->peer_mtu);
	qp->peer_window = k->peer_window;
	qp->answer_mtu = qp->mtu < k->peer_mtu ? qp->mtu : k->peer_mtu;
	qp->parts.mtu = qp->answer_mtu;
	qp->parts.results = SRDMA_ATOMIC_RESULTS;
	qp->parts.ordered = srdma_relay_ordered(r);
	srdma_congestion_init(&qp->sending, SRDMA_UNDER_WAY,
			      qp->parts.ordered ? 0
						: SRDMA_CONGESTION_REQUESTS);
	srdma_congestion_init(&qp->asking,
			      r->params.window < SRDMA_UNDER_WAY
				      ? r->params.window
				      : SRDMA_UNDER_WAY,
			      qp->parts.ordered ? 0 : SRDMA_CONGESTION_ANSWERS);
	qp->acked_pn = qp->first_pn - 1;
	qp->state = SRDMA_QP_RTR;
	qp->beyond.pn = srdma_session_highest(qp->session);
	srdma_rekey_release(qp);
	srdma_relay_activate(qp);
	return 0;
}
