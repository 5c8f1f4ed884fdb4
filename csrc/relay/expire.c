/* Timers of a QP (docs/protocol.md 5, 7). */
#include "path/connect.h"
#include "path/path.h"
#include "path/probe.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

enum {
	PINGS = 10,  /* PINGs between env->ping and env->silence */
	REST_S = 10, /* time after which an idle QP's tables are freed */
};

/* Time of the first or next PING, ns, if the peer is silent since that time.
 * There are several, so that the QP does not fail for lost ones. */
static uint64_t next_ping(const struct srdma_qp *qp, uint64_t since)
{
	const struct srdma_env *env = srdma_qp_env(qp);
	const uint64_t first = since + env->ping;
	const uint64_t pinged = srdma_qp_entry(qp)->pinged;

	if (since >= pinged)
		return first;
	return srdma_time_later(first,
				pinged + (env->silence - env->ping) / PINGS);
}

static void ping(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);

	srdma_path_go_own(qp);
	if (e->pinged > srdma_qp_heard(qp))
		srdma_path_try_another(qp);
	srdma_qp_schedule(qp, SRDMA_SAY_PING);
	e->pinged = now;
	srdma_qp_activate(qp);
}

int srdma_expire_is_waiting(const struct srdma_qp *qp)
{
	return !srdma_post_is_empty(qp) || !srdma_receive_queue_is_empty(qp) ||
	       srdma_shared_queue_is_used(qp);
}

static uint64_t expire_silence(struct srdma_qp *qp, uint64_t now)
{
	uint64_t silent =
		srdma_env_silent(srdma_qp_env(qp), srdma_qp_heard(qp));

	if (srdma_qp_state(qp) != SRDMA_QP_RTS ||
	    !srdma_connect_validated(qp) || !srdma_expire_is_waiting(qp))
		return SRDMA_NEVER;
	if (now >= silent) {
		srdma_qp_fail(qp, SRDMA_REASON_PEER_SILENT, SRDMA_OLDEST, 1);
		return SRDMA_NEVER;
	}
	if (now >= next_ping(qp, srdma_qp_heard(qp)))
		ping(qp, now);
	return srdma_time_earlier(next_ping(qp, srdma_qp_heard(qp)), silent);
}

/* The peer confirmed no response since that time. It is given up if it sends
 * nevertheless, or if responses are due; else it may be away, and holds nothing. */
static void give_up_unconfirmed(struct srdma_qp *qp, uint64_t since)
{
	if (srdma_qp_heard(qp) > since + srdma_qp_env(qp)->ping ||
	    !srdma_responder_is_idle(qp))
		srdma_qp_fail(qp, SRDMA_REASON_PEER_SILENT, SRDMA_OLDEST, 1);
	else
		srdma_path_unwatch(qp);
}

/* A peer that confirms no response is asked by PINGs. The path is not blamed. */
static uint64_t expire_unconfirmed(struct srdma_qp *qp, uint64_t now)
{
	const uint64_t since = srdma_path_unconfirmed(qp);
	uint64_t end;

	if (since == SRDMA_NEVER || !srdma_connect_validated(qp))
		return SRDMA_NEVER;
	end = srdma_env_silent(srdma_qp_env(qp), since);
	if (now >= end) {
		give_up_unconfirmed(qp, since);
		return SRDMA_NEVER;
	}
	if (now >= next_ping(qp, since)) {
		srdma_qp_schedule(qp, SRDMA_SAY_PING);
		srdma_qp_entry(qp)->pinged = now;
		srdma_qp_activate(qp);
	}
	return srdma_time_earlier(next_ping(qp, since), end);
}

/* Frees the tables of an idle QP. PINGs do not count as activity. */
static uint64_t expire_tables(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);
	const uint64_t work =
		srdma_post_count(qp) + srdma_responder_executed(qp);

	if (!srdma_requester_has_tables(qp) && !srdma_responder_has_tables(qp))
		return SRDMA_NEVER;
	if (e->worked != work || !srdma_requester_is_idle(qp) ||
	    !srdma_responder_is_idle(qp)) {
		e->worked = work;
		e->rested = now + REST_S * SRDMA_SECOND;
	}
	if (now < e->rested)
		return e->rested;
	srdma_requester_give_tables(qp);
	srdma_responder_give_tables(qp);
	return SRDMA_NEVER;
}

/* LIFE: the secrets were not renewed in time. */
static uint64_t expire_life(struct srdma_qp *qp, uint64_t now)
{
	const uint64_t life = srdma_qp_entry(qp)->life;

	if (!life)
		return SRDMA_NEVER;
	if (now < life)
		return life;
	srdma_qp_fail(qp, SRDMA_REASON_KEY_LIMIT, SRDMA_OLDEST, 1);
	return SRDMA_NEVER;
}

/* The grace after the peer's end is over: the last records are made. */
static uint64_t expire_grace(struct srdma_qp *qp, uint64_t now)
{
	const uint64_t end = srdma_qp_grace_end(qp);

	if (now < end)
		return end;
	srdma_qp_activate(qp);
	return SRDMA_NEVER;
}

/* Called in this order; each may fail the QP. A QP in INIT has no session: only
 * the deadlines of its requests run. */
static uint64_t (*const timers[])(struct srdma_qp *qp, uint64_t now) = {
	expire_life, /* first: no other timer makes the QP send after its life */
	expire_silence,
	expire_unconfirmed,
	srdma_retry_deadline,
	srdma_responder_expire,
	srdma_connect_expire,
	srdma_probe_expire, /* before the timers of requests use the path */
	srdma_responder_expire_kept,
	expire_tables,
	srdma_retry_expire,
};

uint64_t srdma_expire_qp(struct srdma_qp *qp, uint64_t now)
{
	uint64_t next = SRDMA_NEVER;

	if (srdma_qp_state(qp) == SRDMA_QP_INIT)
		return srdma_retry_deadline(qp, now);
	if (srdma_qp_state(qp) == SRDMA_QP_ERR)
		return expire_grace(qp, now);
	for (unsigned i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		if (!srdma_qp_can(qp, SRDMA_QP_WATCHES))
			return SRDMA_NEVER;
		next = srdma_time_earlier(next, timers[i](qp, now));
	}
	return next;
}
