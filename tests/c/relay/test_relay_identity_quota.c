/*
 * Quotas of what packets of an identity occupy at the worker (local-interface.md
 * 3.10): five QPs of one identity work at its limit, and a QP of another one
 * beside them. All their requests complete.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ledger/ledger.h"
#include "support/arriving.h"

enum {
	QPS = 6, /* QP 0 is the neighbour's, the others are greedy */
	MESSAGES = 4,
	LENGTH = 65536,
	DMA_POLLS = 3,
	LOSS = 9, /* one of LOSS datagrams of the requesters */
	PATIENCE_MS = 20000,
};

struct row {
	enum srdma_resource resource;
	uint8_t opcode;
	int loss;
	uint64_t limit;
	int side; /* that has the limit */
};

static const struct row rows[] = {
	{ SRDMA_RES_OPS, SRDMA_DESC_READ, 0, 6, 1 },
	{ SRDMA_RES_OPS, SRDMA_DESC_READ, 0, 1, 1 },
	{ SRDMA_RES_READS, SRDMA_DESC_READ, 0, 3, 1 },
	{ SRDMA_RES_READS, SRDMA_DESC_READ, 0, 1, 1 },
	{ SRDMA_RES_KEPT, SRDMA_DESC_WRITE, 1, 4, 1 },
	{ SRDMA_RES_KEPT, SRDMA_DESC_WRITE, 1, 0, 1 },
};

/* Requesters charge the identity of their peer, which is one for all. */
static const struct row requesters[] = {
	{ SRDMA_RES_OPS, SRDMA_DESC_WRITE, 0, 6, 0 },
	{ SRDMA_RES_OPS, SRDMA_DESC_WRITE, 0, 1, 0 },
};

static struct pair p;
static const struct row *row;
static int losing; /* 1: the wire loses datagrams */

static enum srdma_mem_fate lose(void *ctx, struct srdma_mem_datagram *d)
{
	(void)ctx;
	return losing && d->side == 0 && d->number % LOSS == 4 ? SRDMA_MEM_DROP
							       : SRDMA_MEM_PASS;
}

/* The account of the peer of QP i at the side of the row. */
static struct srdma_account *account_of(int i)
{
	const struct side *s = &p.side[row->side];

	return srdma_qp_identity(srdma_relay_qp(s->relay, s->qp[i].qpn));
}

static struct srdma_usage usage_of(int i)
{
	struct srdma_usage u;

	srdma_account_usage(account_of(i), row->resource, &u);
	return u;
}

static void set_limit(struct srdma_relay *r, struct srdma_account *a,
		      enum srdma_resource resource, uint64_t limit)
{
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q)); /* SRDMA_QUOTA_DEFAULT */
	q.idle = 0;
	q.of[resource].minimum = 0;
	q.of[resource].limit = limit;
	assert_int_equal(srdma_quota_set(srdma_relay_ledger(r),
					 SRDMA_ACCOUNT_IDENTITY,
					 srdma_account_name(a), &q, 1),
			 0);
}

static void begin(const struct row *now, uint64_t limit)
{
	row = now;
	losing = 0; /* not before the paths are there */
	pair_defaults(&p);
	p.wire.fate = lose;
	p.wire.window = 1024;
	p.wire.slots = 1000;
	p.host[row->side].bufs = 1024;
	p.host[row->side].dma_polls = DMA_POLLS;
	p.memory = QPS * LENGTH;
	pair_open(&p);
	for (int i = 0; i < QPS; i++) {
		p.identity = i > 0;
		pair_connect(&p, i);
	}
	set_limit(p.side[row->side].relay, account_of(1), row->resource, limit);
}

/* The n-th message: all QPs in turn have one. */
static struct srdma_desc nth(uint32_t n)
{
	const uint64_t at = n % QPS * LENGTH;

	return (struct srdma_desc){ .opcode = row->opcode,
				    .id = n / QPS,
				    .qpn = p.side[0].qp[n % QPS].qpn,
				    .length = LENGTH,
				    .local_addr =
					    (uintptr_t)p.side[0].memory + at,
				    .remote_addr =
					    (uintptr_t)p.side[1].memory + at };
}

static void post_all(void)
{
	losing = row->loss;
	for (uint32_t n = 0; n < QPS * MESSAGES; n++)
		pair_post(&p, 0, nth(n), NULL);
}

/* Runs until all requests have completed. Returns the most that both accounts
 * used: [0] the neighbour, [1] the greedy one. */
static void run(uint64_t most[2])
{
	unsigned done = 0;
	uint64_t ms = 0;

	most[0] = most[1] = 0;
	while (done < QPS * MESSAGES) {
		struct srdma_record r;

		for (int i = 0; i < 50; i++) {
			pair_run(&p, 1);
			for (int a = 0; a < 2; a++) {
				const uint64_t used = usage_of(a).used;

				most[a] = used > most[a] ? used : most[a];
			}
		}
		while (pair_record(&p, 0, &r)) {
			assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
			done++;
		}
		p.now += SRDMA_MS;
		assert_true(ms++ < PATIENCE_MS);
	}
}

/* The greedy one uses its limit, and no more. most: as of run(). */
static void run_at_limit(const struct row *now, uint64_t most[2])
{
	begin(now, now->limit);
	post_all();
	run(most);
	assert_int_equal(most[1], now->limit);
	assert_true(usage_of(1).refused > 0);
}

/* RFC 5042 R6.4.1-1, R6.4.3.1-1, A6.4.1 */
static void test_an_identity_at_its_limit_leaves_others_alone(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint64_t most[2];

		run_at_limit(&rows[i], most);
		assert_true(most[0] > 0);
		assert_int_equal(usage_of(0).refused, 0);
		pair_wait_ms(&p, 1);
		assert_int_equal(usage_of(0).used + usage_of(1).used, 0);
		pair_close(&p);
	}
}

static void test_requesters_share_the_limit_of_their_peer(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(requesters) / sizeof(*requesters); i++) {
		uint64_t most[2];

		run_at_limit(&requesters[i], most);
		pair_wait_ms(&p, 1);
		assert_int_equal(usage_of(1).used, 0);
		pair_close(&p);
	}
}

/* Its local key is wrong, so that it fails while it sends a burst; or its peer sends
 * NAK while it waits for DMA. */
static void test_a_requester_that_failed_occupies_nothing(void **state)
{
	enum { QP = 1, WRONG = 2 * QPS + QP }; /* its third message */
	static const struct {
		uint32_t local_key, rkey, reason;
		uint32_t dma_polls;
	} faults[] = {
		{ 7, 0, SRDMA_REASON_LOCAL_KEY, 0 },
		{ 7, 0, SRDMA_REASON_LOCAL_KEY, DMA_POLLS },
		{ 0, 7, SRDMA_REASON_BAD_RKEY, 0 },
		{ 0, 7, SRDMA_REASON_BAD_RKEY, DMA_POLLS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		uint32_t reason;

		begin(requesters, SRDMA_QUOTA_DEFAULT);
		p.host[0].dma_polls = faults[i].dma_polls;
		for (uint32_t n = QP; n < QPS * MESSAGES; n += QPS) {
			struct srdma_desc d = nth(n);

			if (n == WRONG) {
				d.local_key = faults[i].local_key;
				d.rkey = faults[i].rkey;
			}
			pair_post(&p, 0, d, NULL);
		}
		pair_wait_ms(&p, 1);
		assert_int_equal(pair_state(&p, 0, QP, &reason), SRDMA_QP_ERR);
		assert_int_equal(reason, faults[i].reason);
		assert_int_equal(usage_of(QP).used, 0);
		pair_close(&p);
	}
}

/* The rows above show something: without the limit it uses more. */
static void test_without_a_limit_it_uses_more(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint64_t most[2];

		begin(&rows[i], SRDMA_QUOTA_DEFAULT);
		post_all();
		run(most);
		assert_true(most[1] > rows[i].limit);
		assert_int_equal(usage_of(1).refused, 0);
		pair_close(&p);
	}
}

/* The last slot of an identity is with one QP; a READ waits at another one, whose
 * peer then sends nothing. */
static void test_a_slot_of_another_qp_is_awaited(void **state)
{
	struct srdma_account *a;
	struct scene s;

	(void)state;
	scene_begin(&s);
	s.pair.host[1].dma_polls = 50;
	scene_open(&s, 2);
	a = srdma_qp_identity(qp_at(&s, 1, 1));
	set_limit(s.pair.side[1].relay, a, SRDMA_RES_READS, 1);
	s.deaf = 1;
	put_on(&s, 0, part(&s, 0, 0, PIECE));
	put_on(&s, 1, part(&s, 0, 0, PIECE));
	pair_run(&s.pair, 10);
	assert_int_equal(srdma_account_used(a, SRDMA_RES_READS), 1);
	assert_int_equal(srdma_account_used(a, SRDMA_RES_KEPT), 1);
	assert_int_equal(s.answers, 0);
	pair_run(&s.pair, 200); /* 200 us */
	assert_int_equal(s.answers, 1);
	assert_int_equal(srdma_account_used(a, SRDMA_RES_KEPT), 1);
	pair_wait_ms(&s.pair, 1);
	assert_int_equal(srdma_account_used(a, SRDMA_RES_KEPT), 0);
	pair_run(&s.pair, 200);
	assert_int_equal(s.answers, 2);
	scene_close(&s);
}

/* Slots and kept packets of a QP that ends are given back. */
static void test_what_a_qp_occupies_is_given_back_when_it_ends(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct srdma_ledger *l;
		struct srdma_account *a;

		begin(&rows[i], SRDMA_QUOTA_DEFAULT);
		l = srdma_relay_ledger(p.side[1].relay);
		a = account_of(1);
		post_all();
		for (int n = 0; n < 2000 && !usage_of(1).used; n++)
			pair_run(&p, 1);
		assert_true(srdma_account_used(a, row->resource) > 0);
		srdma_relay_leg_close(p.side[1].leg);
		pair_wait_ms(&p, 1000);
		assert_int_equal(
			srdma_ledger_used(l, SRDMA_SIDE_REMOTE, row->resource),
			0);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_identity_at_its_limit_leaves_others_alone),
		cmocka_unit_test(test_requesters_share_the_limit_of_their_peer),
		cmocka_unit_test(test_a_requester_that_failed_occupies_nothing),
		cmocka_unit_test(test_without_a_limit_it_uses_more),
		cmocka_unit_test(test_a_slot_of_another_qp_is_awaited),
		cmocka_unit_test(
			test_what_a_qp_occupies_is_given_back_when_it_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
