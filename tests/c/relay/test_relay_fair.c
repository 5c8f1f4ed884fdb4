/*
 * Fairness between remote identities (docs/protocol.md 5.6; RFC 5042
 * R6.4.3.1-1, R6.4.3.1-3): a tenant with one QP works while 80 QPs of another
 * identity misbehave in each known way. Its share is measured in two ways, and
 * is relative to half of what it moves alone:
 *
 *   by work  the bytes that it moves while the target does a fixed amount of
 *            work, which is counted. Turns take no time, so congestion control
 *            has nothing to do.
 *   in time  the bytes that it moves in virtual time, which passes as the
 *            target works. Packets of the target to others delay the tenant,
 *            and delay narrows the tenant's congestion window (5.5).
 *
 * The share relative to the target's CPU time is printed, and not checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "port/sim/port_mem_impl.h"
#include "support/arriving.h"

enum {
	RIVALS = 80,
	WORK = 60000, /* of the target in one measurement */
	MESSAGE = 32768,
	DEPTH = 16,	     /* messages of the tenant under way */
	BURST = 64,	     /* packets of the rivals in a turn */
	UNFINISHED = 8192,   /* packets of a message that never ends */
	AHEAD = 256,	     /* packets of the rivals that wait at the target */
	SMALL_MTU = 1024,    /* of rivals, in virtual time */
	TURN_NS = 1000,	     /* of a turn without work */
	WORK_NS = 800,	     /* of a unit of work; measured over UDP */
	PACE_NS = 50000,     /* between two packets of the rivals */
	ALONE_NS = 20000000, /* before the rivals begin */
	TIME_NS = 50000000,  /* of one measurement */
};

/* A way to misbehave. next: the next packet of rival i (from 1). */
struct way {
	const char *name;
	struct srdma_packet (*next)(struct scene *s, int i);
	int deaf;  /* their connection takes nothing */
	int loss;  /* the tenant loses every 50th packet */
	int spoil; /* the tag is made wrong */
};

struct measurement {
	struct scene scene; /* the first member: the context of its hooks */
	const struct way *way;
	struct srdma_conn *conn; /* of the rivals, at the target */
	uint64_t id[1 + RIVALS]; /* next request of each rival */
	uint32_t mtu;		 /* of the rivals; 0: the relay's */
	unsigned posted, done, sent;
};

static struct measurement *measurement_of(struct scene *s)
{
	return (struct measurement *)(void *)s;
}

/* --- ways to misbehave ----------------------------------------------------- */

static uint64_t next_id(struct scene *s, int i)
{
	return measurement_of(s)->id[i]++;
}

static struct srdma_packet big_read(struct scene *s, int i)
{
	return part(s, next_id(s, i), 0, SRDMA_MAX_READ_CHUNK);
}

static struct srdma_packet same_read(struct scene *s, int i)
{
	struct measurement *m = measurement_of(s);

	return part(s, m->id[i] < 8 ? m->id[i]++ : (uint64_t)rand() % 8, 0,
		    SRDMA_MAX_READ_CHUNK);
}

static struct srdma_packet tiny_write(struct scene *s, int i)
{
	struct srdma_packet p = piece(s, next_id(s, i), 0, 1);

	p.payload_len = p.dma_len = 1;
	return p;
}

static struct srdma_packet beyond_a_gap(struct scene *s, int i)
{
	return piece(s, 1 + next_id(s, i) % 512, 0, 1);
}

static struct srdma_packet wrong_rkey(struct scene *s, int i)
{
	struct srdma_packet p = piece(s, next_id(s, i), 0, 1);

	p.rkey ^= 0x5a5a5a5a;
	return p;
}

static struct srdma_packet unfinished(struct scene *s, int i)
{
	return piece(s, 0, (uint32_t)next_id(s, i), UNFINISHED);
}

static struct srdma_packet ping(struct scene *s, int i)
{
	(void)s;
	(void)i;
	return (struct srdma_packet){ .opcode = SRDMA_OP_ACKNOWLEDGE,
				      .flags = SRDMA_STH_ACK_NOW,
				      .ack = { .kind = SRDMA_ACK_PING } };
}

static const struct way ways[] = {
	{ .name = "never takes responses", .next = big_read, .deaf = 1 },
	{ .name = "READ flood", .next = big_read },
	{ .name = "READs again and again", .next = same_read },
	{ .name = "tiny WRITEs", .next = tiny_write },
	{ .name = "packets beyond a gap", .next = beyond_a_gap, .loss = 1 },
	{ .name = "wrong rkeys", .next = wrong_rkey },
	{ .name = "messages without an end", .next = unfinished },
	{ .name = "PING flood", .next = ping },
	{ .name = "tags that are wrong", .next = tiny_write, .spoil = 1 },
};

/* --- the order of a turn ---------------------------------------------------- */

struct order {
	struct scene scene; /* the first member: the context of its hooks */
	unsigned acks;	    /* of side 1 to QP 0 */
	unsigned responses; /* of side 1 before the first of these */
};

/* 1: the datagram of side 1 is for QP 0 of side 0. */
static int is_for_first(const struct scene *s, const uint8_t *data)
{
	return srdma_load24(data + 5) == s->pair.side[0].qp[0].qpn;
}

static enum srdma_mem_fate note_order(void *ctx, struct srdma_mem_datagram *d)
{
	struct order *o = ctx;
	const unsigned acks = o->scene.acks, responses = o->scene.answers;
	const enum srdma_mem_fate fate = listen(ctx, d);

	if (o->scene.acks > acks && is_for_first(&o->scene, d->data) &&
	    !o->acks++)
		o->responses = responses;
	return fate;
}

/* A READ of one peer arrives before a WRITE of another one that asks for an ack:
 * the ack leaves first. */
static void test_acks_leave_before_responses_of_others(void **state)
{
	struct order o = { 0 };
	struct scene *s = &o.scene;
	struct srdma_packet asks;

	(void)state;
	scene_begin(s);
	s->pair.wire.fate = note_order;
	scene_open(s, 1);
	s->pair.identity = 1;
	pair_connect(&s->pair, 1);
	o.acks = s->acks = s->answers = 0;
	asks = piece(s, 0, 0, 1);
	asks.flags = SRDMA_STH_ACK_NOW;
	put_on(s, 1, part(s, 0, 0, PLACE));
	put_on(s, 0, asks);
	pair_run(&s->pair, 2);
	assert_true(o.acks > 0);
	assert_true(s->answers > 0);
	assert_int_equal(o.responses, 0);
	scene_close(s);
}

/* --- the wire -------------------------------------------------------------- */

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	struct measurement *m = ctx;

	if (!m->way)
		return SRDMA_MEM_PASS;
	if (d->side == 1)
		return m->way->deaf && !is_for_first(&m->scene, d->data)
			       ? SRDMA_MEM_HOLD
			       : SRDMA_MEM_PASS;
	return m->way->loss && ++m->sent % 50 == 0 ? SRDMA_MEM_DROP
						   : SRDMA_MEM_PASS;
}

/* --- the measurement ------------------------------------------------------- */

static void connect_rival(struct measurement *m, int i)
{
	pair_init_qp(&m->scene.pair, i);
	if (m->mtu)
		m->scene.pair.side[0].qp[i].mtu = m->mtu;
	pair_meet(&m->scene.pair, i);
}

static void begin(struct measurement *m, uint32_t mtu)
{
	*m = (struct measurement){ .mtu = mtu };
	scene_begin(&m->scene);
	m->scene.pair.wire.slots = 128;
	m->scene.pair.wire.bufs = 4096;
	m->scene.pair.wire.fate = fate;
	m->scene.pair.ring = SRDMA_MAX_RING;
	m->scene.pair.depth = DEPTH;
	pair_open(&m->scene.pair);
	pair_connect(&m->scene.pair, 0);
	m->scene.pair.identity = 1;
	for (int i = 1; i <= RIVALS; i++)
		connect_rival(m, i);
	assert_int_equal(
		srdma_port_mem_intrude(m->scene.pair.side[1].wire, &m->conn),
		0);
}

static void end(struct measurement *m)
{
	srdma_port_mem_release(m->scene.pair.side[1].wire);
	m->way = NULL;
	pair_close(&m->scene.pair);
}

/* Seals the next packet of rival i and puts it on the rivals' connection. */
static void put_rival(struct measurement *m, int i)
{
	struct scene *s = &m->scene;
	uint8_t payload[SRDMA_MAX_PAYLOAD] = { 0 }, out[SRDMA_MAX_PACKET];
	struct srdma_packet p = m->way->next(s, i);
	int len;

	if (p.opcode == SRDMA_OP_ACKNOWLEDGE)
		p.ack.highest_pn = (uint32_t)last_sent(s, i);
	len = srdma_session_seal(srdma_qp_session(qp_at(s, 0, i)), &p, payload,
				 out, sizeof(out));
	assert_true(len > 0);
	out[len - 1] ^= (uint8_t)m->way->spoil;
	assert_int_equal(srdma_port_mem_inject(m->conn, out, (uint32_t)len), 0);
}

/* Work of the target (5.6): a packet costs as much as 2 KiB of payload. */
static uint64_t work_of(const struct scene *s)
{
	const struct srdma_stats *t = target_stats(s);
	uint64_t n = t->packets_verified + t->packets_sealed;

	for (int i = 0; i < SRDMA_REFUSED_COUNT; i++)
		n += i == SRDMA_REFUSED_GAP ? 0 : t->refused[i];
	return 2 * n + (t->bytes_verified + t->bytes_sealed) / 1024;
}

static void post_more(struct measurement *m, uint8_t opcode)
{
	struct pair *p = &m->scene.pair;

	for (; m->posted < m->done + DEPTH; m->posted++)
		pair_post(p, 0,
			  (struct srdma_desc){
				  .opcode = opcode,
				  .id = m->posted,
				  .length = MESSAGE,
				  .local_addr = (uintptr_t)p->side[0].memory,
				  .remote_addr = (uintptr_t)p->side[1].memory },
			  NULL);
}

static void take_done(struct measurement *m)
{
	struct srdma_record r;

	while (pair_record(&m->scene.pair, 0, &r)) {
		assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
		m->done++;
	}
}

static uint32_t waiting(const struct measurement *m)
{
	return ((struct srdma_mem_end *)m->conn)->in.count;
}

struct result {
	unsigned messages; /* of the tenant while the target does WORK */
	double seconds;	   /* CPU time of the target */
};

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* One turn of both sides. Returns the CPU time of the target, s. */
static double run(struct pair *p)
{
	double begin;

	p->now += 1000;
	srdma_relay_run(p->side[0].relay, p->now, 64);
	begin = cpu_time();
	srdma_relay_run(p->side[1].relay, p->now, 64);
	return cpu_time() - begin;
}

/* way: NULL: alone. */
static struct result measure(uint8_t opcode, const struct way *way)
{
	static struct measurement m;
	struct result r = { 0 };
	uint64_t until;
	int i = 0;

	begin(&m, 0);
	m.way = way;
	/* the rivals begin first, and hold what they can */
	for (int turn = 0; way && turn < 200; turn++) {
		for (int n = 0; n < BURST && waiting(&m) < AHEAD; n++)
			put_rival(&m, 1 + i++ % RIVALS);
		pair_run(&m.scene.pair, 1);
	}
	until = work_of(&m.scene) + WORK;
	for (int turn = 0; work_of(&m.scene) < until && turn < WORK; turn++) {
		for (int n = 0; way && n < BURST && waiting(&m) < AHEAD; n++)
			put_rival(&m, 1 + i++ % RIVALS);
		post_more(&m, opcode);
		r.seconds += run(&m.scene.pair);
		take_done(&m);
	}
	r.messages = m.done;
	end(&m);
	return r;
}

static void check(uint8_t opcode, const char *name)
{
	const struct result alone = measure(opcode, NULL);
	unsigned bad = 0;

	assert_true(alone.messages > 100);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		const struct result r = measure(opcode, &ways[i]);
		const double share = 2.0 * r.messages / alone.messages;

		print_message(
			"%-5s beside %-24s %.2f of a fair share; by CPU time %.2f\n",
			name, ways[i].name, share,
			share * alone.seconds / r.seconds);
		bad += 20 * r.messages < 8 * alone.messages;
	}
	assert_int_equal(bad, 0);
}

/* --- in virtual time ------------------------------------------------------- */

/* One turn of the target; the clock advances by its work. Then the tenant takes
 * what arrived, and sends. */
static void run_in_time(struct measurement *m, uint8_t opcode)
{
	struct pair *p = &m->scene.pair;
	const uint64_t before = work_of(&m->scene);

	srdma_relay_run(p->side[1].relay, p->now, 64);
	p->now += TURN_NS + WORK_NS * (work_of(&m->scene) - before);
	for (int i = 0; i < 2; i++) {
		post_more(m, opcode);
		srdma_relay_run(p->side[0].relay, p->now, 64);
		take_done(m);
	}
}

/* Messages of the tenant beside this way, in TIME_NS. NULL: alone. */
static unsigned measure_in_time(uint8_t opcode, const struct way *way)
{
	static struct measurement m;
	uint64_t *const now = &m.scene.pair.now;
	uint64_t end_at, due;
	unsigned done;
	int i = 0;

	begin(&m, SMALL_MTU);
	end_at = *now + ALONE_NS;
	while (*now < end_at)
		run_in_time(&m, opcode);
	m.way = way;
	done = m.done;
	end_at = due = *now;
	end_at += TIME_NS;
	while (*now < end_at) {
		for (; way && due <= *now && waiting(&m) < AHEAD;
		     due += PACE_NS)
			put_rival(&m, 1 + i++ % RIVALS);
		run_in_time(&m, opcode);
	}
	done = m.done - done;
	end(&m);
	return done;
}

static void check_in_time(uint8_t opcode, const char *name)
{
	const unsigned alone = measure_in_time(opcode, NULL);
	unsigned bad = 0;

	assert_true(alone > 100);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		const unsigned n = measure_in_time(opcode, &ways[i]);

		print_message(
			"%-5s beside %-24s %.2f of a fair share, in time\n",
			name, ways[i].name, 2.0 * n / alone);
		bad += 20 * n < 8 * alone;
	}
	assert_int_equal(bad, 0);
}

/* --- QPs that wait for the next turn ---------------------------------------- */

/* Runs until QPs of the rivals wait because their tenant used up its part. */
static void run_until_late(struct measurement *m)
{
	const struct srdma_env *env = &m->scene.pair.side[1].relay->env;
	int i = 0;

	for (int turn = 0; !env->late_head && turn < 100; turn++) {
		for (int n = 0; n < RIVALS; n++)
			put_rival(m, 1 + i++ % RIVALS);
		post_more(m, SRDMA_DESC_WRITE);
		run(&m->scene.pair);
	}
	assert_non_null(env->late_head);
}

/* They may be destroyed meanwhile. */
static void test_qps_that_wait_for_a_turn_are_destroyed(void **state)
{
	static const struct way flood = { .next = big_read };
	static struct measurement m;
	struct pair *p = &m.scene.pair;
	unsigned done;

	(void)state;
	begin(&m, 0);
	m.way = &flood;
	run_until_late(&m);
	for (int i = 1; i <= RIVALS; i++)
		pair_destroy_qp(p, i);
	assert_null(p->side[1].relay->env.late_head);
	take_done(&m);
	done = m.done;
	post_more(&m, SRDMA_DESC_WRITE);
	pair_settle(p);
	take_done(&m);
	assert_int_equal(m.done, done + DEPTH);
	end(&m);
}

/* --- tests ------------------------------------------------------------------ */

/* RFC 5042 A6.4.4 */
static void test_writes_keep_their_share(void **state)
{
	(void)state;
	check(SRDMA_DESC_WRITE, "WRITE");
}

static void test_reads_keep_their_share(void **state)
{
	(void)state;
	check(SRDMA_DESC_READ, "READ");
}

static void test_writes_keep_their_share_in_time(void **state)
{
	(void)state;
	check_in_time(SRDMA_DESC_WRITE, "WRITE");
}

static void test_reads_keep_their_share_in_time(void **state)
{
	(void)state;
	check_in_time(SRDMA_DESC_READ, "READ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_acks_leave_before_responses_of_others),
		cmocka_unit_test(test_qps_that_wait_for_a_turn_are_destroyed),
		cmocka_unit_test(test_writes_keep_their_share),
		cmocka_unit_test(test_reads_keep_their_share),
		cmocka_unit_test(test_writes_keep_their_share_in_time),
		cmocka_unit_test(test_reads_keep_their_share_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
