/*
 * Epochs of QPs (docs/protocol.md 3.5): what the relay's clock and acks have to
 * do with them, and the new secrets and K_PDs that the key exchange brings
 * (10: ROTATE, REKEY).
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "relay_impl.h"

/* After it, what was sealed under the epoch before is lost, not late (3.5). */
#define LATE (2 * SRDMA_SECOND)

/* --- epochs -------------------------------------------------------------- */

int srdma_rekey_before(struct srdma_qp *qp, struct srdma_packet *p)
{
	struct srdma_relay *r = qp->relay;
	int err = srdma_session_advance(qp->session, r->now, qp->acked_pn);

	if (!err)
		return 0;
	if (err == 1) {
		r->stats.rekeys_sent++;
		return 0;
	}
	if (err != -EAGAIN)
		return err;
	if (r->now >= qp->urged + srdma_rtt_rto(&qp->rtt)) {
		p->flags |= SRDMA_STH_ACK_NOW;
		qp->urged = r->now;
	}
	return 0;
}

void srdma_rekey_told(struct srdma_qp *qp, uint64_t highest)
{
	qp->acked_pn = highest;
	if (!qp->renewing)
		return;
	if (srdma_session_renewing(qp->session, SRDMA_TX)) {
		qp->ctl |= SRDMA_SAY_PING;
		srdma_relay_activate(qp);
	} else if (srdma_session_told(qp->session, highest)) {
		qp->renewing = 0;
	}
}

void srdma_rekey_heard(struct srdma_qp *qp)
{
	uint32_t epoch = srdma_session_epoch(qp->session, SRDMA_RX);

	if (epoch != qp->peer_epoch)
		qp->followed = qp->relay->now;
	qp->relay->stats.rekeys_received += epoch - qp->peer_epoch;
	qp->peer_epoch = epoch;
}

/* --- K_PD ---------------------------------------------------------------- */

void srdma_rekey_hold(struct srdma_qp *qp)
{
	struct srdma_pdkeys *keys = &qp->leg->keys;

	srdma_rekey_release(qp);
	qp->pd_serial = keys->serial;
	qp->pd_held = 1;
	srdma_pdkeys_hold(keys, qp->pd_serial);
}

void srdma_rekey_release(struct srdma_qp *qp)
{
	if (qp->pd_held)
		srdma_pdkeys_release(&qp->leg->keys, qp->pd_serial);
	qp->pd_held = 0;
}

/* A quiet QP would keep the key of the epoch before, and K_PD with it, until
 * its number window has passed. What comes so late is sent again anyway. */
static void forget_late(struct srdma_leg *leg)
{
	const uint64_t now = leg->relay->now;

	for (struct srdma_qp *qp = leg->qps; qp; qp = qp->leg_next)
		if (qp->session && now - qp->followed >= LATE)
			srdma_session_settle(qp->session);
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
			"the K_PD of a trust group is not rotated; a new leg for a new group would be right");
	if (leg->keys.users_before)
		forget_late(leg);
	if (r->now - leg->rotated >= age_s * SRDMA_SECOND &&
	    !leg->keys.users_before) {
		err = srdma_relay_random(r, pd, sizeof(pd));
		if (!err)
			err = srdma_pdkeys_rotate(&leg->keys, pd);
		if (!err)
			leg->rotated = r->now;
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

static int check_qp(struct srdma_relay *r, const struct srdma_qp *qp)
{
	if (qp->state != SRDMA_QP_RTR && qp->state != SRDMA_QP_RTS)
		return srdma_relay_refuse(
			r, -ENOTCONN,
			"QP %u is not connected: only one in RTR or RTS takes a new secret",
			qp->qpn);
	if (qp->level == SRDMA_LEVEL_NONE)
		return srdma_relay_refuse(r, -EINVAL,
					  "QP %u has level none, and no secret",
					  qp->qpn);
	if ((qp->mode & SRDMA_MODE_PD) && qp->leg->shared)
		return srdma_relay_refuse(
			r, -EPERM,
			"the secrets of a trust group stay; a new leg for a new group would be right");
	return 0;
}

static int check_secret(struct srdma_relay *r, const struct srdma_qp *qp,
			const struct srdma_qp_rekey *p)
{
	const uint8_t len =
		p->direction ? srdma_session_secret_len(qp->session) : 0;
	const int derived =
		p->direction == SRDMA_RX && (qp->mode & SRDMA_MODE_PD);

	if (p->direction > SRDMA_TX)
		return srdma_relay_refuse(
			r, -EINVAL, "direction %u; 0, %u or %u would be right",
			p->direction, SRDMA_RX, SRDMA_TX);
	if (p->secret_len != len)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a secret of %u bytes; %u would be right for this direction and suite",
			p->secret_len, len);
	if ((derived || !p->direction) && !is_zero(p->secret))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a secret where none belongs; zero would be right: in key mode pd the worker derives the rx secret");
	if (!derived && p->direction && is_zero(p->secret))
		return srdma_relay_refuse(r, -EINVAL,
					  "no secret: all bytes are zero");
	return 0;
}

/* What is received with comes from the K_PD of the last KEY. */
static int renew(struct srdma_qp *qp, const struct srdma_qp_rekey *p)
{
	const uint32_t serial =
		qp->pd_held ? qp->pd_serial : qp->leg->keys.serial;
	int err = srdma_session_renew(qp->session, p->direction, p->secret,
				      serial);

	if (err)
		return err;
	if (p->direction == SRDMA_RX) {
		srdma_rekey_release(qp);
		return 0;
	}
	qp->renewing = 1;
	if (qp->state == SRDMA_QP_RTS) {
		qp->ctl |= SRDMA_SAY_PING;
		srdma_relay_activate(qp);
	}
	srdma_relay_wake_qp(qp, qp->relay->now);
	return 0;
}

/* Has what was given been taken up? */
static int ask(const struct srdma_qp *qp)
{
	const struct srdma_session *s = qp->session;

	return srdma_session_renewing(s, SRDMA_RX) ||
			       srdma_session_renewing(s, SRDMA_TX)
		       ? -EBUSY
		       : 0;
}

int srdma_relay_qp_rekey(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_rekey *params)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, params->qpn);
	int err = qp ? check_qp(r, qp) : -ENOENT;

	if (!err)
		err = check_secret(r, qp, params);
	if (err)
		return err;
	err = params->direction ? renew(qp, params) : ask(qp);
	return err ? srdma_relay_refuse(
			     r, err,
			     "QP %u has a new secret that waits for the next epoch",
			     qp->qpn)
		   : 0;
}

int srdma_relay_qp_expire(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	srdma_qp_fail(qp, SRDMA_REASON_KEY_LIMIT, SRDMA_OLDEST, 1);
	return 0;
}
