/*
 * New K_PDs and new secrets, the proof that permits them on another connection,
 * and the end of a QP without them: ROTATE, REKEY, PROVE, EXPIRE, LIFE of the
 * control socket (docs/protocol.md 3.5, 8.6; local-interface.md 3).
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "relay/relay_impl.h"
#include "session/session.h"

/* Time after which packets of the previous epoch count as lost, not late (3.5).
 */
#define LATE (2 * SRDMA_SECOND)

/* --- K_PD ------------------------------------------------------------------- */

/* Wipes keys of previous epochs, and those of QPs in ERR. An idle QP would keep
 * such a key, and with it a use of K_PD, until its window of packet numbers has
 * passed, and a QP that failed would keep it until it is destroyed. Packets that
 * are still late were sent again. */
static void forget_late(struct srdma_leg *leg)
{
	struct srdma_qp *qp = leg->qps;

	for (; qp; qp = srdma_qp_entry(qp)->leg_next)
		srdma_qp_rekey_settle(qp, LATE);
}

uint32_t srdma_relay_leg_behind(const struct srdma_leg *leg)
{
	return leg->keys.users_before;
}

int srdma_relay_leg_rotate(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t age_s, uint32_t *serial)
{
	uint8_t pd[SRDMA_GROUP_KEY_LEN];
	int err = 0;

	if (leg->shared)
		return srdma_relay_refuse(
			r, -EPERM,
			"the K_PD of a trust group is not rotated: open a new leg for a new group");
	if (leg->keys.users_before)
		forget_late(leg);
	if (r->env.now - leg->rotated >= age_s * SRDMA_SECOND &&
	    !leg->keys.users_before) {
		err = srdma_relay_random(r, pd, sizeof(pd));
		if (!err)
			err = srdma_pdkeys_rotate(&leg->keys, pd);
		if (!err)
			leg->rotated = r->env.now;
		srdma_wipe(pd, sizeof(pd));
	}
	*serial = leg->keys.serial;
	return err;
}

/* --- REKEY --------------------------------------------------------------- */

static int is_zero(const uint8_t *secret)
{
	static const uint8_t zero[SRDMA_MAX_SECRET];

	return srdma_equal(secret, zero, sizeof(zero));
}

static int check_qp(struct srdma_relay *r, const struct srdma_leg *leg,
		    const struct srdma_qp *qp)
{
	const struct srdma_qp_keyed *keyed = srdma_qp_keyed(qp);

	if (!srdma_qp_can(qp, SRDMA_QP_OPENS))
		return srdma_relay_refuse(
			r, -ENOTCONN,
			"QP %u is not connected: only one in RTR or RTS takes a new secret",
			srdma_qp_number(qp));
	if (keyed->level == SRDMA_LEVEL_NONE)
		return srdma_relay_refuse(r, -EINVAL,
					  "QP %u has level none, and no secret",
					  srdma_qp_number(qp));
	if ((keyed->mode & SRDMA_MODE_PD) && leg->shared)
		return srdma_relay_refuse(
			r, -EPERM,
			"the secrets of a trust group are not replaced: open a new leg for a new group");
	return 0;
}

static int check_secret(struct srdma_relay *r, const struct srdma_qp *qp,
			const struct srdma_qp_rekey *p)
{
	const int gives = p->direction == SRDMA_RX || p->direction == SRDMA_TX;
	const uint8_t len =
		gives ? srdma_session_secret_len(srdma_qp_session(qp)) : 0;
	const int derived = p->direction == SRDMA_RX &&
			    (srdma_qp_keyed(qp)->mode & SRDMA_MODE_PD);

	if (p->direction > SRDMA_REKEY_WITHDRAW)
		return srdma_relay_refuse(r, -EINVAL,
					  "direction %u: it must be 0 to %u",
					  p->direction, SRDMA_REKEY_WITHDRAW);
	if (p->secret_len != len)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a secret of %u bytes: it must have %u for this direction and suite",
			p->secret_len, len);
	if ((derived || !gives) && !is_zero(p->secret))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a secret where none belongs: it must be zero, as in key mode pd the worker derives the rx secret");
	if (!derived && gives && is_zero(p->secret))
		return srdma_relay_refuse(r, -EINVAL,
					  "no secret: all bytes are zero");
	return 0;
}

/* In key mode pd the RX secret is derived from the K_PD of the last KEY. */
static int renew(struct srdma_qp *qp, const struct srdma_qp_rekey *p)
{
	int err = srdma_session_renew(srdma_qp_session(qp), p->direction,
				      p->secret, srdma_qp_pd_serial(qp));

	if (err)
		return err;
	if (p->direction == SRDMA_RX)
		srdma_qp_pd_release(qp);
	else
		srdma_qp_rekey_begin(qp);
	return 0;
}

/* 0, or -EBUSY: a secret waits for the next epoch. */
static int query(const struct srdma_qp *qp)
{
	const struct srdma_session *s = srdma_qp_session(qp);

	return srdma_session_renewing(s, SRDMA_RX) ||
			       srdma_session_renewing(s, SRDMA_TX)
		       ? -EBUSY
		       : 0;
}

static int withdraw(struct srdma_relay *r, struct srdma_qp *qp)
{
	int err = srdma_session_withdraw(srdma_qp_session(qp));

	return err ? srdma_relay_refuse(
			     r, err,
			     "QP %u has got no new secret for receiving",
			     srdma_qp_number(qp))
		   : 0;
}

int srdma_relay_qp_rekey(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_rekey *params)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, params->qpn);
	int err = qp ? check_qp(r, leg, qp) : -ENOENT;

	if (!err)
		err = check_secret(r, qp, params);
	if (err)
		return err;
	if (params->direction == SRDMA_REKEY_WITHDRAW)
		return withdraw(r, qp);
	err = params->direction ? renew(qp, params) : query(qp);
	return err ? srdma_relay_refuse(
			     r, err,
			     "QP %u has a new secret that waits for the next epoch",
			     params->qpn)
		   : 0;
}

/* --- PROVE --------------------------------------------------------------- */

static int check_prove(struct srdma_relay *r, const struct srdma_qp *qp,
		       const struct srdma_qp_prove *p)
{
	if (!srdma_qp_can(qp, SRDMA_QP_OPENS))
		return srdma_relay_refuse(
			r, -ENOTCONN,
			"QP %u is not connected: only one in RTR or RTS has a renewal key",
			srdma_qp_number(qp));
	if (srdma_qp_keyed(qp)->level == SRDMA_LEVEL_NONE)
		return srdma_relay_refuse(
			r, -EPERM, "QP %u has level none, and no renewal key",
			srdma_qp_number(qp));
	if (p->check > 1)
		return srdma_relay_refuse(
			r, -EINVAL, "check %u: it must be 0 or 1", p->check);
	if (!p->check && !is_zero(p->proof))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a proof with check 0: it must be zero, as the worker makes it");
	return 0;
}

int srdma_relay_qp_prove(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_prove *params,
			 struct srdma_qp_prove_answer *answer)
{
	const struct srdma_qp *qp = srdma_relay_own_qp(r, leg, params->qpn);
	int err = qp ? check_prove(r, qp, params) : -ENOENT;
	const struct srdma_session *s;

	memset(answer, 0, sizeof(*answer));
	if (err)
		return err;
	s = srdma_qp_session(qp);
	err = params->check
		      ? srdma_session_check_proof(s, params->context,
						  params->proof)
		      : srdma_session_prove(s, params->context, answer->proof);
	if (err == -EBADMSG) {
		r->env.stats.resumptions_refused++;
		return srdma_relay_refuse(
			r, err,
			"the proof is not that of the peer of QP %u for this context",
			params->qpn);
	}
	if (err)
		return srdma_relay_refuse(r, err, "the proof: %s",
					  strerror(-err));
	answer->tx = srdma_session_renewals(s, SRDMA_TX);
	answer->rx = srdma_session_renewals(s, SRDMA_RX);
	return 0;
}

/* --- EXPIRE, LIFE -------------------------------------------------------- */

int srdma_relay_qp_expire(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	srdma_qp_fail(qp, SRDMA_REASON_KEY_LIMIT, SRDMA_OLDEST, 1);
	return 0;
}

int srdma_relay_qp_life(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t qpn, uint32_t seconds)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);
	struct srdma_relay_entry *e;

	if (!qp)
		return -ENOENT;
	if (!seconds || seconds > SRDMA_MAX_LIFE_S)
		return srdma_relay_refuse(
			r, -EINVAL, "a life of %u seconds: it must be 1 to %u",
			seconds, SRDMA_MAX_LIFE_S);
	if (srdma_qp_state(qp) == SRDMA_QP_INIT)
		return srdma_relay_refuse(
			r, -ENOTCONN, "QP %u has no keys yet: send KEYS first",
			qpn);
	e = srdma_qp_entry(qp);
	e->life = r->env.now + seconds * SRDMA_SECOND;
	srdma_qp_wake(qp, e->life);
	return 0;
}
