#include "qp/qp.h"

#include <assert.h>
#include <errno.h>

#include "memory/rights.h"
#include "qp/cq.h"
#include "qp/env.h"
#include "qp/qp_impl.h"
#include "session/session.h"

/* --- facts --------------------------------------------------------------- */

struct srdma_env *srdma_qp_env(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->env;
}

uint32_t srdma_qp_number(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->qpn;
}

const struct srdma_leg *srdma_qp_leg(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->leg;
}

struct srdma_session *srdma_qp_session(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->session;
}

const struct srdma_qp_keyed *srdma_qp_keyed(const struct srdma_qp *qp)
{
	return &srdma_qp_core(qp)->keyed;
}

struct srdma_account_counts *srdma_qp_counts(const struct srdma_qp *qp)
{
	return &srdma_qp_core(qp)->counts;
}

struct srdma_account *srdma_qp_identity(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->identity;
}

void srdma_qp_set_identity(struct srdma_qp *qp, struct srdma_account *identity)
{
	srdma_qp_core(qp)->identity = identity;
}

struct srdma_tenant *srdma_qp_tenant(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->tenant;
}

int srdma_qp_join(struct srdma_qp *qp, const uint8_t *identity)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_tenant_table *t = &core->env->tenants;
	struct srdma_tenant *tenant = srdma_tenant_join(t, identity);

	if (!tenant)
		return -ENOMEM;
	srdma_tenant_leave(t, core->tenant);
	core->tenant = tenant;
	return 0;
}

void srdma_qp_set_session(struct srdma_qp *qp, struct srdma_session *session)
{
	srdma_qp_core(qp)->session = session;
}

void srdma_qp_set_keyed(struct srdma_qp *qp, const struct srdma_qp_keyed *keyed)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->keyed = *keyed;
	srdma_qp_move(qp, SRDMA_QP_RTR);
}

/* Not inlined: the common path of srdma_qp_access() then saves no registers. */
static __attribute__((noinline)) enum srdma_reason
check_access(struct srdma_qp_core *core, struct srdma_mr_permit *permit,
	     const struct srdma_span *span, struct srdma_mr **mr)
{
	const struct srdma_mr_want want = {
		core->leg,	    core->qpn,	span->key, span->right,
		core->keyed.holder, span->addr, span->len,
	};

	return srdma_mr_permit(&core->env->mrs, permit, &want, mr);
}

enum srdma_reason srdma_qp_access(struct srdma_qp *qp,
				  const struct srdma_span *span,
				  struct srdma_mr **mr)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	const int remote = (span->right & SRDMA_RIGHTS_REMOTE) != 0;
	struct srdma_mr_permit *permit = &core->permits[remote];

	*mr = srdma_mr_permitted(&core->env->mrs, permit, span->key,
				 span->right);
	if (!*mr)
		return check_access(core, permit, span, mr);
	if (srdma_mr_covers(*mr, span->addr, span->len))
		return SRDMA_REASON_NONE;
	*mr = NULL;
	return SRDMA_REASON_OUT_OF_BOUNDS;
}

/* --- state and end ------------------------------------------------------- */

enum srdma_qp_state srdma_qp_state(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->state;
}

int srdma_qp_can(const struct srdma_qp *qp, enum srdma_qp_ability ability)
{
	return srdma_state_can(srdma_qp_core(qp)->state, ability);
}

int srdma_qp_move(struct srdma_qp *qp, enum srdma_qp_state to)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (!srdma_state_may_move(core->state, to))
		return -EINVAL;
	core->state = (uint8_t)to;
	core->env->changes++;
	return 0;
}

void srdma_qp_set_grace(struct srdma_qp *qp, uint64_t grace)
{
	srdma_qp_core(qp)->grace = grace;
}

uint64_t srdma_qp_grace_end(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->grace_end;
}

int srdma_qp_is_in_grace(const struct srdma_qp *qp)
{
	const struct srdma_qp_core *core = srdma_qp_core(qp);

	return core->env->now < core->grace_end;
}

/* The QP went to ERR. */
static void begin_grace(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (!core->grace || (core->reason != SRDMA_REASON_PEER_CLOSED &&
			     core->reason != SRDMA_REASON_PEER_HOST_GONE))
		return;
	core->grace_end = core->env->now + core->grace;
	srdma_qp_wake(qp, core->grace_end);
}

void srdma_qp_fail(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id,
		   int tell)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (srdma_qp_move(qp, SRDMA_QP_ERR))
		return;
	core->reason = reason;
	core->failed_id = id;
	core->env->stats.reason[reason]++;
	core->counts.qps_failed += reason != SRDMA_REASON_PEER_CLOSED;
	core->scheduled &= SRDMA_SAY_NAK;
	if (tell && core->session) {
		core->scheduled |= SRDMA_SAY_CLOSE;
		core->last.close_reason = srdma_reason(reason)->close
						  ? (uint8_t)reason
						  : SRDMA_REASON_PEER_ERROR;
	}
	core->last.sent = core->scheduled;
	if (core->session)
		srdma_session_end_renewal(core->session);
	core->env->discard(qp);
	begin_grace(qp);
	core->event_due = 1;
	srdma_qp_activate(qp);
}

void srdma_qp_nak(struct srdma_qp *qp, enum srdma_reason reason,
		  struct srdma_position at)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (core->state == SRDMA_QP_ERR)
		return;
	core->scheduled |= SRDMA_SAY_NAK;
	core->last.nak_reason = srdma_reason(reason)->nak
					? (uint8_t)reason
					: SRDMA_REASON_TARGET_DMA;
	core->last.nak_at = at;
	srdma_qp_fail(qp, reason, SRDMA_NONE, 0);
}

void srdma_qp_end(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (core->ending)
		return;
	core->ending = (uint8_t)reason;
	core->ending_id = id;
	srdma_qp_activate(qp);
}

int srdma_qp_is_ending(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->ending != 0;
}

void srdma_qp_end_now(struct srdma_qp *qp)
{
	const struct srdma_qp_core *core = srdma_qp_core(qp);

	srdma_qp_fail(qp, core->ending, core->ending_id, 0);
}

uint32_t srdma_qp_reason(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->reason;
}

uint64_t srdma_qp_failed_id(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->failed_id;
}

void srdma_qp_silence(struct srdma_qp *qp)
{
	srdma_qp_core(qp)->silent = 1;
}

int srdma_qp_is_silent(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->silent;
}

int srdma_qp_record(struct srdma_qp *qp, struct srdma_record *rec,
		    uint32_t reason)
{
	const struct srdma_qp_core *core = srdma_qp_core(qp);
	const struct srdma_reason_row *row = srdma_reason(reason);

	rec->qpn = core->qpn;
	rec->status =
		rec->opcode == SRDMA_WC_RECV ? row->recv_status : row->status;
	rec->vendor_err = reason;
	return core->silent ? 0 : srdma_cq_put(core->cq, rec);
}

int srdma_qp_event_is_due(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->event_due;
}

int srdma_qp_record_event(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_record event = { .opcode = SRDMA_WC_QP_EVENT };
	int err;

	if (!core->event_due)
		return 0;
	err = srdma_qp_record(qp, &event, core->reason);
	core->event_due = err != 0;
	return err;
}

uint32_t srdma_qp_dmas(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->dmas;
}

/* --- control packets that are scheduled ---------------------------------- */

void srdma_qp_schedule(struct srdma_qp *qp, enum srdma_say what)
{
	srdma_qp_core(qp)->scheduled |= (uint8_t)what;
}

void srdma_qp_said(struct srdma_qp *qp, enum srdma_say what)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	if (what & (SRDMA_SAY_NAK | SRDMA_SAY_CLOSE))
		core->last.when = core->env->now;
	if (what != SRDMA_SAY_PROBE)
		core->scheduled &= (uint8_t)~SRDMA_SAY_ACK;
	core->scheduled &= (uint8_t)~what;
}

uint8_t srdma_qp_scheduled(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->scheduled;
}

const struct srdma_qp_last *srdma_qp_last(const struct srdma_qp *qp)
{
	return &srdma_qp_core(qp)->last;
}

void srdma_qp_repeat_last(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->scheduled |= core->last.sent;
	srdma_qp_activate(qp);
}

void srdma_qp_mute(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->scheduled = core->last.sent = 0;
}

/* --- when it runs -------------------------------------------------------- */

/* Appends the QP to one of the two lists of env, unless it is on one. */
static void append(struct srdma_qp *qp, struct srdma_qp **head,
		   struct srdma_qp **tail)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->active = SRDMA_QP_LISTED;
	core->active_next = NULL;
	*(*tail ? &srdma_qp_core(*tail)->active_next : head) = qp;
	*tail = qp;
}

void srdma_qp_activate(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_env *env = core->env;

	if (core->active == SRDMA_QP_RUNS)
		core->active = SRDMA_QP_RUNS_AGAIN;
	else if (core->active == SRDMA_QP_INACTIVE)
		append(qp, &env->active_head, &env->active_tail);
}

int srdma_qp_is_spent(const struct srdma_qp *qp)
{
	const struct srdma_qp_core *core = srdma_qp_core(qp);

	return core->tenant &&
	       srdma_tenant_is_spent(&core->env->tenants, core->tenant,
				     core->env->now);
}

void srdma_qp_resume(struct srdma_env *env)
{
	if (!env->late_head)
		return;
	srdma_qp_core(env->late_tail)->active_next = env->active_head;
	if (!env->active_tail)
		env->active_tail = env->late_tail;
	env->active_head = env->late_head;
	env->late_head = env->late_tail = NULL;
}

struct srdma_qp *srdma_qp_take_active(struct srdma_env *env)
{
	struct srdma_qp *first = env->active_head;

	env->active_head = env->active_tail = NULL;
	return first;
}

struct srdma_qp *srdma_qp_run(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->active = SRDMA_QP_RUNS;
	return core->active_next;
}

int srdma_qp_runs_again(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->active == SRDMA_QP_RUNS_AGAIN;
}

struct srdma_qp *srdma_qp_ran(struct srdma_qp *qp, enum srdma_qp_run how)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_env *env = core->env;
	struct srdma_qp *next = core->active_next;

	core->active = SRDMA_QP_INACTIVE;
	if (how == SRDMA_QP_LATE)
		append(qp, &env->late_head, &env->late_tail);
	else if (how == SRDMA_QP_AGAIN)
		append(qp, &env->active_head, &env->active_tail);
	return next;
}

static void leave_active(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	struct srdma_env *env = core->env;
	struct srdma_qp **at = &env->active_head, *before = NULL;

	if (core->active == SRDMA_QP_INACTIVE)
		return;
	/* none is freed while it runs */
	assert(core->active == SRDMA_QP_LISTED);
	srdma_qp_resume(env); /* it may be late */
	while (*at != qp) {
		before = *at;
		at = &srdma_qp_core(before)->active_next;
	}
	*at = core->active_next;
	if (env->active_tail == qp)
		env->active_tail = before;
	core->active = SRDMA_QP_INACTIVE;
}

void srdma_qp_wake(struct srdma_qp *qp, uint64_t when)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	srdma_timer_wake(&core->env->timers, &core->timer, when);
}

void srdma_qp_retire(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	leave_active(qp);
	srdma_timer_cancel(&core->env->timers, &core->timer);
}

uint64_t srdma_qp_heard(const struct srdma_qp *qp)
{
	return srdma_qp_core(qp)->heard;
}

void srdma_qp_set_heard(struct srdma_qp *qp)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);

	core->heard = core->env->now;
}
