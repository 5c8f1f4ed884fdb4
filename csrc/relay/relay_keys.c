/* Keys of QPs: KEY and KEYS of the control socket (docs/protocol.md 3.4;
 * local-interface.md 3). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "path/connect.h"
#include "path/path.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

enum { SECRET_SHORT = 16 };

/* 0: the QP has no keys yet and may get some. */
static int check_state(struct srdma_relay *r, const struct srdma_qp *qp)
{
	const uint32_t qpn = srdma_qp_number(qp);

	if (srdma_shared_queue_users(qp))
		return srdma_relay_refuse(
			r, -EINVAL,
			"QP %u holds the receives of other QPs: it gets no keys",
			qpn);
	if (srdma_qp_state(qp) == SRDMA_QP_INIT)
		return 0;
	if (srdma_qp_session(qp))
		return srdma_relay_refuse(r, -EISCONN,
					  "QP %u has its keys already", qpn);
	return srdma_relay_refuse(
		r, -ENOTCONN,
		"QP %u went to error before it had keys (%s): INIT another",
		qpn, srdma_reason(srdma_qp_reason(qp))->text);
}

/* A leg serves one trust group, or none: as all members of a group know its K_PD,
 * they could derive the secrets of the leg's other peers. */
static int check_leg(struct srdma_relay *r, const struct srdma_leg *leg,
		     int group)
{
	if (group == leg->shared)
		return 0;
	if (group)
		return srdma_relay_refuse(
			r, -EPERM,
			"the leg was not opened for a trust group: its K_PD is not shared, and it takes no group key");
	return srdma_relay_refuse(
		r, -EPERM,
		"the leg was opened for a trust group: in key mode pd it connects with members of the group only, with the group's key");
}

/* --- KEY ----------------------------------------------------------------- */

static int check_secret(struct srdma_relay *r, const struct srdma_leg *leg,
			const struct srdma_qp *qp,
			const struct srdma_qp_secret *p)
{
	int err = srdma_qp_session(qp) ? 0 : check_state(r, qp);

	if (err)
		return err;
	if (p->secret_len != SECRET_SHORT && p->secret_len != SRDMA_MAX_SECRET)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a secret of %u bytes: it must have %u or %u",
			p->secret_len, SECRET_SHORT, SRDMA_MAX_SECRET);
	if (!p->peer_qpn || p->peer_qpn > SRDMA_MAX_QPN)
		return srdma_relay_refuse(
			r, -EINVAL,
			"the peer's QP %u: the number must be 1..%u",
			p->peer_qpn, SRDMA_MAX_QPN);
	if (p->group > 1)
		return srdma_relay_refuse(
			r, -EINVAL, "group %u: it must be 0 or 1", p->group);
	return check_leg(r, leg, p->group);
}

/* KEY for a QP that has its keys, before REKEY: the flow must be that of its
 * session. */
static int check_session(struct srdma_relay *r, const struct srdma_qp *qp,
			 const struct srdma_pdkeys_flow *flow,
			 const struct srdma_qp_secret *p)
{
	const struct srdma_session *session = srdma_qp_session(qp);
	const uint32_t qpn = srdma_qp_number(qp);

	if (!session)
		return 0;
	if (!srdma_qp_can(qp, SRDMA_QP_OPENS))
		return srdma_relay_refuse(
			r, -ENOTCONN, "QP %u went to error (%s)", qpn,
			srdma_reason(srdma_qp_reason(qp))->text);
	if (!p->group && srdma_session_receives(session, flow, p->secret_len))
		return 0;
	return srdma_relay_refuse(
		r, -EISCONN,
		"QP %u has its keys already: KEY must name the peer, the generation and the secret's size of its session, in key mode pd without a group",
		qpn);
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
	srdma_qp_pd_hold(qp);
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
			"the peer's first packet number %llu: it must be 2^23..2^24-1",
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

/* 0: no group key was given, or the leg can use it. */
/* RFC 5042 R3-3 */
static int check_group(struct srdma_relay *r, const struct srdma_leg *leg,
		       const struct srdma_qp_keys *k)
{
	int group = has_group(k), err = check_leg(r, leg, group);

	if (err || !group)
		return err;
	if (!is_own_group(leg, k) && leg->keys_in_use)
		return srdma_relay_refuse(
			r, -EBUSY,
			"the leg uses the K_PD of another group, or its own: use a PD of its own for this group");
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
				       "a group key in key mode %u: it must be zero without pd",
				       k->mode)
			     : 0;
	if (!is_zero(k->rx_secret, sizeof(k->rx_secret)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"an rx secret in key mode pd: it must be zero, as the worker derives it");
	if (group != is_zero(k->tx_secret, sizeof(k->tx_secret)))
		return srdma_relay_refuse(
			r, -EINVAL, "%s: one of them must be given",
			group ? "both a tx secret and a group key"
			      : "neither a tx secret nor a group key");
	return check_group(r, leg, k);
}

/* Makes a session. 0, or -errno with why. */
static int create_session(struct srdma_relay *r,
			  const struct srdma_session_params *sp,
			  struct srdma_session **out)
{
	int err = srdma_session_create(out, sp);

	if (err == -ENOTSUP)
		return srdma_relay_refuse(
			r, err,
			"suite %u at level %u with mode %u is not in this version",
			sp->suite, sp->level, sp->mode);
	if (err == -EINVAL)
		return srdma_relay_refuse(
			r, err,
			"keys refused: a field is outside the protocol (suite %u, level %u, tag %u, secret %u bytes)",
			sp->suite, sp->level, sp->tag_len, sp->secret_len);
	return err ? srdma_relay_refuse(r, err, "keys: %s", strerror(-err)) : 0;
}

static int make_session(struct srdma_relay *r, struct srdma_qp *qp,
			const struct srdma_qp_keys *k)
{
	const struct srdma_relay_entry *e = srdma_qp_entry(qp);
	struct srdma_session_params sp = {
		.role = k->role,
		.suite = k->suite,
		.level = k->level,
		.mode = k->mode,
		.tag_len = k->tag_len,
		.secret_len = k->secret_len,
		.window = (uint32_t)r->env.wire->window,
		.mtu = e->mtu,
		.local_qpn = srdma_qp_number(qp),
		.peer_qpn = k->peer_qpn,
		.tx_pn = srdma_path_first(qp),
		.rx_pn = k->peer_pn,
		.pd = &e->leg->keys,
		.pd_serial = srdma_qp_pd_serial(qp),
		.shared = (uint8_t)has_group(k),
		.rekey_packets = r->params.rekey_packets,
		.rekey_bytes = r->params.rekey_bytes,
		.rekey_ns = r->params.rekey_ns,
		.cache = r->keys,
		.provider = r->params.provider,
		.cmac = &r->cmac,
	};
	struct srdma_session *session = NULL;
	int err;

	memcpy(sp.generation, k->generation, sizeof(sp.generation));
	memcpy(sp.local_eid, r->eid, sizeof(sp.local_eid));
	memcpy(sp.peer_eid, k->peer_eid, sizeof(sp.peer_eid));
	memcpy(sp.tx_secret, k->tx_secret, sizeof(sp.tx_secret));
	memcpy(sp.rx_secret, k->rx_secret, sizeof(sp.rx_secret));
	err = create_session(r, &sp, &session);
	srdma_wipe(&sp, sizeof(sp));
	if (!err)
		srdma_qp_set_session(qp, session);
	return err;
}

static int connect_path(struct srdma_relay *r, struct srdma_qp *qp,
			const struct srdma_qp_keys *k)
{
	const char *why;
	int err;

	if (k->role) {
		srdma_connect_await(qp, k->peer_wire);
		return 0;
	}
	err = srdma_connect_begin(qp, k->peer_wire);
	if (!err)
		return 0;
	why = r->env.wire->why;
	return srdma_relay_refuse(r, err, "wire to %s: %s", k->peer_wire,
				  why ? why : strerror(-err));
}

/* Makes session and path of a QP. On failure the QP is unchanged. */
static int set_up(struct srdma_relay *r, struct srdma_qp *qp,
		  const struct srdma_qp_keys *k)
{
	int err = srdma_qp_join(qp, k->peer_holder);

	if (err)
		return srdma_relay_refuse(r, err, "no memory for an identity");
	err = make_session(r, qp, k);
	if (err)
		return err;
	err = connect_path(r, qp, k);
	if (err) {
		srdma_session_destroy(srdma_qp_session(qp));
		srdma_qp_set_session(qp, NULL);
	}
	return err;
}

/* The same, with the group's K_PD if one was given; the leg then keeps it. */
static int set_up_with_group(struct srdma_relay *r, struct srdma_leg *leg,
			     struct srdma_qp *qp, const struct srdma_qp_keys *k)
{
	struct srdma_pdkeys *keys = &leg->keys;
	uint8_t before[SRDMA_GROUP_KEY_LEN];
	int err;

	memcpy(before, keys->pd, sizeof(before));
	if (has_group(k))
		memcpy(keys->pd, k->group_key, sizeof(keys->pd));
	err = set_up(r, qp, k);
	if (err)
		memcpy(keys->pd, before, sizeof(before));
	else if (k->mode & SRDMA_MODE_PD)
		leg->keys_in_use = 1;
	srdma_wipe(before, sizeof(before));
	return err;
}

/* The parts of the QP learn what was negotiated. */
static void begin(struct srdma_relay *r, struct srdma_qp *qp,
		  const struct srdma_qp_keys *k)
{
	const struct srdma_relay_entry *e = srdma_qp_entry(qp);
	const uint32_t mtu = e->mtu < k->peer_mtu ? e->mtu : k->peer_mtu;
	struct srdma_qp_keyed keyed = { k->role, k->level, k->mode, { 0 } };
	const struct srdma_requester_params requester = {
		.mtu = srdma_env_fit(&r->env, k->peer_mtu),
		.response_mtu = mtu,
		.peer_window = k->peer_window,
	};

	memcpy(keyed.holder, k->peer_holder, sizeof(keyed.holder));
	srdma_requester_begin(qp, &requester);
	srdma_responder_begin(qp, mtu);
	srdma_qp_set_keyed(qp, &keyed);
	srdma_qp_pd_release(qp);
	srdma_qp_activate(qp);
}

/* RFC 5042 R6.4.1-2 */
int srdma_relay_qp_keys(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_keys *k)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, k->qpn);
	struct srdma_account *identity;
	int err = qp ? check_keys(r, qp, k) : -ENOENT;

	if (!err)
		err = check_secrets(r, leg, k);
	if (!err)
		err = srdma_relay_charge_identity(r, k->peer_identity,
						  &identity);
	if (err)
		return err;
	/* The charge may have run a turn, to reclaim an idle QP. */
	err = check_keys(r, qp, k);
	if (!err)
		err = set_up_with_group(r, leg, qp, k);
	if (err) {
		srdma_relay_release_identity(identity);
		return err;
	}
	srdma_relay_join_identity(qp, identity);
	srdma_qp_entry(qp)->last_work = r->env.now;
	begin(r, qp, k);
	return 0;
}
