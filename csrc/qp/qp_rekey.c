/* Epochs of a QP (docs/protocol.md 3.5): acks permit the next one, and time
 * retires the key of the previous one. */
#include <errno.h>

#include "session/pdkeys.h"
#include "qp/env.h"
#include "qp/qp_impl.h"
#include "session/session.h"

int srdma_qp_rekey_seal(struct srdma_qp *qp, struct srdma_packet *p,
			uint64_t acked, uint64_t rto)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_env *env = core->env;
	int err = srdma_session_advance(core->session, env->now, acked);

	if (!err)
		return 0;
	if (err == 1) {
		env->stats.rekeys_sent++;
		core->counts.epochs_sent++;
		return 0;
	}
	if (err != -EAGAIN)
		return err;
	if (env->now >= core->epochs.asked + rto) {
		p->flags |= SRDMA_STH_ACK_NOW;
		core->epochs.asked = env->now;
	}
	return 0;
}

void srdma_qp_rekey_acked(struct srdma_qp *qp, uint64_t highest)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (!core->epochs.renewing)
		return;
	if (srdma_session_renewing(core->session, SRDMA_TX)) {
		srdma_qp_schedule(qp, SRDMA_SAY_PING);
		srdma_qp_activate(qp);
	} else if (srdma_session_told(core->session, highest)) {
		core->epochs.renewing = 0;
	}
}

void srdma_qp_rekey_verified(struct srdma_qp *qp, const struct srdma_packet *p)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_qp_epochs *e = &core->epochs;
	uint32_t epoch;

	if (p->epoch == (e->peer_epoch & 3))
		return;
	epoch = srdma_session_epoch(core->session, SRDMA_RX);
	if (epoch != e->peer_epoch)
		e->followed = core->env->now;
	core->env->stats.rekeys_received += epoch - e->peer_epoch;
	core->counts.epochs_received += epoch - e->peer_epoch;
	e->peer_epoch = epoch;
}

void srdma_qp_rekey_begin(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->epochs.renewing = 1;
	if (core->state == SRDMA_QP_RTS) {
		srdma_qp_schedule(qp, SRDMA_SAY_PING);
		srdma_qp_activate(qp);
	}
	srdma_qp_wake(qp, core->env->now);
}

int srdma_qp_rekeying(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->epochs.renewing;
}

void srdma_qp_rekey_settle(struct srdma_qp *qp, uint64_t age)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (!core->session)
		return;
	if (core->state == SRDMA_QP_ERR) {
		srdma_session_close_rx(core->session);
		srdma_qp_pd_release(qp);
	} else if (core->env->now - core->epochs.followed >= age) {
		srdma_session_settle(core->session);
	}
}

/* --- K_PD ---------------------------------------------------------------- */

void srdma_qp_pd_hold(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	srdma_qp_pd_release(qp);
	core->epochs.pd_serial = core->pdkeys->serial;
	core->epochs.pd_held = 1;
	srdma_pdkeys_hold(core->pdkeys, core->epochs.pd_serial);
}

void srdma_qp_pd_release(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (core->epochs.pd_held)
		srdma_pdkeys_release(core->pdkeys, core->epochs.pd_serial);
	core->epochs.pd_held = 0;
}

uint32_t srdma_qp_pd_serial(const struct srdma_qp *qp)
{
	const struct srdma_qp_core *core = srdma_qp_core(qp);

	return core->epochs.pd_held ? core->epochs.pd_serial
				    : core->pdkeys->serial;
}
