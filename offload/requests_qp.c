/*
 * Requests about QPs: INIT, REINIT, SHARE, MODIFY, KEY, KEYS, WAIT, END, DESTROY,
 * RESET, and the renewal of key material while they are in use: ROTATE, REKEY, PROVE, EXPIRE,
 * LIFE (local-interface.md 3).
 */
#include <errno.h>
#include <stdio.h>

#include "log.h"
#include "requests_impl.h"

int requests_qp_init(struct call *c)
{
	struct srdma_ctl_init_answer *a = &c->out.qp;
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.init.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_init(c->q->p.relay, leg, &c->in.init.qp, &a->qp);
	if (rc < 0)
		return requests_refused(c, rc);
	snprintf(a->wire, sizeof(a->wire), "%s", c->q->p.wire->address);
	return 0;
}

int requests_qp_reinit(struct call *c)
{
	const struct srdma_ctl_reinit *reinit = &c->in.reinit;
	struct srdma_ctl_init_answer *a = &c->out.qp;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, reinit->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_reinit(c->q->p.relay, leg, reinit->qpn, &reinit->qp,
				   &a->qp, &a->records);
	if (rc < 0)
		return requests_refused(c, rc);
	deferred_cancel_reset(&c->q->deferred, srdma_relay_leg_id(leg),
			      reinit->qpn);
	snprintf(a->wire, sizeof(a->wire), "%s", c->q->p.wire->address);
	return 0;
}

int requests_qp_modify(struct call *c)
{
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, c->in.modify.qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_modify(c->q->p.relay, leg, &c->in.modify);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_share(struct call *c)
{
	const struct srdma_ctl_share *share = &c->in.share;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, share->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_share(c->q->p.relay, leg, share->qpn,
				  share->holder);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_secret(struct call *c)
{
	const struct srdma_qp_secret *wanted = &c->in.secret;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, wanted->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_secret(c->q->p.relay, leg, wanted,
				   &c->out.secret_answer);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_keys(struct call *c)
{
	struct srdma_qp_keys *k = &c->in.keys.qp;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, k->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_memkey_holder(k->peer_holder, c->in.keys.identity);
	if (rc < 0)
		return requests_refuse(c, rc, "SHA-256 failed");
	k->peer_identity = c->in.keys.identity;
	rc = srdma_relay_qp_keys(c->q->p.relay, leg, k);
	if (rc < 0)
		return requests_refused(c, rc);
	log_info("QP 0x%06x: suite 0x%02x level %u key mode %u with %s at %s",
		 k->qpn, k->suite, k->level, k->mode, c->in.keys.identity,
		 k->peer_wire);
	return 0;
}

int requests_qp_wait(struct call *c)
{
	struct srdma_ctl_wait_answer *a = &c->out.wait;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, c->in.qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_state(c->q->p.relay, leg, c->in.qpn, &a->reason);
	if (rc < SRDMA_QP_RTS)
		return requests_defer(
			c, leg, &(struct deferred){ .number = c->in.qpn });
	a->state = (uint32_t)rc;
	return 0;
}

int requests_qp_end(struct call *c)
{
	const struct srdma_ctl_end *end = &c->in.end;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, end->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_end(c->q->p.relay, leg, end->qpn, end->reason);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_destroy(struct call *c)
{
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, c->in.qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_destroy(c->q->p.relay, leg, c->in.qpn);
	if (rc == -EINPROGRESS)
		return requests_defer(
			c, leg, &(struct deferred){ .number = c->in.qpn });
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_reset(struct call *c)
{
	const struct srdma_ctl_reset *reset = &c->in.reset;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, reset->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_reset(c->q->p.relay, leg, reset->qpn,
				  reset->posted);
	if (!rc || rc == -EINPROGRESS)
		deferred_cancel_reset(&c->q->deferred, srdma_relay_leg_id(leg),
				      reset->qpn);
	if (rc == -EINPROGRESS)
		return requests_defer(
			c, leg,
			&(struct deferred){ .number = reset->qpn,
					    .ticket = reset->posted });
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_rotate(struct call *c)
{
	struct srdma_ctl_rotate_answer *a = &c->out.rotated;
	struct srdma_leg *leg;
	int rc = requests_leg(c, c->in.rotate.leg, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_leg_rotate(c->q->p.relay, leg, c->in.rotate.age,
				    &a->serial);
	if (rc < 0)
		return requests_refused(c, rc);
	a->behind = srdma_relay_leg_behind(leg);
	return 0;
}

int requests_qp_rekey(struct call *c)
{
	const struct srdma_qp_rekey *secret = &c->in.rekey;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, secret->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_rekey(c->q->p.relay, leg, secret);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_prove(struct call *c)
{
	const struct srdma_qp_prove *prove = &c->in.prove;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, prove->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_prove(c->q->p.relay, leg, prove, &c->out.proved);
	if (rc == -EBADMSG)
		log_info("QP 0x%06x: a peer could not prove that it is the end "
			 "of its session",
			 prove->qpn);
	return rc < 0 ? requests_refused(c, rc) : 0;
}

int requests_qp_expire(struct call *c)
{
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, c->in.qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_expire(c->q->p.relay, leg, c->in.qpn);
	if (rc < 0)
		return requests_refused(c, rc);
	log_info("QP 0x%06x ends: its keys were not renewed", c->in.qpn);
	return 0;
}

int requests_qp_life(struct call *c)
{
	const struct srdma_ctl_life *life = &c->in.life;
	struct srdma_leg *leg;
	int rc = requests_leg_of_qp(c, life->qpn, &leg);

	if (rc < 0)
		return rc;
	rc = srdma_relay_qp_life(c->q->p.relay, leg, life->qpn, life->seconds);
	if (rc < 0)
		return requests_refused(c, rc);
	log_info("QP 0x%06x ends in %u s unless its keys are renewed",
		 life->qpn, life->seconds);
	return 0;
}
