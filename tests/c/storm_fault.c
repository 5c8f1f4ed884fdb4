#include "storm.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "port/sim/port_mem_impl.h"
#include "inside.h"
#include "storm_memory.h"

/* Returns a random end, or NULL if its QP is not open. */
static struct storm_end *any_end(struct storm *w, struct storm_qp **qp)
{
	*qp = &w->qp[storm_random(w, (uint32_t)w->qps)];
	return (*qp)->live ? &(*qp)->end[storm_random(w, 2)] : NULL;
}

static void doom_all(struct storm *w)
{
	for (int i = 0; i < w->qps; i++)
		w->qp[i].doomed = 1;
}

static struct srdma_qp *qp_of(struct storm *w, const struct storm_end *e)
{
	return srdma_relay_qp(w->side[e->leg->side].relay, e->info.qpn);
}

/* --- wire ----------------------------------------------------------------- */

enum { ON_THE_WIRE = STORM_LOSSES & ~STORM_REPLAY, MOST_CALLS = 3 };

static void catch_one(struct storm *w, const struct srdma_mem_datagram *d)
{
	uint32_t i = w->caught_count < STORM_CAUGHT
			     ? w->caught_count++
			     : storm_random(w, STORM_CAUGHT);
	struct storm_caught *c = &w->caught[i];

	c->to = !d->side;
	c->len = d->len;
	memcpy(c->data, d->data, d->len);
}

/*
 * Returns 1 for a connection that loses all its packets. A packet that arrives
 * on it would validate the path, and the QP would send into a black hole.
 */
static int is_trap(struct srdma_conn *conn)
{
	const struct srdma_mem_end *e = srdma_mem_end_of(conn);

	return e->to && e->deaf;
}

/* Returns a random wire connection of a side, or NULL. */
static struct srdma_conn *any_conn(struct storm *w, int side)
{
	struct srdma_path *l = w->side[side].relay->env.paths->paths;
	uint32_t n = 0;

	for (; l; l = l->next)
		n++;
	n = storm_random(w, n);
	for (l = w->side[side].relay->env.paths->paths; l && n; n--)
		l = l->next;
	return l && !is_trap(l->conn) ? l->conn : NULL;
}

static void flip(struct storm *w, struct srdma_mem_datagram *d)
{
	d->data[storm_random(w, d->len)] ^= (uint8_t)(1 << storm_random(w, 8));
	if (storm_one_in(w, 4))
		d->len = 1 + storm_random(w, d->len);
}

static enum srdma_mem_fate divert(struct storm *w,
				  const struct srdma_mem_datagram *d)
{
	struct srdma_conn *other = any_conn(w, !d->side);

	if (!other)
		return SRDMA_MEM_PASS;
	srdma_port_mem_inject(other, d->data, d->len);
	return SRDMA_MEM_DROP;
}

/* Applies one of the active faults. */
static enum srdma_mem_fate hit(struct storm *w, struct srdma_mem_datagram *d)
{
	uint32_t fault;

	do {
		fault = 1u << storm_random(w, STORM_FAULTS);
	} while (!(w->active & ON_THE_WIRE & fault));
	switch (fault) {
	case STORM_DROP:
		return SRDMA_MEM_DROP;
	case STORM_SWAP:
		return SRDMA_MEM_SWAP;
	case STORM_HOLD:
		return SRDMA_MEM_HOLD;
	case STORM_TWICE:
		return SRDMA_MEM_TWICE;
	case STORM_DIVERT:
		return divert(w, d);
	default:
		flip(w, d);
		return SRDMA_MEM_PASS;
	}
}

/* The packet numbers of a QP increase, also from one epoch to the next. */
static void check_number(struct storm *w, const struct srdma_mem_datagram *d)
{
	uint32_t qpn = (uint32_t)srdma_wire_qpn(d->data, d->len);
	uint32_t psn = srdma_load24(d->data + 9);

	for (int i = 0; i <= STORM_QPS; i++) {
		struct storm_end *e = &w->qp[i].end[!d->side];
		uint32_t step = (psn - (uint32_t)e->pn) & 0xffffff;

		if (!w->qp[i].live || e->info.qpn != qpn)
			continue;
		STORM_CHECK(w, step && step < 1 << 23,
			    "packet %#x of QP %d follows %#llx", psn, i,
			    (unsigned long long)e->pn);
		e->pn += step;
		storm_rekey_wire(w, &w->qp[i].end[d->side], d->data);
	}
}

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	struct storm *w = ctx;

	w->packets++;
	w->side[d->side].sent++;
	storm_trace_packet(w, d);
	check_number(w, d);
	STORM_CHECK(w,
		    w->level != SRDMA_LEVEL_AEAD ||
			    !storm_memory_shows(d->data, d->len),
		    "plaintext on the wire");
	if (storm_one_in(w, 8))
		catch_one(w, d);
	if (w->blackhole == 1 + d->side || w->dying == 1 + d->side)
		return SRDMA_MEM_DROP;
	if (!(w->active & ON_THE_WIRE) || !storm_one_in(w, w->rate))
		return SRDMA_MEM_PASS;
	return hit(w, d);
}

static int full(void *ctx, int side)
{
	struct storm *w = ctx;

	(void)side;
	return (w->active & STORM_FULL) && storm_one_in(w, 3);
}

/*
 * On the connection of its QP a replayed packet arrives after the original; on
 * another connection it may arrive first.
 */
static void replay(struct storm *w)
{
	const struct storm_caught *c =
		&w->caught[storm_random(w, w->caught_count)];
	struct srdma_conn *conn = NULL;
	struct srdma_qp *qp;
	int32_t qpn;

	if (!w->caught_count)
		return;
	qpn = srdma_wire_qpn(c->data, c->len);
	qp = qpn < 0 ? NULL
		     : srdma_relay_qp(w->side[c->to].relay, (uint32_t)qpn);
	if (storm_one_in(w, 5)) /* reflected to its sender */
		conn = any_conn(w, !c->to);
	else if (qp && srdma_path_conn(qp) && !is_trap(srdma_path_conn(qp)) &&
		 !storm_one_in(w, 10))
		conn = srdma_path_conn(qp);
	else
		conn = any_conn(w, c->to);
	if (!conn)
		return;
	srdma_port_mem_inject(conn, c->data, c->len);
}

static void cut(struct storm *w)
{
	struct srdma_conn *conn = any_conn(w, (int)storm_random(w, 2));

	if (!conn)
		return;
	srdma_port_mem_cut(conn);
}

/* A failed connect costs up to 2 s and a back-off (7). */
static enum srdma_mem_call call(void *ctx, int side)
{
	struct storm *w = ctx;
	enum srdma_mem_call how = SRDMA_MEM_ANSWERED;

	storm_trace_call(w, side);
	if (w->active & STORM_CALLS && w->calls < MOST_CALLS)
		how = (enum srdma_mem_call)storm_random(w, 6);
	if (how > SRDMA_MEM_IMPOSSIBLE)
		how = SRDMA_MEM_ANSWERED;
	if (how == SRDMA_MEM_IMPOSSIBLE && w->opening)
		how = SRDMA_MEM_REFUSED; /* else KEYS would fail */
	w->calls = how == SRDMA_MEM_ANSWERED ? 0 : w->calls + 1;
	return how;
}

static void intrude(struct storm *w)
{
	struct srdma_conn *conn;

	STORM_CHECK(w,
		    !srdma_port_mem_intrude(w->side[storm_random(w, 2)].wire,
					    &conn),
		    "no memory");
}

/* --- DMA ------------------------------------------------------------------ */

static void note_stalled(struct storm *w, const struct srdma_dma *d)
{
	for (int i = 0; w->guarded && i < 2 * STORM_LEGS; i++) {
		struct storm_leg *leg = &w->side[i % 2].leg[i / 2];
		const struct storm_area *a = &leg->area[STORM_GUARDED];

		if (leg->mem && d->addr - (uintptr_t)leg->mem - a->at < a->len)
			w->stalled = leg;
	}
}

static int dma(void *ctx, const struct srdma_dma *d, int is_write)
{
	struct storm *w = ctx;

	if ((w->active & STORM_DMA_AGAIN) && storm_one_in(w, 3)) {
		note_stalled(w, d);
		return -EAGAIN;
	}
	if (w->active & STORM_DMA_FAIL && storm_one_in(w, 60 * w->calms)) {
		doom_all(w); /* the QP is unknown here */
		storm_trace_dma(w, d, is_write, -EFAULT);
		return -EFAULT;
	}
	storm_trace_dma(w, d, is_write, 0);
	storm_memory_dma(w, d, is_write);
	return 0;
}

/* --- hosts ---------------------------------------------------------------- */

static void doom_leg(struct storm *w, const struct storm_leg *leg)
{
	for (int i = 0; i < w->qps; i++)
		for (int side = 0; side < 2; side++)
			if (w->qp[i].end[side].leg == leg)
				w->qp[i].doomed = 1;
}

static struct storm_leg *any_leg(struct storm *w)
{
	struct storm_leg *leg = &w->side[storm_random(w, 2)]
					 .leg[storm_random(w, STORM_LEGS - 1)];

	return leg->open && !leg->closing && !leg->broken ? leg : NULL;
}

static void kill_host(struct storm *w)
{
	struct storm_leg *leg = any_leg(w);

	if (!leg)
		return;
	doom_leg(w, leg);
	srdma_port_mem_kill(leg->conn);
	leg->open = 0;
	storm_memory_freeze(leg, -1);
}

void storm_fault_close(struct storm_leg *leg)
{
	struct storm_side *s = &leg->w->side[leg->side];

	doom_leg(leg->w, leg);
	leg->closing = 1;
	srdma_relay_leg_close(s->relay, leg->leg);
	s->poked = 1;
}

static void close_leg(struct storm *w)
{
	struct storm_leg *leg = any_leg(w);

	if (leg)
		storm_fault_close(leg);
}

void storm_fault_deregister(struct storm_leg *leg, int area)
{
	struct storm_side *s = &leg->w->side[leg->side];
	struct storm_area *a = &leg->area[area];

	if (a->state != STORM_LIVE)
		return;
	doom_leg(leg->w, leg);
	a->state = STORM_DYING;
	if (!srdma_relay_mr_dereg(s->relay, leg->leg, a->key))
		storm_memory_freeze(leg, area);
	s->poked = 1;
}

static void deregister(struct storm *w)
{
	struct storm_leg *leg = any_leg(w);

	if (leg)
		storm_fault_deregister(leg, (int)storm_random(w, STORM_AREAS));
}

void storm_fault_destroy(struct storm *w, struct storm_end *e)
{
	if (e->gone || e->leaving || !e->leg->open || e->leg->closing)
		return;
	e->leaving = 1;
	storm_fault_follow(w);
}

static void destroy_qp(struct storm *w)
{
	struct storm_qp *qp;
	struct storm_end *e = any_end(w, &qp);

	if (!e)
		return;
	qp->doomed = 1;
	storm_fault_destroy(w, e);
}

static void crash(struct storm *w)
{
	doom_all(w);
	storm_crash(w, (int)storm_random(w, 2));
}

static void move_memory(struct storm *w)
{
	struct storm_qp *qp;
	struct storm_end *e = any_end(w, &qp);

	if (e)
		storm_host_move(w, qp, e);
}

static void junk(struct storm *w)
{
	uint8_t slot[SRDMA_DESC_SLOT];
	struct storm_leg *leg = any_leg(w);
	struct storm_qp *qp;
	struct storm_end *e = any_end(w, &qp);
	struct srdma_desc d = {
		.opcode = (uint8_t)storm_random(w, 20),
		.flags = (uint8_t)storm_random(w, 10),
		.id = UINT64_MAX,
		.qpn = e ? e->info.qpn : 0,
		.length = storm_random(w, 5000),
		.local_key = storm_random(w, UINT32_MAX),
		.consumed = storm_random(w, UINT32_MAX),
	};

	if (!leg)
		return;
	doom_leg(w, leg);
	leg->broken = 1;
	storm_host_taint(leg); /* its descriptors are random from now on */
	for (size_t i = 0; i < sizeof(slot); i++)
		slot[i] = (uint8_t)storm_random(w, 256);
	if (!storm_one_in(w, 4))
		srdma_desc_encode(slot, &d);
	srdma_port_mem_post(leg->conn, slot,
			    1 + storm_random(w, SRDMA_DESC_SLOT));
}

/* --- a hostile peer ------------------------------------------------------- */

static void lie(struct storm *w, struct srdma_packet *p,
		const struct srdma_qp *own, const struct srdma_qp *victim,
		const struct storm_end *to)
{
	const struct storm_area *a = &to->leg->area[storm_random(w, 2)];
	uint64_t near = srdma_qp_requester(own)->sq_next + storm_random(w, 4);

	p->opcode = (uint8_t)storm_random(w, SRDMA_OP_COUNT);
	if (storm_one_in(w, 3))
		p->opcode = SRDMA_OP_ACKNOWLEDGE;
	p->request_id = near ? near - 1 : 0;
	p->offset = storm_one_in(w, 3) ? storm_random(w, 5000) : 0;
	if (storm_one_in(w, 2)) {
		p->request_id = srdma_qp_responder(victim)->accepted.id;
		p->offset =
			(uint32_t)srdma_qp_responder(victim)->accepted.offset;
	}
	p->flags = storm_one_in(w, 3) ? SRDMA_STH_ACK_NOW : 0;
	if (storm_one_in(w, w->guarded ? 2 : 20)) {
		p->flags |= SRDMA_STH_PROOF;
		p->depth = (uint8_t)storm_random(w, 16);
		p->expiry = storm_random(w, 2 * STORM_CLOCK);
	}
	p->va = (uintptr_t)to->leg->mem + a->at + storm_random(w, a->len);
	p->rkey = storm_one_in(w, 4) ? storm_random(w, UINT32_MAX) : a->key;
	p->payload_len = storm_one_in(w, 2) ? storm_random(w, w->mtu + 1) : 0;
	p->dma_len =
		storm_one_in(w, 2) ? p->payload_len : storm_random(w, 100000);
	p->ack = (struct srdma_ack_body){
		.kind = (uint8_t)(1 + storm_random(w, 6)),
		.offset = p->offset,
		.recv_credit = storm_random(w, 40),
		.request_credit = storm_random(w, 3000),
		/* One in 100 was never sent. */
		.highest_pn = (uint32_t)srdma_session_next_pn(
				      srdma_qp_session(victim)) -
			      storm_random(w, 100),
	};
	if (p->ack.kind == SRDMA_ACK_NAK)
		p->ack.reason = (uint8_t)(1 + storm_random(w, 16));
	if (p->ack.kind == SRDMA_ACK_CLOSE)
		p->ack.reason = (uint8_t)(20 + storm_random(w, 10));
}

static void be_evil(struct storm *w)
{
	static const uint8_t payload[SRDMA_MAX_PAYLOAD] = { 0xe1 };
	uint8_t out[SRDMA_MAX_PACKET];
	struct storm_qp *qp;
	struct storm_end *e = any_end(w, &qp), *to;
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
		p.request_id = srdma_qp_requester(victim)->sq_next +
			       storm_random(w, 3);
		p.request_id -= p.request_id ? 1 : 0;
		p.ack.request_id = (uint32_t)p.request_id;
		p.payload_len = 0;
	}
	len = srdma_session_seal(srdma_qp_session(own), &p, payload, out,
				 sizeof(out));
	if (len <= 0)
		return;
	srdma_port_mem_inject(srdma_path_conn(victim), out, (uint32_t)len);
	storm_host_taint(to->leg);
	storm_host_taint(e->leg);
}

/* Limits the packets of an epoch: a new epoch begins, or the QP ends. */
static void limit_key(struct storm *w)
{
	struct storm_qp *qp;
	struct storm_end *e = any_end(w, &qp);
	struct srdma_qp *own = e ? qp_of(w, e) : NULL;

	uint32_t packets = 1 + storm_random(w, 300);

	if (!own || !srdma_qp_session(own) || w->level == SRDMA_LEVEL_NONE)
		return;
	if (!srdma_session_limit(srdma_qp_session(own), packets, 5) &&
	    e->epoch_packets < packets)
		e->limit = packets;
	qp->doomed = 1;
}

/* --- choice of faults ----------------------------------------------------- */

void storm_fault_hooks(struct storm *w)
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

void storm_fault_choose(struct storm *w)
{
	for (uint32_t n = storm_random(w, 4); n; n--)
		w->faults |= 1u << storm_random(w, STORM_FAULTS);
	if (w->guarded && storm_one_in(w, 3))
		w->faults |= STORM_REVOKE |
			     (storm_one_in(w, 2) ? STORM_DMA_AGAIN : 0);
	/* Any combination of faults from which a QP recovers. */
	for (uint32_t n = storm_random(w, 2) * storm_random(w, 5); n; n--)
		w->faults |= 1u << storm_random(w, 7);
	/*
	 * Without protection of the payload a changed packet is not detected.
	 */
	if (w->level <= SRDMA_LEVEL_HEADER)
		w->faults &= ~(uint32_t)STORM_FLIP;
	w->calms = 1 + storm_random(w, 12);
	w->rate = 10 + storm_random(w, 10u << storm_random(w, 8));
}

/* Packets in it may be lost for good, and a QP opened in it may fail. */
static void blackhole(struct storm *w)
{
	if (w->blackhole) {
		w->blackhole = 0;
		return;
	}
	w->blackhole = 1 + (int)storm_random(w, 2);
	for (int i = 0; i < w->qps; i++)
		storm_fault_join(w, &w->qp[i]);
}

void storm_fault_join(struct storm *w, struct storm_qp *qp)
{
	if (w->blackhole || w->hasty)
		qp->doomed = qp->lossy = 1;
}

void storm_fault_strike(struct storm *w)
{
	static const struct {
		uint32_t fault, rate;
		void (*strike)(struct storm *w);
	} strikes[] = {
		{ STORM_BLACKHOLE, 40, blackhole },
		{ STORM_REPLAY, 1, replay },
		{ STORM_CUT, 60, cut },
		{ STORM_KILL, 60, kill_host },
		{ STORM_CLOSE, 60, close_leg },
		{ STORM_DEREG, 60, deregister },
		{ STORM_DESTROY, 60, destroy_qp },
		{ STORM_LIMIT, 60, limit_key },
		{ STORM_EVIL, 20, be_evil },
		{ STORM_JUNK, 40, junk },
		{ STORM_REVOKE, 20, storm_grant_strike },
		{ STORM_MOVE, 1, move_memory },
		{ STORM_REKEY, 5, storm_rekey_strike },
		{ STORM_CALLS, 20, intrude },
		{ STORM_CRASH, 60, crash },
	};

	for (size_t i = 0; i < sizeof(strikes) / sizeof(*strikes); i++)
		if ((w->active & strikes[i].fault) &&
		    storm_one_in(w, strikes[i].rate * w->calms))
			strikes[i].strike(w);
}

void storm_fault_breathe(struct storm *w)
{
	if ((w->active & (STORM_HOLD | STORM_SWAP)) && storm_one_in(w, 10))
		srdma_port_mem_release(w->side[storm_random(w, 2)].wire);
}

static void follow_leg(struct storm *w, struct storm_leg *leg)
{
	struct srdma_relay *r = w->side[leg->side].relay;
	const struct srdma_leg *now = r->legs[leg->id % SRDMA_MAX_LEGS];

	if (!leg->open)
		return;
	if (leg->closing) {
		if (now && now->id == leg->id)
			return;
		storm_memory_freeze(leg, -1);
		leg->open = 0;
		return;
	}
	storm_grant_follow(leg);
	for (int i = 0; i < STORM_AREAS; i++)
		if (leg->area[i].state == STORM_DYING &&
		    !srdma_relay_mr_busy(r, leg->leg, leg->area[i].key))
			storm_memory_freeze(leg, i);
}

void storm_fault_follow(struct storm *w)
{
	for (int i = 0; i < 2 * (STORM_QPS + 1); i++) {
		struct storm_end *e = &w->qp[i / 2].end[i % 2];
		int err;

		if (!w->qp[i / 2].live || !e->leaving || e->gone ||
		    !e->leg->open || e->leg->closing)
			continue;
		w->side[i % 2].poked = 1;
		err = srdma_relay_qp_destroy(w->side[i % 2].relay, e->leg->leg,
					     e->info.qpn);
		STORM_CHECK(w, !err || err == -EINPROGRESS, "destroy: %d", err);
		if (!err)
			storm_host_forget(e);
	}
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < STORM_LEGS; i++)
			follow_leg(w, &w->side[side].leg[i]);
}

void storm_fault_heal(struct storm *w)
{
	w->active = 0;
	w->blackhole = 0;
	w->hasty = 0;
	w->calm = 1;
	for (int i = 0; i < 2; i++)
		srdma_port_mem_release(w->side[i].wire);
}
