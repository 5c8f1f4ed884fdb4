#include "simulation/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "simulation/sim_host.h"
#include "crypto/suite.h"

enum {
	PACKETS = 5400,
	LOOK = 16,
	MS = 1000000,
	LIMIT_S = 60,
	LATE_MS = 50,
	STRANGER_S = 11
};

/* --- random numbers ------------------------------------------------------- */

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t sim_random(struct sim *w, uint32_t n)
{
	return n ? (uint32_t)((next_random(&w->random) >> 32) * n >> 32) : 0;
}

uint64_t sim_word(struct sim *w)
{
	return next_random(&w->random);
}

int sim_one_in(struct sim *w, uint32_t n)
{
	return sim_random(w, n) == 0;
}

static int random_bytes(void *ctx, uint8_t *out, size_t len)
{
	while (len--)
		*out++ = (uint8_t)next_random(ctx);
	return 0;
}

void sim_fail(const struct sim *w, const char *file, int line, const char *fmt,
	      ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	print_error("%s:%d: %s\nfaults %#x, step %u, %llu ns: "
		    "SRDMA_SEED=%llu reproduces it\n",
		    file, line, text, w->faults, w->step,
		    (unsigned long long)w->now, (unsigned long long)w->seed);
	fail();
}

/* --- set-up --------------------------------------------------------------- */

/* Any row of 3.3, at any of its levels, with any of its tag lengths. */
static void choose_protection(struct sim *w)
{
	const struct srdma_suite *s;
	uint32_t rows = 0;

	if (sim_one_in(w, 8))
		return; /* level none */
	while (srdma_suite_at(rows))
		rows++;
	s = srdma_suite_at(sim_one_in(w, 4) ? 0 : sim_random(w, rows));
	w->suite = s->id;
	do {
		w->level = (uint8_t)(1 + sim_random(w, SRDMA_LEVEL_AEAD));
	} while (!(s->levels >> w->level & 1));
	w->tag_len = s->tag_len;
	if (sim_one_in(w, 4)) {
		do {
			w->tag_len = (uint8_t)(12 + sim_random(w, 53));
		} while (!srdma_suite_tag_ok(s, w->tag_len));
	}
	w->guarded = (uint8_t)sim_random(w, 2);
	w->log2_block = (uint8_t)(SRDMA_MEMTREE_BLOCK_MIN + sim_random(w, 7));
	w->tree_depth = (uint8_t)(sim_one_in(w, 3) ? 1 + sim_random(w, 9) : 48);
}

static void choose(struct sim *w)
{
	static const uint32_t mtus[] = { 256, 1000, 2048, 4096, 4096 };
	static const uint32_t slots[] = { 1, 2, 5, 16, 128, 128 };
	uint32_t i;

	choose_protection(w);
	w->mtu = mtus[sim_random(w, 5)];
	w->window = 1 + sim_random(w, sim_one_in(w, 2) ? 4 : 128);
	w->reads = 1 + sim_random(w, sim_one_in(w, 2) ? 2 : 16);
	w->wire.slots = slots[sim_random(w, 6)];
	w->wire.window = sim_one_in(w, 4) ? 1024 : 64;
	if (sim_one_in(w, 2)) {
		w->wire.now = &w->now;
		w->wire.rate = sim_random(w, 20000);
		w->wire.latency = sim_random(w, 10u << sim_random(w, 16));
	}
	w->wanted = sim_random(w, 2 * PACKETS);
	w->area_len = 20 << 10;
	if (sim_one_in(w, 8))
		w->area_len = 160 << 10;
	if (sim_one_in(w, 2)) /* of an epoch; 0: default limit */
		w->rekey_packets = 1 + sim_random(w, 8u << sim_random(w, 8));
	if (sim_one_in(w, 4))
		w->rekey_bytes = 1 + sim_random(w, 100000);
	if (sim_one_in(w, 4))
		w->rekey_ns = 1 + sim_random(w, 100 * MS);
	for (i = 0; i < 2; i++) {
		w->host[i].dma_polls = sim_one_in(w, 2) ? 0 : sim_random(w, 20);
		/* a few more than the relay keeps in reserve */
		w->host[i].bufs =
			sim_one_in(w, 3) ? 70 + sim_random(w, 30) : 256;
	}
	sim_fault_choose(w);
	w->timeout_ms = 30000;
	w->hasty = w->faults & SIM_BLACKHOLE && !sim_one_in(w, 4);
	if (w->hasty)
		w->timeout_ms = 20 + sim_random(w, 3000);
	else if (!(w->faults & (SIM_LOSSES | SIM_FULL | SIM_DMA_AGAIN |
				SIM_CUT | SIM_CALLS)))
		w->timeout_ms = 4000;
}

static void open_side(struct sim *w, int i)
{
	struct sim_side *s = &w->side[i];
	struct srdma_relay_params rp = {
		.allow_unprotected = w->level == SRDMA_LEVEL_NONE,
		.mtu = w->mtu,
		.window = w->window,
		.reads = w->reads,
		.rekey_packets = w->rekey_packets,
		.rekey_bytes = w->rekey_bytes,
		.rekey_ns = w->rekey_ns,
		.key_cache = sim_one_in(w, 3) ? 1024 : sim_random(w, 4),
		.provider = s->provider = sim_nonce_watch(w, i),
		.random = random_bytes,
		.random_ctx = &s->random,
	};

	assert_int_equal(srdma_port_mem_host(&s->host, &w->host[i]), 0);
	rp.host = s->host;
	rp.wire = s->wire;
	assert_int_equal(srdma_relay_create(&s->relay, &rp), 0);
	srdma_relay_clock(s->relay, SIM_CLOCK);
	srdma_relay_run(s->relay, w->now, 0);
}

void sim_open_leg(struct sim *w, int side, int i)
{
	struct sim_side *s = &w->side[side];
	struct sim_leg *leg = &s->leg[i];
	struct srdma_leg_params lp = { .shared = (uint8_t)sim_random(w, 2),
				       .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;

	leg->w = w;
	leg->side = side;
	leg->consumed = leg->told = 0;
	leg->closing = leg->broken = leg->tainted = 0;
	leg->revocations = 0;
	memset(leg->grant, 0, sizeof(leg->grant));
	lp.ring = leg->ring = sim_one_in(w, 2) ? 256 : 1024;
	assert_int_equal(
		srdma_relay_leg_open(s->relay, &lp, &leg->leg, &answer), 0);
	leg->conn = leg->leg->conn;
	leg->id = srdma_relay_leg_id(leg->leg);
	leg->open = 1;
	s->poked = 1;
	sim_memory_open(w, leg);
}

static void keep_stats(struct sim_side *s)
{
	const struct srdma_stats *now = &s->relay->env.stats;

	s->sum.packets_verified += now->packets_verified;
	s->sum.packets_unprotected_received +=
		now->packets_unprotected_received;
	s->sum.wires_dialed += now->wires_dialed;
	s->sum.atomics_executed += now->atomics_executed;
}

static void end_relay(struct sim_side *s)
{
	keep_stats(s);
	srdma_relay_destroy(s->relay);
	s->relay = NULL;
	sim_nonce_forget(s->provider);
}

void sim_crash(struct sim *w, int side)
{
	struct sim_side *s = &w->side[side];

	for (int i = 0; i < SIM_LEGS; i++) {
		if (!s->leg[i].open)
			continue;
		s->leg[i].open = s->leg[i].closing = 0;
		sim_memory_freeze(&s->leg[i], -1);
	}
	w->dying = sim_one_in(w, 2) ? 1 + side : 0;
	end_relay(s);
	w->dying = 0;
	assert_int_equal(
		srdma_port_mem_wire_again(w->side[!side].wire, &s->wire), 0);
	open_side(w, side);
	s->poked = 1;
	w->crashes++;
}

static void open_all(struct sim *w)
{
	assert_int_equal(srdma_port_mem_wire_pair(&w->side[0].wire,
						  &w->side[1].wire, &w->wire),
			 0);
	w->now = 1;
	for (int side = 0; side < 2; side++) {
		w->side[side].random = w->seed * 2 + (uint64_t)side;
		open_side(w, side);
	}
	for (int i = 0; i < SIM_LEGS - 1; i++)
		for (int side = 0; side < 2; side++)
			sim_open_leg(w, side, i);
	for (int i = 0; i < SIM_LEGS - 1; i++)
		for (int k = 0; k < SIM_LEGS - 1; k++)
			sim_grant_open(w, &w->side[0].leg[i],
				       &w->side[1].leg[k]);
	w->qps = 1 + (int)sim_random(w, SIM_QPS);
	for (int i = 0; i < w->qps; i++)
		sim_qp_open(w, i, (int)sim_random(w, SIM_LEGS - 1),
			    (int)sim_random(w, SIM_LEGS - 1));
	sim_fault_hooks(w);
	w->active = w->faults;
	for (uint32_t n = sim_random(w, 2) * 30; n; n--)
		sim_turn(w, MS / 20);
}

/* --- time ----------------------------------------------------------------- */

static int awake(struct sim *w, struct sim_side *s)
{
	return s->poked || s->host->ops->arm(s->host) ||
	       s->wire->ops->arm(s->wire) ||
	       srdma_relay_timer(s->relay) <= w->now;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int sim_turn(struct sim *w, uint64_t most)
{
	uint64_t next = SRDMA_NEVER;
	int ran = 0;

	sim_fault_breathe(w);
	for (int i = 0; i < 2; i++) {
		struct sim_side *s = &w->side[i];

		if (!awake(w, s))
			continue;
		s->poked = 0;
		w->now += 1 + sim_random(w, 3000);
		srdma_relay_run(s->relay, w->now, 1 + (int)sim_random(w, 64));
		ran = 1;
	}
	if (ran)
		return 1;
	for (int i = 0; i < 2; i++) {
		next = earlier(next, srdma_relay_timer(w->side[i].relay));
		next = earlier(next, srdma_port_mem_due(w->side[i].wire));
	}
	w->now = next - w->now < most ? next : w->now + most;
	return next == SRDMA_NEVER ? -1 : 0;
}

static void poll_all(struct sim *w)
{
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < SIM_LEGS; i++)
			sim_record_poll(&w->side[side].leg[i], UINT32_MAX);
}

static void turns(struct sim *w, uint64_t ns)
{
	uint64_t until = w->now + ns;

	while (w->now < until) {
		sim_turn(w, until - w->now);
		poll_all(w);
		sim_fault_follow(w);
	}
}

/* --- final checks --------------------------------------------------------- */

static struct sim_end *end_of(struct sim *w, int i)
{
	return &w->qp[i / 2].end[i % 2];
}

/* A request whose deadline has passed has a record. */
static void check_time(struct sim *w, struct sim_end *e)
{
	uint32_t n = e->sq.head;

	if (w->now < sim_host_wr(&e->sq, n)->due + LATE_MS * MS)
		return;
	sim_record_poll(e->leg, UINT32_MAX);
	SIM_CHECK(w, e->sq.head != n, "request %u does not end", n);
}

static int somebody_waits(struct sim *w)
{
	int waits = 0;

	for (int i = 0; i < 2 * (SIM_QPS + 1); i++) {
		struct sim_end *e = end_of(w, i);

		if (!w->qp[i / 2].live || !sim_host_waits(e))
			continue;
		check_time(w, e);
		waits = 1;
	}
	return waits;
}

/*
 * Runs until every request is complete. Fails if both relays sleep before that.
 */
static void drain(struct sim *w)
{
	int r = 0;

	for (;;) {
		poll_all(w);
		sim_host_finish(w);
		sim_fault_follow(w);
		if (!somebody_waits(w))
			return;
		SIM_CHECK(w, r >= 0,
			  "both relays sleep, requests wait for ever");
		r = sim_turn(w, LIMIT_S * SRDMA_SECOND);
	}
}

static int state_of(const struct sim_end *e)
{
	const struct sim *w = e->leg->w;
	uint32_t reason;

	return srdma_relay_qp_state(w->side[e->leg->side].relay, e->leg->leg,
				    e->info.qpn, &reason);
}

int sim_host_is_dead(const struct sim_end *e)
{
	return e->gone || e->leaving || !e->leg->open || e->leg->closing ||
	       state_of(e) == SRDMA_QP_ERR;
}

/* 1: the end may have dropped the refusal of a forged packet, as it names what the end
 * never sent (docs/protocol.md 2.4). */
static int may_disbelieve(struct sim *w, const struct sim_end *e, int evil)
{
	const struct srdma_stats *stats =
		srdma_relay_stats(w->side[e->leg->side].relay);

	return evil && stats->refused[SRDMA_REFUSED_UNSOLICITED];
}

/* If one end is in error, so is the other, and all its requests are flushed. */
static void check_ends(struct sim *w)
{
	for (int i = 0; i < 2 * (SIM_QPS + 1); i++) {
		struct sim_end *e = end_of(w, i), *peer = end_of(w, i ^ 1);

		if (!w->qp[i / 2].live || !sim_host_sees(e))
			continue;
		if (state_of(e) == SRDMA_QP_ERR) {
			SIM_CHECK(w, w->qp[i / 2].doomed, "QP %d side %d ended",
				  i / 2, i % 2);
			SIM_CHECK(w, e->rq.head == e->rq.tail,
				  "QP %d side %d: RECVs left", i / 2, i % 2);
			SIM_CHECK(w, e->events == 1, "%d QP events", e->events);
		} else {
			SIM_CHECK(w, e->events == 0,
				  "a QP event without an error");
			SIM_CHECK(w,
				  !sim_host_is_dead(peer) ||
					  e->rq.head == e->rq.tail ||
					  state_of(e) == SRDMA_QP_RTR ||
					  may_disbelieve(w, e,
							 w->qp[i / 2].evil) ||
					  (w->faults & SIM_LIMIT),
				  "QP %d side %d: its peer is gone", i / 2,
				  i % 2);
		}
	}
}

/* A QP that is not in error still works. */
static void go_on(struct sim *w)
{
	for (int i = 0; i < 2 * w->qps; i++)
		if (w->qp[i / 2].live)
			sim_host_send(w, &w->qp[i / 2], i % 2,
				      i % 3 ? SRDMA_DESC_WRITE
					    : SRDMA_DESC_READ,
				      SIM_FRESH_LEN);
	drain(w);
}

static void fresh_qp(struct sim *w)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ,
				       SRDMA_DESC_SEND, SRDMA_DESC_WRITE_IMM,
				       SRDMA_DESC_FETCH_ADD };
	struct sim_qp *qp = &w->qp[SIM_QPS];

	w->timeout_ms = 30000;
	for (int side = 0; side < 2; side++)
		sim_open_leg(w, side, SIM_LEGS - 1);
	sim_grant_open(w, &w->side[0].leg[SIM_LEGS - 1],
		       &w->side[1].leg[SIM_LEGS - 1]);
	sim_qp_open(w, SIM_QPS, SIM_LEGS - 1, SIM_LEGS - 1);
	for (size_t i = 0; i < 2 * sizeof(ops); i++) {
		SIM_CHECK(
			w,
			sim_host_send(w, qp, i % 2, ops[i / 2], SIM_FRESH_LEN),
			"no room for a request");
		drain(w);
	}
	for (int side = 0; side < 2; side++)
		SIM_CHECK(w, !qp->end[side].sq.failed, "a new QP failed");
}

/* No packet is accepted twice. */
static void check_fresh(const struct sim *w, int side)
{
	const struct srdma_stats *to = &w->side[side].sum;

	if (w->faults & SIM_EVIL)
		return;
	SIM_CHECK(w,
		  to->packets_verified + to->packets_unprotected_received <=
			  w->side[!side].sent,
		  "side %d accepted more packets than were sent", side);
}

static void check_relay(struct sim *w, int side)
{
	const struct srdma_relay *r = w->side[side].relay;
	struct srdma_port *host = w->side[side].host;
	uint32_t bufs = w->host[side].bufs;

	SIM_CHECK(w, r->qp_count == 0 && r->leg_count == 0,
		  "%u QPs, %u legs left", r->qp_count, r->leg_count);
	SIM_CHECK(w, r->env.ops.left == r->env.ops.total, "ops not returned");
	SIM_CHECK(w,
		  host->ops->buf_free(host) + (r->spare != NULL) == (int)bufs,
		  "buffers lost");
	SIM_CHECK(w, !r->env.paths->paths, "a wire connection is left");
	SIM_CHECK(w, !r->env.active_head, "a QP is still scheduled");
}

static void part(struct sim *w)
{
	for (int i = 0; i <= SIM_QPS; i++)
		w->qp[i].doomed = 1;
	for (int i = 0; i < 2 * (SIM_QPS + 1); i++)
		if (w->qp[i / 2].live && sim_one_in(w, 2))
			sim_fault_destroy(w, end_of(w, i));
	turns(w, (uint64_t)sim_random(w, 2) * MS);
	for (int side = 0; side < 2; side++) {
		for (int i = 0; i < SIM_LEGS; i++) {
			struct sim_leg *leg = &w->side[side].leg[i];

			if (!leg->open || leg->closing)
				continue;
			leg->closing = 1;
			srdma_relay_leg_close(leg->leg);
			w->side[side].poked = 1;
		}
	}
	turns(w, STRANGER_S * SRDMA_SECOND);
	for (int side = 0; side < 2; side++)
		check_relay(w, side);
}

static void close_all(struct sim *w)
{
	for (int side = 0; side < 2; side++)
		end_relay(&w->side[side]);
	for (int side = 0; side < 2; side++)
		check_fresh(w, side);
	for (int side = 0; side < 2; side++) {
		for (int i = 0; i < SIM_LEGS; i++) {
			struct sim_leg *leg = &w->side[side].leg[i];

			if (!leg->mem)
				continue;
			sim_memory_check(leg);
			sim_memory_close(leg);
		}
	}
}

static void step(struct sim *w)
{
	uint64_t most = sim_one_in(w, 100) ? 10 * MS : MS / 20;

	for (uint32_t n = sim_random(w, 4); n; n--)
		sim_host_post(w);
	sim_fault_strike(w);
	sim_fault_follow(w);
	sim_rekey_follow(w);
	for (uint32_t n = sim_random(w, 6); n; n--) {
		sim_turn(w, most);
		sim_grant_race(w);
	}
	for (int i = 0; i < 4; i++)
		if (sim_one_in(w, w->active & SIM_LAZY ? 50 : 3))
			sim_record_poll(&w->side[i / 2].leg[i % 2],
					sim_random(w, 40));
	somebody_waits(w);
}

static void blow(struct sim *w)
{
	for (w->step = 0; w->step < w->wanted && w->packets < w->wanted;
	     w->step++) {
		step(w);
		sim_rekey_check(w);
		if (w->step % LOOK == 0)
			sim_qp_renew(w);
	}
}

void sim_run(uint64_t seed, struct sim_sum *sum)
{
	struct sim *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->nonces = calloc(SIM_NONCES, sizeof(*w->nonces));
	assert_non_null(w->nonces);
	w->seed = w->random = seed;
	sim_trace_begin(w);
	choose(w);
	open_all(w);
	blow(w);
	if (!sim_one_in(w, 8)) {
		drain(w);
		sim_fault_heal(w);
		sim_rekey_follow(w);
		/*
		 * A silent peer is detected after 15 s, and the CLOSE for that
		 * reaches the other end later.
		 */
		turns(w, 40 * SRDMA_SECOND);
		check_ends(w);
		sim_rekey_calm(w);
		go_on(w);
		fresh_qp(w);
		part(w);
	}
	close_all(w);
	*sum = (struct sim_sum){
		.packets = w->packets,
		.rekeys = w->rekeys,
		.crashes = w->crashes,
		.random = w->random,
		.now = w->now,
	};
	sim_trace_end(w, sum->digest);
	for (int side = 0; side < 2; side++) {
		sum->dials += w->side[side].sum.wires_dialed;
		sum->atomics += w->side[side].sum.atomics_executed;
	}
	free(w->nonces);
	free(w);
}
