/* The turn: events in, QPs that have something to do pumped, bursts out. */
#include "relay/relay.h"

#include <stddef.h>

#include "path/connect.h"
#include "path/path.h"
#include "base/prefetch.h"
#include "relay/prefetch_burst.h"
#include "relay/relay_impl.h"

enum {
	BLOCKED_NS = 1000000, /* time after which a blocked QP or leg is tried
				 again */
	STALL_MS = 1000,
};

struct srdma_qp *srdma_relay_qp(const struct srdma_relay *r, uint32_t qpn)
{
	struct srdma_qp *qp = *srdma_relay_bucket(r, qpn);

	while (qp && srdma_qp_number(qp) != qpn)
		qp = srdma_qp_entry(qp)->hash_next;
	return qp;
}

struct srdma_qp *srdma_relay_next_qp(const struct srdma_relay *r,
				     const struct srdma_qp *qp)
{
	const struct srdma_relay_entry *e = qp ? srdma_qp_entry(qp) : NULL;
	uint32_t i = e ? e->leg->id % SRDMA_MAX_LEGS + 1 : 0;

	if (e && e->leg_next)
		return e->leg_next;
	for (; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i] && r->legs[i]->qps)
			return r->legs[i]->qps;
	return NULL;
}

/* --- events ---------------------------------------------------------------- */

static void host_event(struct srdma_relay *r, const struct srdma_event *ev)
{
	struct srdma_leg *leg = ev->conn ? ev->conn->user : NULL;

	switch (ev->kind) {
	case SRDMA_EV_RECV:
		if (leg && !leg->closing)
			srdma_leg_descriptor(leg, ev->buf);
		r->env.host->ops->buf_put(ev->buf);
		break;
	case SRDMA_EV_DMA_DONE:
		srdma_op_done((struct srdma_op *)(uintptr_t)ev->cookie,
			      ev->status);
		break;
	case SRDMA_EV_DOWN:
		r->ended[leg->id % SRDMA_MAX_LEGS] =
			(struct srdma_ended_leg){ leg->id, ev->status };
		srdma_cq_down(&leg->cq);
		srdma_leg_end(leg);
		break;
	case SRDMA_EV_UP: /* a further leg for keepalive */
		leg->was_up = 1;
		if (r->env.host->ops->keepalive)
			srdma_env_wake(&r->env, r->env.now);
		break;
	default:
		break;
	}
}

static void wire_event(struct srdma_relay *r, const struct srdma_event *ev)
{
	switch (ev->kind) {
	case SRDMA_EV_RECV:
		srdma_receive_datagram(r, ev->conn, ev->buf);
		r->env.wire->ops->buf_put(ev->buf);
		break;
	case SRDMA_EV_ACCEPT:
		srdma_path_accept(&r->env, ev->conn);
		break;
	case SRDMA_EV_UP:
		srdma_path_up(ev->conn);
		break;
	case SRDMA_EV_DOWN:
		srdma_path_down(&r->env, ev->conn);
		break;
	default:
		break;
	}
}

static int take_host(struct srdma_relay *r, int budget)
{
	struct srdma_port *host = r->env.host;
	int n = host->ops->poll(host, r->events, budget);

	srdma_prefetch_burst_host(r, r->events, n);
	for (int i = 0; i < n; i++)
		host_event(r, &r->events[i]);
	return n;
}

/*
 * Each packet may take one buffer and one op. A datagram is polled only while
 * both are free, so that no verified packet is dropped for lack of memory.
 * Datagrams are polled one at a time, as one may end the connection on which the
 * next arrived.
 */
static int take_wire(struct srdma_relay *r, int budget)
{
	struct srdma_port *host = r->env.host, *wire = r->env.wire;
	int n = 0;

	srdma_prefetch_burst_wire(r, budget);
	while (n < budget) {
		if (!r->spare)
			r->spare = host->ops->buf_get(host);
		if (!r->spare || !r->env.ops.left)
			break;
		if (wire->ops->poll(wire, r->events, 1) < 1)
			break;
		wire_event(r, &r->events[0]);
		n++;
	}
	return n;
}

/* --- QPs --------------------------------------------------------------------- */

static void pump_all(struct srdma_relay *r)
{
	struct srdma_qp *const first = srdma_qp_take_active(&r->env);
	struct srdma_qp *qp = first, *next;

	for (; qp; qp = next) {
		next = srdma_qp_run(qp);
		srdma_pump_urgent(qp);
	}
	for (qp = first; qp; qp = srdma_qp_ran(qp, srdma_pump_send(qp)))
		;
	/* A QP that a full ring blocks is active again, and no event may come. A
	 * QP that is late runs in the next turn, which follows at once, because
	 * its tenant sent something in this one. */
	if (r->env.active_head)
		srdma_env_wake(&r->env, r->env.now + BLOCKED_NS);
}

/* Runs the timers of each due QP once per turn, though a QP may set its own timer
 * or another one's to the present. */
static void expire_qps(struct srdma_relay *r)
{
	struct srdma_env *env = &r->env;
	struct srdma_timer *next,
		*t = srdma_timers_take(&env->timers, env->now);

	for (; t; t = next) {
		struct srdma_qp *qp = srdma_qp_of_timer(t);

		next = t->next;
		if (next)
			srdma_qp_prefetch(srdma_qp_of_timer(next));
		env->stats.timer_looks++;
		srdma_qp_wake(qp, srdma_expire_qp(qp, env->now));
	}
}

static void expire(struct srdma_relay *r)
{
	struct srdma_env *env = &r->env;

	expire_qps(r);
	if (env->now < env->timer)
		return;
	env->timer = SRDMA_NEVER;
	srdma_path_expire(env);
	if (env->host->ops->keepalive)
		srdma_env_wake(env,
			       env->host->ops->keepalive(env->host, env->now));
	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i] && r->legs[i]->closing &&
		    !srdma_leg_reap(r->legs[i]))
			srdma_env_wake(env, env->now + BLOCKED_NS);
}

/* --- the turn ---------------------------------------------------------------- */

static uint64_t packets_sent(const struct srdma_relay *r)
{
	return r->env.stats.packets_sealed +
	       r->env.stats.packets_unprotected_sent;
}

uint64_t srdma_relay_now(const struct srdma_relay *r)
{
	return r->env.now;
}

/* A timer is late: the worker did not run, or was too busy, and so did not hear its
 * peers. A timer that was set to a time of the past is due since the last run. */
static void note_stall(struct srdma_relay *r, uint64_t now)
{
	const uint64_t due = srdma_time_later(srdma_relay_timer(r), r->env.now);

	if (now > due && now - due > STALL_MS * SRDMA_MS)
		r->env.resumed = now;
}

int srdma_relay_run(struct srdma_relay *r, uint64_t now, int budget)
{
	struct srdma_port *host = r->env.host, *wire = r->env.wire;
	uint64_t before = packets_sent(r);
	int n;

	note_stall(r, now);
	r->env.now = now;
	srdma_connect_turn(&r->env);
	srdma_tenant_begin(&r->env.tenants, now);
	srdma_qp_resume(&r->env);
	if (budget > SRDMA_MAX_BURST)
		budget = SRDMA_MAX_BURST;
	n = take_host(r, budget);
	n += take_wire(r, budget);
	if (r->env.active_head)
		pump_all(r);
	/* Timers run after pump and flush, so that a final NAK or CLOSE leaves
	 * before its path is closed. */
	if (now >= srdma_relay_timer(r)) {
		wire->ops->flush(wire);
		expire(r);
	}
	if (r->env.active_head)
		pump_all(r);
	wire->ops->flush(wire);
	host->ops->flush(host);
	return n + (int)(packets_sent(r) - before);
}

uint64_t srdma_relay_changes(const struct srdma_relay *r)
{
	return r->env.changes;
}

void srdma_relay_clock(struct srdma_relay *r, uint32_t seconds)
{
	r->env.wall = seconds;
}

uint64_t srdma_relay_timer(const struct srdma_relay *r)
{
	return srdma_time_earlier(srdma_timers_first(&r->env.timers),
				  r->env.timer);
}
