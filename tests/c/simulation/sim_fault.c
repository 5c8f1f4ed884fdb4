#include "simulation/sim.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "port/sim/port_mem_impl.h"
#include "support/inside.h"
#include "simulation/sim_memory.h"

/* Returns a random end, or NULL if its QP is not open. */
static struct sim_end *any_end(struct sim *w, struct sim_qp **qp)
{
	*qp = &w->qp[sim_random(w, (uint32_t)w->qps)];
	return (*qp)->live ? &(*qp)->end[sim_random(w, 2)] : NULL;
}

static void doom_all(struct sim *w)
{
	for (int i = 0; i < w->qps; i++)
		w->qp[i].doomed = 1;
}

static struct srdma_qp *qp_of(struct sim *w, const struct sim_end *e)
{
	return srdma_relay_qp(w->side[e->leg->side].relay, e->info.qpn);
}

/* --- wire ----------------------------------------------------------------- */

enum { ON_THE_WIRE = SIM_LOSSES & ~SIM_REPLAY, MOST_CALLS = 3 };

static void catch_one(struct sim *w, const struct srdma_mem_datagram *d)
{
	uint32_t i = w->caught_count < SIM_CAUGHT ? w->caught_count++
						  : sim_random(w, SIM_CAUGHT);
	struct sim_caught *c = &w->caught[i];

	c->to = !d->side;
	c->len = d->len;
	memcpy(c->data, d->data, d->len);
}

/*
 * Returns 1 for a connection that loses all packets sent on it. A packet must
 * not be injected there: it would validate the path, and the QP would send into
 * a black hole.
 */
static int is_trap(struct srdma_conn *conn)
{
	const struct srdma_mem_end *e = srdma_mem_end_of(conn);

	return e->to && e->deaf;
}

/* Returns a random wire connection of a side, or NULL. */
static struct srdma_conn *any_conn(struct sim *w, int side)
{
	const struct srdma_relay *relay = w->side[side].relay;
	struct srdma_path *l;
	uint32_t n = 0;

	if (!relay) /* it ended before that of the other side */
		return NULL;
	for (l = relay->env.paths->paths; l; l = l->next)
		n++;
	n = sim_random(w, n);
	for (l = relay->env.paths->paths; l && n; n--)
		l = l->next;
	return l && !is_trap(l->conn) ? l->conn : NULL;
}

static void flip(struct sim *w, struct srdma_mem_datagram *d)
{
	d->data[sim_random(w, d->len)] ^= (uint8_t)(1 << sim_random(w, 8));
	if (sim_one_in(w, 4))
		d->len = 1 + sim_random(w, d->len);
}

static enum srdma_mem_fate divert(struct sim *w,
				  const struct srdma_mem_datagram *d)
{
	struct srdma_conn *other = any_conn(w, !d->side);

	if (!other)
		return SRDMA_MEM_PASS;
	srdma_port_mem_inject(other, d->data, d->len);
	return SRDMA_MEM_DROP;
}

/* Applies one of the active faults. */
static enum srdma_mem_fate hit(struct sim *w, struct srdma_mem_datagram *d)
{
	uint32_t fault;

	do {
		fault = 1u << sim_random(w, SIM_FAULTS);
	} while (!(w->active & ON_THE_WIRE & fault));
	switch (fault) {
	case SIM_DROP:
		return SRDMA_MEM_DROP;
	case SIM_SWAP:
		return SRDMA_MEM_SWAP;
	case SIM_HOLD:
		return SRDMA_MEM_HOLD;
	case SIM_TWICE:
		return SRDMA_MEM_TWICE;
	case SIM_DIVERT:
		return divert(w, d);
	default:
		flip(w, d);
		return SRDMA_MEM_PASS;
	}
}

/* The packet numbers of a QP increase, also from one epoch to the next. */
static void check_number(struct sim *w, const struct srdma_mem_datagram *d)
{
	uint32_t qpn = (uint32_t)srdma_wire_qpn(d->data, d->len);
	uint32_t psn = srdma_load24(d->data + 9);

	for (int i = 0; i <= SIM_QPS; i++) {
		struct sim_end *e = &w->qp[i].end[!d->side];
		uint32_t step = (psn - (uint32_t)e->pn) & 0xffffff;

		if (!w->qp[i].live || e->info.qpn != qpn)
			continue;
		SIM_CHECK(w, step && step < 1 << 23,
			  "packet %#x of QP %d follows %#llx", psn, i,
			  (unsigned long long)e->pn);
		e->pn += step;
		sim_rekey_wire(w, &w->qp[i].end[d->side], d->data);
	}
}

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	struct sim *w = ctx;

	w->packets++;
	w->side[d->side].sent++;
	sim_trace_packet(w, d);
	check_number(w, d);
	SIM_CHECK(w,
		  w->level != SRDMA_LEVEL_AEAD ||
			  !sim_memory_shows(d->data, d->len),
		  "plaintext on the wire");
	if (sim_one_in(w, 8))
		catch_one(w, d);
	if (w->blackhole == 1 + d->side || w->dying == 1 + d->side)
		return SRDMA_MEM_DROP;
	if (!(w->active & ON_THE_WIRE) || !sim_one_in(w, w->rate))
		return SRDMA_MEM_PASS;
	return hit(w, d);
}

static int full(void *ctx, int side)
{
	struct sim *w = ctx;

	(void)side;
	return (w->active & SIM_FULL) && sim_one_in(w, 3);
}

/*
 * On the connection of its QP a replayed packet arrives after the original; on
 * another connection it may arrive first.
 */
static void replay(struct sim *w)
{
	const struct sim_caught *c = &w->caught[sim_random(w, w->caught_count)];
	struct srdma_conn *conn = NULL;
	struct srdma_qp *qp;
	int32_t qpn;

	if (!w->caught_count)
		return;
	qpn = srdma_wire_qpn(c->data, c->len);
	qp = qpn < 0 ? NULL
		     : srdma_relay_qp(w->side[c->to].relay, (uint32_t)qpn);
	if (sim_one_in(w, 5)) /* reflected to its sender */
		conn = any_conn(w, !c->to);
	else if (qp && srdma_path_conn(qp) && !is_trap(srdma_path_conn(qp)) &&
		 !sim_one_in(w, 10))
		conn = srdma_path_conn(qp);
	else
		conn = any_conn(w, c->to);
	if (!conn)
		return;
	srdma_port_mem_inject(conn, c->data, c->len);
}

static void cut(struct sim *w)
{
	struct srdma_conn *conn = any_conn(w, (int)sim_random(w, 2));

	if (!conn)
		return;
	srdma_port_mem_cut(conn);
}

/*
 * Result of a connect. A failed one costs up to 2 s and a back-off
 * (docs/protocol.md 7.4), so that the number of failures in a row is limited.
 */
static enum srdma_mem_call call(void *ctx, int side)
{
	struct sim *w = ctx;
	enum srdma_mem_call how = SRDMA_MEM_ANSWERED;

	sim_trace_call(w, side);
	if (w->active & SIM_CALLS && w->calls < MOST_CALLS)
		how = (enum srdma_mem_call)sim_random(w, 6);
	if (how > SRDMA_MEM_IMPOSSIBLE)
		how = SRDMA_MEM_ANSWERED;
	if (how == SRDMA_MEM_IMPOSSIBLE && w->opening)
		how = SRDMA_MEM_REFUSED; /* else KEYS would fail */
	w->calls = how == SRDMA_MEM_ANSWERED ? 0 : w->calls + 1;
	return how;
}

static void intrude(struct sim *w)
{
	struct srdma_conn *conn;

	SIM_CHECK(
		w,
		!srdma_port_mem_intrude(w->side[sim_random(w, 2)].wire, &conn),
		"no memory");
}

/* --- DMA ------------------------------------------------------------------ */

static void note_stalled(struct sim *w, const struct srdma_dma *d)
{
	for (int i = 0; w->guarded && i < 2 * SIM_LEGS; i++) {
		struct sim_leg *leg = &w->side[i % 2].leg[i / 2];
		const struct sim_area *a = &leg->area[SIM_GUARDED];

		if (leg->mem && d->addr - (uintptr_t)leg->mem - a->at < a->len)
			w->stalled = leg;
	}
}

static int dma(void *ctx, const struct srdma_dma *d, int is_write)
{
	struct sim *w = ctx;

	if ((w->active & SIM_DMA_AGAIN) && sim_one_in(w, 3)) {
		note_stalled(w, d);
		return -EAGAIN;
	}
	if (w->active & SIM_DMA_FAIL && sim_one_in(w, 60 * w->calms)) {
		doom_all(w); /* its QP is unknown here */
		sim_trace_dma(w, d, is_write, -EFAULT);
		return -EFAULT;
	}
	sim_trace_dma(w, d, is_write, 0);
	sim_memory_dma(w, d, is_write);
	return 0;
}

/* --- hosts ---------------------------------------------------------------- */

static void doom_leg(struct sim *w, const struct sim_leg *leg)
{
	for (int i = 0; i < w->qps; i++)
		for (int side = 0; side < 2; side++)
			if (w->qp[i].end[side].leg == leg)
				w->qp[i].doomed = 1;
}

static struct sim_leg *any_leg(struct sim *w)
{
	struct sim_leg *leg =
		&w->side[sim_random(w, 2)].leg[sim_random(w, SIM_LEGS - 1)];

	return leg->open && !leg->closing && !leg->broken ? leg : NULL;
}

static void kill_host(struct sim *w)
{
	struct sim_leg *leg = any_leg(w);

	if (!leg)
		return;
	doom_leg(w, leg);
	srdma_port_mem_kill(leg->conn);
	leg->open = 0;
	sim_memory_freeze(leg, -1);
}

void sim_fault_close(struct sim_leg *leg)
{
	struct sim_side *s = &leg->w->side[leg->side];

	doom_leg(leg->w, leg);
	leg->closing = 1;
	srdma_relay_leg_close(leg->leg);
	s->poked = 1;
}

static void close_leg(struct sim *w)
{
	struct sim_leg *leg = any_leg(w);

	if (leg)
		sim_fault_close(leg);
}

void sim_fault_deregister(struct sim_leg *leg, int area)
{
	struct sim_side *s = &leg->w->side[leg->side];
	struct sim_area *a = &leg->area[area];

	if (a->state != SIM_LIVE)
		return;
	doom_leg(leg->w, leg);
	a->state = SIM_DYING;
	if (!srdma_relay_mr_dereg(s->relay, leg->leg, a->key))
		sim_memory_freeze(leg, area);
	s->poked = 1;
}

static void deregister(struct sim *w)
{
	struct sim_leg *leg = any_leg(w);

	if (leg)
		sim_fault_deregister(leg, (int)sim_random(w, SIM_AREAS));
}

void sim_fault_destroy(struct sim *w, struct sim_end *e)
{
	if (e->gone || e->leaving || !e->leg->open || e->leg->closing)
		return;
	e->leaving = 1;
	sim_fault_follow(w);
}

static void destroy_qp(struct sim *w)
{
	struct sim_qp *qp;
	struct sim_end *e = any_end(w, &qp);

	if (!e)
		return;
	qp->doomed = 1;
	sim_fault_destroy(w, e);
}

static void crash(struct sim *w)
{
	doom_all(w);
	sim_crash(w, (int)sim_random(w, 2));
}

static void move_memory(struct sim *w)
{
	struct sim_qp *qp;
	struct sim_end *e = any_end(w, &qp);

	if (e)
		sim_host_move(w, qp, e);
}

static void junk(struct sim *w)
{
	uint8_t slot[SRDMA_DESC_SLOT];
	struct sim_leg *leg = any_leg(w);
	struct sim_qp *qp;
	struct sim_end *e = any_end(w, &qp);
	struct srdma_desc d = {
		.opcode = (uint8_t)sim_random(w, 20),
		.flags = (uint8_t)sim_random(w, 10),
		.id = UINT64_MAX,
		.qpn = e ? e->info.qpn : 0,
		.length = sim_random(w, 5000),
		.local_key = sim_random(w, UINT32_MAX),
		.consumed = sim_random(w, UINT32_MAX),
	};

	if (!leg)
		return;
	doom_leg(w, leg);
	leg->broken = 1;
	sim_host_taint(leg); /* its descriptors are random from now on */
	for (size_t i = 0; i < sizeof(slot); i++)
		slot[i] = (uint8_t)sim_random(w, 256);
	if (!sim_one_in(w, 4))
		srdma_desc_encode(slot, &d);
	srdma_port_mem_post(leg->conn, slot,
			    1 + sim_random(w, SRDMA_DESC_SLOT));
}

/* --- a hostile peer ------------------------------------------------------- */

static void lie(struct sim *w, struct srdma_packet *p,
		const struct srdma_qp *own, const struct srdma_qp *victim,
		const struct sim_end *to)
{
	const struct sim_area *a = &to->leg->area[sim_random(w, 2)];
	uint64_t near = srdma_qp_requester(own)->sq_next + sim_random(w, 4);

	p->opcode = (uint8_t)sim_random(w, SRDMA_OP_COUNT);
	if (sim_one_in(w, 3))
		p->opcode = SRDMA_OP_ACKNOWLEDGE;
	p->request_id = near ? near - 1 : 0;
	p->offset = sim_one_in(w, 3) ? sim_random(w, 5000) : 0;
	if (sim_one_in(w, 2)) {
		p->request_id = srdma_qp_responder(victim)->accepted.id;
		p->offset =
			(uint32_t)srdma_qp_responder(victim)->accepted.offset;
	}
	p->flags = sim_one_in(w, 3) ? SRDMA_STH_ACK_NOW : 0;
	if (sim_one_in(w, w->guarded ? 2 : 20)) {
		p->flags |= SRDMA_STH_PROOF;
		p->depth = (uint8_t)sim_random(w, 16);
		p->expiry = sim_random(w, 2 * SIM_CLOCK);
	}
	p->va = (uintptr_t)to->leg->mem + a->at + sim_random(w, a->len);
	p->rkey = sim_one_in(w, 4) ? sim_random(w, UINT32_MAX) : a->key;
	p->payload_len = sim_one_in(w, 2) ? sim_random(w, w->mtu + 1) : 0;
	p->dma_len = sim_one_in(w, 2) ? p->payload_len : sim_random(w, 100000);
	p->ack = (struct srdma_ack_body){
		.kind = (uint8_t)(1 + sim_random(w, 6)),
		.offset = p->offset,
		.recv_credit = sim_random(w, 40),
		.request_credit = sim_random(w, 3000),
		/* One in 100 was never sent. */
		.highest_pn = (uint32_t)srdma_session_next_pn(
				      srdma_qp_session(victim)) -
			      sim_random(w, 100),
	};
	if (p->ack.kind == SRDMA_ACK_NAK)
		p->ack.reason = (uint8_t)(1 + sim_random(w, 16));
	if (p->ack.kind == SRDMA_ACK_CLOSE)
		p->ack.reason = (uint8_t)(20 + sim_random(w, 10));
}

static void be_evil(struct sim *w)
{
	static const uint8_t payload[SRDMA_MAX_PAYLOAD] = { 0xe1 };
	uint8_t out[SRDMA_MAX_PACKET];
	struct sim_qp *qp;
	struct sim_end *e = any_end(w, &qp), *to;
	struct srdma_qp *own, *victim;
	struct srdma_packet p = { 0 };
	int len;

	if (!e || !e->leg->open || e->leg->closing)
		return;
	own = qp_of(w, e);
	to = e == &qp->end[0] ? &qp->end[1] : &qp->end[0];
	victim = qp_of(w, to);
	if (!own || !srdma_qp_session(own) || !victim ||
	    !srdma_path_conn(victim))
		return;
	lie(w, &p, own, victim, to);
	if (p.opcode == SRDMA_OP_ACKNOWLEDGE) {
		/* request ids of the other direction */
		p.request_id =
			srdma_qp_requester(victim)->sq_next + sim_random(w, 3);
		p.request_id -= p.request_id ? 1 : 0;
		p.ack.request_id = (uint32_t)p.request_id;
		p.payload_len = 0;
	}
	len = srdma_session_seal(srdma_qp_session(own), &p, payload, out,
				 sizeof(out));
	if (len <= 0)
		return;
	srdma_port_mem_inject(srdma_path_conn(victim), out, (uint32_t)len);
	sim_host_taint(to->leg);
	sim_host_taint(e->leg);
}

/* Limits the packets of an epoch: a new epoch begins, or the QP ends. */
static void limit_key(struct sim *w)
{
	struct sim_qp *qp;
	struct sim_end *e = any_end(w, &qp);
	struct srdma_qp *own = e ? qp_of(w, e) : NULL;

	uint32_t packets = 1 + sim_random(w, 300);

	if (!own || !srdma_qp_session(own) || w->level == SRDMA_LEVEL_NONE)
		return;
	if (!srdma_session_limit(srdma_qp_session(own), packets, 5) &&
	    e->epoch_packets < packets)
		e->limit = packets;
	qp->doomed = 1;
}

/* --- choice of faults ----------------------------------------------------- */

void sim_fault_hooks(struct sim *w)
{
	w->wire.ctx = w;
	w->wire.fate = fate;
	w->wire.full = full;
	w->wire.call = call;
	for (int i = 0; i < 2; i++) {
		w->host[i].ctx = w;
		w->host[i].dma = dma;
	}
}

void sim_fault_choose(struct sim *w)
{
	for (uint32_t n = sim_random(w, 4); n; n--)
		w->faults |= 1u << sim_random(w, SIM_FAULTS);
	if (w->guarded && sim_one_in(w, 3))
		w->faults |=
			SIM_REVOKE | (sim_one_in(w, 2) ? SIM_DMA_AGAIN : 0);
	/* Any combination of faults from which a QP recovers. */
	for (uint32_t n = sim_random(w, 2) * sim_random(w, 5); n; n--)
		w->faults |= 1u << sim_random(w, 7);
	/*
	 * Without protection of the payload a changed packet is not detected.
	 */
	if (w->level <= SRDMA_LEVEL_HEADER)
		w->faults &= ~(uint32_t)SIM_FLIP;
	w->calms = 1 + sim_random(w, 12);
	w->rate = 10 + sim_random(w, 10u << sim_random(w, 8));
}

/*
 * Begins or ends a black hole. QPs that are open or opened during it may lose
 * packets for good, and may fail.
 */
static void blackhole(struct sim *w)
{
	if (w->blackhole) {
		w->blackhole = 0;
		return;
	}
	w->blackhole = 1 + (int)sim_random(w, 2);
	for (int i = 0; i < w->qps; i++)
		sim_fault_join(w, &w->qp[i]);
}

void sim_fault_join(struct sim *w, struct sim_qp *qp)
{
	if (w->blackhole || w->hasty)
		qp->doomed = qp->lossy = 1;
}

void sim_fault_strike(struct sim *w)
{
	static const struct {
		uint32_t fault, rate;
		void (*strike)(struct sim *w);
	} strikes[] = {
		{ SIM_BLACKHOLE, 40, blackhole },
		{ SIM_REPLAY, 1, replay },
		{ SIM_CUT, 60, cut },
		{ SIM_KILL, 60, kill_host },
		{ SIM_CLOSE, 60, close_leg },
		{ SIM_DEREG, 60, deregister },
		{ SIM_DESTROY, 60, destroy_qp },
		{ SIM_LIMIT, 60, limit_key },
		{ SIM_EVIL, 20, be_evil },
		{ SIM_JUNK, 40, junk },
		{ SIM_REVOKE, 20, sim_grant_strike },
		{ SIM_MOVE, 1, move_memory },
		{ SIM_REKEY, 5, sim_rekey_strike },
		{ SIM_CALLS, 20, intrude },
		{ SIM_CRASH, 60, crash },
	};

	for (size_t i = 0; i < sizeof(strikes) / sizeof(*strikes); i++)
		if ((w->active & strikes[i].fault) &&
		    sim_one_in(w, strikes[i].rate * w->calms))
			strikes[i].strike(w);
}

void sim_fault_breathe(struct sim *w)
{
	if ((w->active & (SIM_HOLD | SIM_SWAP)) && sim_one_in(w, 10))
		srdma_port_mem_release(w->side[sim_random(w, 2)].wire);
}

static void follow_leg(struct sim *w, struct sim_leg *leg)
{
	struct srdma_relay *r = w->side[leg->side].relay;
	const struct srdma_leg *now = r->legs[leg->id % SRDMA_MAX_LEGS];

	if (!leg->open)
		return;
	if (leg->closing) {
		if (now && now->id == leg->id)
			return;
		sim_memory_freeze(leg, -1);
		leg->open = 0;
		return;
	}
	sim_grant_follow(leg);
	for (int i = 0; i < SIM_AREAS; i++)
		if (leg->area[i].state == SIM_DYING &&
		    !srdma_relay_mr_busy(r, leg->leg, leg->area[i].key))
			sim_memory_freeze(leg, i);
}

void sim_fault_follow(struct sim *w)
{
	for (int i = 0; i < 2 * (SIM_QPS + 1); i++) {
		struct sim_end *e = &w->qp[i / 2].end[i % 2];
		int err;

		if (!w->qp[i / 2].live || !e->leaving || e->gone ||
		    !e->leg->open || e->leg->closing)
			continue;
		w->side[i % 2].poked = 1;
		err = srdma_relay_qp_destroy(w->side[i % 2].relay, e->leg->leg,
					     e->info.qpn);
		SIM_CHECK(w, !err || err == -EINPROGRESS, "destroy: %d", err);
		if (!err)
			sim_host_forget(e);
	}
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < SIM_LEGS; i++)
			follow_leg(w, &w->side[side].leg[i]);
}

void sim_fault_heal(struct sim *w)
{
	w->active = 0;
	w->blackhole = 0;
	w->hasty = 0;
	w->calm = 1;
	for (int i = 0; i < 2; i++)
		srdma_port_mem_release(w->side[i].wire);
}
