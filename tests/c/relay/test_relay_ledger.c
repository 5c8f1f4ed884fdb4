/*
 * Charges of the relay to its ledger (docs/local-interface.md 3.10): each
 * resource by two programs or two identities, counters, idle QPs, and random
 * creation and destruction. RFC 5042 R3-2, R6.4.1-1, R6.4.2-1, R7.2-2.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/time.h"
#include "ledger/ledger.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum { RING = 64, IDLE_S = 10, MS_PER_S = 1000 };

static struct pair p;
static struct srdma_relay *r; /* of side 0 */
static struct srdma_ledger *ledger;

static void begin(uint32_t qps)
{
	pair_defaults(&p);
	p.qps = qps;
	pair_open(&p);
	r = p.side[0].relay;
	ledger = srdma_relay_ledger(r);
}

static struct srdma_account *account(enum srdma_account_kind kind,
				     const char *name)
{
	struct srdma_account *a;

	assert_int_equal(srdma_account_open(ledger, kind, name, NULL, &a), 0);
	return a;
}

static void set_quota(enum srdma_account_kind kind, const char *name,
		      enum srdma_resource resource, uint64_t minimum,
		      uint64_t limit)
{
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q));
	q.idle = 0;
	q.of[resource].minimum = minimum;
	q.of[resource].limit = limit;
	assert_int_equal(srdma_quota_set(ledger, kind, name, &q, 1), 0);
}

static void set_idle(enum srdma_account_kind kind, const char *name,
		     uint64_t minimum)
{
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q));
	q.idle = IDLE_S;
	q.of[SRDMA_RES_QPS].minimum = minimum;
	assert_int_equal(srdma_quota_set(ledger, kind, name, &q, 1), 0);
}

static uint64_t used(const struct srdma_account *a,
		     enum srdma_resource resource)
{
	struct srdma_usage u;

	srdma_account_usage(a, resource, &u);
	return u.used;
}

static int open_leg(struct srdma_account *a, struct srdma_leg **leg)
{
	struct srdma_leg_params lp = { .ring = RING,
				       .fds = { -1, -1, -1 },
				       .account = a };
	struct srdma_leg_answer answer;

	return srdma_relay_leg_open(r, &lp, leg, &answer);
}

static int make_qp(struct srdma_leg *leg, struct srdma_qp_info *info)
{
	const struct srdma_qp_params qp = { .sq = 2, .rq = 2 };

	return srdma_relay_qp_init(r, leg, &qp, info);
}

static int make_region(struct srdma_leg *leg, uint32_t *key)
{
	const struct srdma_mr_params mp = {
		.region = { .addr = (uintptr_t)p.side[0].memory,
			    .length = 4096,
			    .access = SRDMA_ACCESS_REMOTE_READ |
				      SRDMA_ACCESS_PROOF,
			    .fd = -1 },
		.log2_block = 6,
		.depth = 48,
	};

	return srdma_relay_mr_reg(r, leg, &mp, key);
}

/* --- each resource, by two programs ---------------------------------------- */

struct program {
	struct srdma_account *account;
	struct srdma_leg *leg;
	uint8_t token[SRDMA_CAPABILITY_MAX];
	int token_len;
};

static int make_leg(struct program *a)
{
	struct srdma_leg *leg;

	return open_leg(a->account, &leg);
}

static int make_one_qp(struct program *a)
{
	struct srdma_qp_info info;

	return make_qp(a->leg, &info);
}

static int make_one_region(struct program *a)
{
	uint32_t key;

	return make_region(a->leg, &key);
}

static int install(struct program *a)
{
	uint32_t handle;

	return srdma_relay_install(r, a->leg, a->token, (size_t)a->token_len,
				   &handle);
}

static const struct {
	enum srdma_resource resource;
	int (*make)(struct program *a);
	uint64_t each; /* units of one */
	const char *noun;
} rows[] = {
	{ SRDMA_RES_LEGS, make_leg, 1, "legs" },
	{ SRDMA_RES_RECORDS, make_leg, RING, "places of completion rings" },
	{ SRDMA_RES_QPS, make_one_qp, 1, "QPs" },
	{ SRDMA_RES_ENTRIES, make_one_qp, 4, "places of send and receive" },
	{ SRDMA_RES_REGIONS, make_one_region, 1, "regions" },
	{ SRDMA_RES_BYTES, make_one_region, 4096, "bytes of registered" },
	{ SRDMA_RES_CAPABILITIES, install, 1, "installed capabilities" },
};

static void begin_program(struct program *a, const char *name)
{
	struct srdma_cap_params cp = { .length = 64, .rights = 1 };
	struct srdma_capability cap;

	a->account = account(SRDMA_ACCOUNT_PROCESS, name);
	assert_int_equal(open_leg(a->account, &a->leg), 0);
	assert_int_equal(make_region(a->leg, &cp.key), 0);
	assert_int_equal(srdma_relay_mr_capability(r, a->leg, &cp, &cap), 0);
	a->token_len = srdma_capability_encode(a->token, &cap);
	assert_true(a->token_len > 0);
}

/* RFC 5042 R6.4.1-1; review A41 */
static void test_each_limit_stops_the_greedy_program_only(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct program greedy, neighbour;
		uint64_t before;

		begin(0);
		begin_program(&greedy, "greedy");
		begin_program(&neighbour, "neighbour");
		before = used(greedy.account, rows[i].resource);
		set_quota(SRDMA_ACCOUNT_PROCESS, "greedy", rows[i].resource, 0,
			  before + 3 * rows[i].each);
		for (int n = 0; n < 3; n++)
			assert_int_equal(rows[i].make(&greedy), 0);
		assert_int_equal(rows[i].make(&greedy), -EDQUOT);
		assert_non_null(strstr(srdma_relay_why(r), "greedy has "));
		assert_non_null(strstr(srdma_relay_why(r), rows[i].noun));
		for (int n = 0; n < 4; n++)
			assert_int_equal(rows[i].make(&neighbour), 0);
		/* A refusal leaves nothing charged. */
		assert_int_equal(used(greedy.account, rows[i].resource),
				 before + 3 * rows[i].each);
		pair_close(&p);
	}
}

/* RFC 5042 R7.2-2 */
static void test_a_greedy_program_leaves_the_minimum_of_others(void **state)
{
	struct program greedy, neighbour;
	unsigned n = 0;

	(void)state;
	begin(10);
	begin_program(&greedy, "greedy");
	set_quota(SRDMA_ACCOUNT_PROCESS, "neighbour", SRDMA_RES_QPS, 3, 3);
	while (make_one_qp(&greedy) == 0)
		n++;
	assert_int_equal(n, 7);
	assert_non_null(strstr(srdma_relay_why(r), "limit of 10 QPs"));
	begin_program(&neighbour, "neighbour");
	for (int i = 0; i < 3; i++)
		assert_int_equal(make_one_qp(&neighbour), 0);
	assert_int_equal(make_one_qp(&neighbour), -EDQUOT);
	assert_non_null(strstr(srdma_relay_why(r), "neighbour has 3 of"));
	pair_close(&p);
}

static void test_what_a_leg_has_is_given_back_when_it_ends(void **state)
{
	struct program a;

	(void)state;
	begin(0);
	begin_program(&a, "a");
	for (size_t i = 1; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].make != make_leg)
			assert_int_equal(rows[i].make(&a), 0);
	srdma_relay_leg_close(a.leg);
	pair_settle(&p);
	for (int res = 0; res < SRDMA_RESOURCES; res++)
		assert_int_equal(used(a.account, (enum srdma_resource)res), 0);
	pair_close(&p);
}

/* --- identities ------------------------------------------------------------ */

static int give_keys(int side, int i, const char *identity)
{
	struct srdma_qp_keys k;

	pair_keys(&p, side, i, &k);
	k.peer_identity = identity;
	return srdma_relay_qp_keys(p.side[side].relay, p.side[side].leg, &k);
}

static void connect_as(int i, const char *identity)
{
	pair_init_qp(&p, i);
	assert_int_equal(give_keys(1, i, "spiffe://x/me"), 0);
	assert_int_equal(give_keys(0, i, identity), 0);
	pair_settle(&p);
}

static void write_bytes(int i, uint32_t length)
{
	pair_post(&p, 0,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_WRITE,
			  .qpn = p.side[0].qp[i].qpn,
			  .id = 7,
			  .length = length,
			  .local_addr = (uintptr_t)p.side[0].memory,
			  .remote_addr = (uintptr_t)p.side[1].memory },
		  NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 7, 0);
}

/* RFC 5042 R6.4.1-1, R6.4.1-2 */
static void test_an_identity_at_its_limit_gets_no_keys(void **state)
{
	uint32_t reason;

	(void)state;
	begin(0);
	set_quota(SRDMA_ACCOUNT_IDENTITY, "spiffe://x/greedy", SRDMA_RES_QPS, 0,
		  2);
	connect_as(0, "spiffe://x/greedy");
	connect_as(1, "spiffe://x/greedy");
	pair_init_qp(&p, 2);
	assert_int_equal(give_keys(0, 2, "spiffe://x/greedy"), -EDQUOT);
	assert_non_null(strstr(
		srdma_relay_why(r),
		"identity spiffe://x/greedy has 2 of at most 2 QPs: close"));
	assert_int_equal(srdma_relay_qp_state(r, p.side[0].leg,
					      p.side[0].qp[2].qpn, &reason),
			 SRDMA_QP_INIT);
	/* The same QP serves another one. */
	assert_int_equal(give_keys(0, 2, "spiffe://x/other"), 0);
	connect_as(3, "spiffe://x/other");
	write_bytes(3, 100);
	/* A QP that ends is given back. */
	pair_destroy_qp(&p, 0);
	connect_as(0, "spiffe://x/greedy");
	pair_close(&p);
}

static void test_keys_that_are_refused_are_not_charged(void **state)
{
	struct srdma_account *a;
	struct srdma_qp_keys k;

	(void)state;
	begin(0);
	a = account(SRDMA_ACCOUNT_IDENTITY, "spiffe://x/a");
	pair_init_qp(&p, 0);
	pair_keys(&p, 0, 0, &k);
	k.peer_identity = "spiffe://x/a";
	k.suite = 0x7f;
	assert_int_equal(srdma_relay_qp_keys(r, p.side[0].leg, &k), -ENOTSUP);
	assert_int_equal(used(a, SRDMA_RES_QPS), 0);
	srdma_account_close(a);
	assert_int_equal(
		srdma_ledger_used(ledger, SRDMA_SIDE_REMOTE, SRDMA_RES_QPS), 0);
	pair_close(&p);
}

/* --- counters (A46) -------------------------------------------------------- */

static struct srdma_qp_report report_of(uint32_t qpn)
{
	struct srdma_qp_report found;
	struct srdma_leg *leg;
	uint64_t cursor = 0;

	for (;;) {
		assert_int_equal(srdma_relay_qp_next(r, &cursor, &found, &leg),
				 0);
		if (leg && found.qpn == qpn)
			return found;
	}
}

/* RFC 5042 R6.4.4-1; review A46 */
static void test_qps_and_identities_have_counters(void **state)
{
	struct srdma_account_counts c;
	struct srdma_account *a;
	struct srdma_qp_report one;

	(void)state;
	begin(0);
	a = account(SRDMA_ACCOUNT_IDENTITY, "spiffe://x/a");
	connect_as(0, "spiffe://x/a");
	connect_as(1, "spiffe://x/a");
	connect_as(2, "spiffe://x/b");
	write_bytes(0, 5000);
	write_bytes(1, 1000);
	write_bytes(2, 1);
	one = report_of(p.side[0].qp[0].qpn);
	assert_int_equal(one.counts.bytes_sent, 5000);
	assert_true(one.counts.packets_sent >= 2);
	assert_true(one.counts.packets_verified >= 1);
	assert_string_equal(one.identity, "spiffe://x/a");
	assert_int_equal(one.state, SRDMA_QP_RTS);
	srdma_relay_counts(r, a, &c);
	assert_int_equal(c.bytes_sent, 6000);
	/* An ended QP stays in the sum. */
	pair_destroy_qp(&p, 0);
	srdma_relay_counts(r, a, &c);
	assert_int_equal(c.bytes_sent, 6000);
	/* The local account has all of them. */
	srdma_relay_counts(r, p.side[0].leg->account, &c);
	assert_int_equal(c.bytes_sent, 6001);
	assert_int_equal(c.qps_failed, 0);
	pair_close(&p);
}

static void test_every_qp_is_reported_once(void **state)
{
	struct srdma_qp_report found;
	struct srdma_leg *leg;
	uint64_t cursor = 0;
	unsigned seen = 0, calls = 0;

	(void)state;
	begin(0);
	for (int i = 0; i < PAIR_QPS; i++)
		pair_init_qp(&p, i);
	while (srdma_relay_qp_next(r, &cursor, &found, &leg) == 0) {
		calls++;
		if (!leg)
			continue;
		assert_ptr_equal(leg, p.side[0].leg);
		assert_string_equal(found.identity, "");
		for (int i = 0; i < PAIR_QPS; i++)
			if (p.side[0].qp[i].qpn == found.qpn)
				seen |= 1u << i;
	}
	assert_int_equal(seen, (1u << PAIR_QPS) - 1);
	/* Few buckets are examined per call. */
	assert_true(calls > 8);
	assert_int_equal(srdma_relay_qp_next(r, &cursor, &found, &leg),
			 -ENOENT);
	pair_close(&p);
}

/* --- idle QPs -------------------------------------------------------------- */

static int is_alive(int i)
{
	uint32_t reason;

	return srdma_relay_qp_state(r, p.side[0].leg, p.side[0].qp[i].qpn,
				    &reason) == SRDMA_QP_RTS;
}

/* Four QPs, of at most `qps`; QP 0 is idle for longest, 3 for the shortest. */
static void begin_four(uint32_t qps)
{
	begin(qps);
	for (int i = 0; i < 4; i++)
		connect_as(i, "spiffe://x/a");
	for (int i = 0; i < 4; i++) {
		pair_wait_ms(&p, 100);
		write_bytes(i, 100);
	}
}

static void begin_full(void)
{
	begin_four(4);
}

static void test_without_an_idle_time_no_qp_is_ended(void **state)
{
	struct srdma_qp_info info;

	(void)state;
	begin_full();
	pair_wait_ms(&p, 100 * IDLE_S * MS_PER_S);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	for (int i = 0; i < 4; i++)
		assert_true(is_alive(i));
	pair_close(&p);
}

/* RFC 5042 R6.4.2-1, A6.4.2 */
static void test_the_idlest_qp_gives_way(void **state)
{
	struct srdma_qp_info info;
	struct srdma_record rec;

	(void)state;
	begin_full();
	set_idle(SRDMA_ACCOUNT_PROCESS, "", 0);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	pair_wait_ms(&p, IDLE_S * MS_PER_S + 500);
	write_bytes(3, 100);
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	assert_false(is_alive(0));
	assert_true(pair_record(&p, 0, &rec));
	assert_int_equal(rec.qpn, p.side[0].qp[0].qpn);
	assert_int_equal(rec.vendor_err, SRDMA_REASON_RECLAIMED);
	assert_int_equal(
		srdma_relay_qp_destroy(r, p.side[0].leg, p.side[0].qp[0].qpn),
		-ENOENT);
	for (int i = 1; i < 4; i++)
		assert_true(is_alive(i));
	/* Its peer is told. */
	pair_settle(&p);
	assert_int_equal(
		p.side[1].relay->env.stats.reason[SRDMA_REASON_PEER_ERROR], 1);
	assert_int_equal(
		srdma_ledger_used(ledger, SRDMA_SIDE_LOCAL, SRDMA_RES_QPS), 4);
	/* The others follow, but for the one that worked. */
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	assert_true(is_alive(3));
	pair_close(&p);
}

/* A program that repeats a refused INIT does not make the worker search all QPs
 * each time. */
/* RFC 5042 R6.4.2-1 */
static void test_a_vain_search_is_not_repeated_at_once(void **state)
{
	enum { PAUSE_MS = 10 };
	struct srdma_qp_info info;

	(void)state;
	begin_full();
	set_idle(SRDMA_ACCOUNT_PROCESS, "", 0);
	/* QP 0 worked 300 ms ago. */
	pair_wait_ms(&p, IDLE_S * MS_PER_S - 300 - PAUSE_MS / 2);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	pair_wait_ms(&p, PAUSE_MS - 1); /* it is idle now */
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	pair_wait_ms(&p, 1);
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	pair_close(&p);
}

static void test_qps_within_the_minimum_stay(void **state)
{
	struct srdma_qp_info info;

	(void)state;
	begin_four(8);
	set_idle(SRDMA_ACCOUNT_PROCESS, "", 4);
	set_quota(SRDMA_ACCOUNT_PROCESS, "other", SRDMA_RES_QPS, 4, 8);
	pair_wait_ms(&p, 10 * IDLE_S * MS_PER_S);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	for (int i = 0; i < 4; i++)
		assert_true(is_alive(i));
	pair_close(&p);
}

static void test_a_limit_ends_no_other_qp(void **state)
{
	struct srdma_qp_info info;
	struct srdma_quota q;

	(void)state;
	begin_full();
	memset(&q, 0xff, sizeof(q));
	q.idle = IDLE_S;
	q.of[SRDMA_RES_QPS].minimum = 0;
	q.of[SRDMA_RES_QPS].limit = 4;
	assert_int_equal(
		srdma_quota_set(ledger, SRDMA_ACCOUNT_PROCESS, "", &q, 1), 0);
	pair_wait_ms(&p, 10 * IDLE_S * MS_PER_S);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	assert_true(is_alive(0));
	pair_close(&p);
}

/* An identity whose share others need. A vain search for a QP of a program delays
 * no search for a QP of an identity. */
/* RFC 5042 R6.4.2-1 */
/* A QP whose receives others take does not give way, as long as they take them. */
static void test_holder_of_a_shared_queue_gives_way_last(void **state)
{
	struct srdma_qp_info holder, user, info;
	uint32_t reason;

	(void)state;
	begin(2);
	set_idle(SRDMA_ACCOUNT_PROCESS, "", 0);
	assert_int_equal(make_qp(p.side[0].leg, &holder), 0);
	pair_wait_ms(&p, 100);
	assert_int_equal(make_qp(p.side[0].leg, &user), 0);
	assert_int_equal(
		srdma_relay_qp_share(r, p.side[0].leg, user.qpn, holder.qpn),
		0);
	pair_wait_ms(&p, IDLE_S * MS_PER_S + 500);
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	assert_int_equal(
		srdma_relay_qp_state(r, p.side[0].leg, user.qpn, &reason),
		-ENOENT);
	assert_int_equal(
		srdma_relay_qp_state(r, p.side[0].leg, holder.qpn, &reason),
		SRDMA_QP_INIT);
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	assert_int_equal(
		srdma_relay_qp_state(r, p.side[0].leg, holder.qpn, &reason),
		-ENOENT);
	pair_close(&p);
}

static void test_qps_of_an_idle_identity_give_way(void **state)
{
	struct srdma_qp_info info;

	(void)state;
	begin(5);
	for (int i = 0; i < 3; i++)
		connect_as(i, "spiffe://x/idle");
	set_quota(SRDMA_ACCOUNT_IDENTITY, "spiffe://x/named", SRDMA_RES_QPS, 2,
		  5);
	pair_init_qp(&p, 3);
	assert_int_equal(give_keys(0, 3, "spiffe://x/other"), -EDQUOT);
	set_idle(SRDMA_ACCOUNT_IDENTITY, "spiffe://x/idle", 0);
	pair_wait_ms(&p, IDLE_S * MS_PER_S + 500);
	assert_int_equal(make_qp(p.side[0].leg, &info), 0);
	assert_int_equal(make_qp(p.side[0].leg, &info), -EDQUOT);
	assert_int_equal(give_keys(0, 3, "spiffe://x/other"), 0);
	assert_int_equal(is_alive(0) + is_alive(1) + is_alive(2), 2);
	pair_close(&p);
}

/* --- random creation and destruction --------------------------------------- */

enum { LEGS = 6, QPS = 24, REGIONS = 24, STEPS = 3000 };

struct world {
	struct srdma_account *account[2];
	struct srdma_leg *leg[LEGS];
	uint32_t owner[LEGS]; /* index of the account */
	uint32_t qpn[QPS], qp_leg[QPS];
	uint32_t key[REGIONS], mr_leg[REGIONS];
	uint32_t seed;
};

static uint32_t draw(struct world *w, uint32_t below)
{
	w->seed = w->seed * 1664525 + 1013904223;
	return (w->seed >> 8) % below;
}

static void end_leg(struct world *w, uint32_t i)
{
	srdma_relay_leg_close(w->leg[i]);
	w->leg[i] = NULL;
	for (int q = 0; q < QPS; q++)
		if (w->qp_leg[q] == i)
			w->qpn[q] = 0;
	for (int m = 0; m < REGIONS; m++)
		if (w->mr_leg[m] == i)
			w->key[m] = 0;
	pair_settle(&p);
}

static void step_leg(struct world *w, uint32_t i)
{
	if (w->leg[i]) {
		if (draw(w, 4) == 0)
			end_leg(w, i);
		return;
	}
	w->owner[i] = draw(w, 2);
	assert_int_equal(open_leg(w->account[w->owner[i]], &w->leg[i]), 0);
}

static void step_qp(struct world *w, uint32_t i)
{
	struct srdma_qp_info info;
	const uint32_t leg = draw(w, LEGS);

	if (w->qpn[i]) {
		while (srdma_relay_qp_destroy(r, w->leg[w->qp_leg[i]],
					      w->qpn[i]))
			pair_run(&p, 1);
		w->qpn[i] = 0;
	} else if (w->leg[leg] && make_qp(w->leg[leg], &info) == 0) {
		w->qpn[i] = info.qpn;
		w->qp_leg[i] = leg;
	}
}

static void step_region(struct world *w, uint32_t i)
{
	const uint32_t leg = draw(w, LEGS);
	uint32_t key;

	if (w->key[i]) {
		assert_int_equal(srdma_relay_mr_dereg(r, w->leg[w->mr_leg[i]],
						      w->key[i]),
				 0);
		w->key[i] = 0;
	} else if (w->leg[leg] && make_region(w->leg[leg], &key) == 0) {
		w->key[i] = key;
		w->mr_leg[i] = leg;
	}
}

/* The ledger has what the relay has (R3-2). */
static void check(const struct world *w)
{
	uint64_t want[2][SRDMA_RESOURCES] = { 0 };

	for (int i = 0; i < LEGS; i++) {
		uint64_t *mine = want[w->owner[i]];

		if (!w->leg[i])
			continue;
		mine[SRDMA_RES_LEGS]++;
		mine[SRDMA_RES_RECORDS] += RING;
		mine[SRDMA_RES_REGIONS] += w->leg[i]->mrs;
		mine[SRDMA_RES_BYTES] += 4096 * (uint64_t)w->leg[i]->mrs;
	}
	for (int i = 0; i < QPS; i++) {
		if (!w->qpn[i])
			continue;
		want[w->owner[w->qp_leg[i]]][SRDMA_RES_QPS]++;
		want[w->owner[w->qp_leg[i]]][SRDMA_RES_ENTRIES] += 4;
	}
	for (int a = 0; a < 2; a++)
		for (int res = 0; res < SRDMA_RESOURCES; res++)
			assert_int_equal(
				used(w->account[a], (enum srdma_resource)res),
				want[a][res]);
}

/* RFC 5042 R3-2 */
static void test_the_ledger_has_what_the_relay_has(void **state)
{
	struct world w = { .seed = 42 };

	(void)state;
	begin(0);
	w.account[0] = account(SRDMA_ACCOUNT_PROCESS, "a");
	w.account[1] = account(SRDMA_ACCOUNT_PROGRAM, "b");
	for (int i = 0; i < STEPS; i++) {
		switch (draw(&w, 3)) {
		case 0:
			step_leg(&w, draw(&w, LEGS));
			break;
		case 1:
			step_qp(&w, draw(&w, QPS));
			break;
		default:
			step_region(&w, draw(&w, REGIONS));
		}
		check(&w);
	}
	for (uint32_t i = 0; i < LEGS; i++)
		if (w.leg[i])
			end_leg(&w, i);
	check(&w);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_limit_stops_the_greedy_program_only),
		cmocka_unit_test(
			test_a_greedy_program_leaves_the_minimum_of_others),
		cmocka_unit_test(
			test_what_a_leg_has_is_given_back_when_it_ends),
		cmocka_unit_test(test_an_identity_at_its_limit_gets_no_keys),
		cmocka_unit_test(test_keys_that_are_refused_are_not_charged),
		cmocka_unit_test(test_qps_and_identities_have_counters),
		cmocka_unit_test(test_every_qp_is_reported_once),
		cmocka_unit_test(test_without_an_idle_time_no_qp_is_ended),
		cmocka_unit_test(test_the_idlest_qp_gives_way),
		cmocka_unit_test(test_a_vain_search_is_not_repeated_at_once),
		cmocka_unit_test(test_qps_within_the_minimum_stay),
		cmocka_unit_test(test_a_limit_ends_no_other_qp),
		cmocka_unit_test(test_holder_of_a_shared_queue_gives_way_last),
		cmocka_unit_test(test_qps_of_an_idle_identity_give_way),
		cmocka_unit_test(test_the_ledger_has_what_the_relay_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
