/*
 * The ledger (docs/local-interface.md 3.10): minima, limits, groups, quotas and
 * the end of accounts, by examples and by random calls against a model.
 */
#include "ledger/ledger.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum srdma_resource QPS = SRDMA_RES_QPS, BYTES = SRDMA_RES_BYTES;

static struct srdma_ledger *ledger_of(uint64_t capacity, int minima)
{
	struct srdma_ledger_params params = { .minima = minima };
	struct srdma_ledger *l;

	for (int side = 0; side < SRDMA_SIDES; side++)
		for (int r = 0; r < SRDMA_RESOURCES; r++)
			params.capacity[side][r] = capacity;
	assert_int_equal(srdma_ledger_create(&l, &params), 0);
	return l;
}

static struct srdma_account *open_in(struct srdma_ledger *l,
				     enum srdma_account_kind kind,
				     const char *name,
				     struct srdma_account *parent)
{
	struct srdma_account *a;

	assert_int_equal(srdma_account_open(l, kind, name, parent, &a), 0);
	return a;
}

static struct srdma_account *process(struct srdma_ledger *l, const char *name)
{
	return open_in(l, SRDMA_ACCOUNT_PROCESS, name, NULL);
}

static struct srdma_quota nothing_given(void)
{
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q));
	q.idle = 0;
	return q;
}

static struct srdma_quota quota_of(enum srdma_resource r, uint64_t minimum,
				   uint64_t limit)
{
	struct srdma_quota q = nothing_given();

	q.of[r].minimum = minimum;
	q.of[r].limit = limit;
	return q;
}

static void set(struct srdma_ledger *l, enum srdma_account_kind kind,
		const char *name, struct srdma_quota q)
{
	assert_int_equal(srdma_quota_set(l, kind, name, &q, 1), 0);
}

static uint64_t used(const struct srdma_account *a, enum srdma_resource r)
{
	struct srdma_usage u;

	srdma_account_usage(a, r, &u);
	return u.used;
}

static uint64_t guaranteed(const struct srdma_account *a, enum srdma_resource r)
{
	struct srdma_usage u;

	srdma_account_usage(a, r, &u);
	return u.minimum;
}

static uint64_t refused(const struct srdma_account *a, enum srdma_resource r)
{
	struct srdma_usage u;

	srdma_account_usage(a, r, &u);
	return u.refused;
}

/* Takes one by one until that is refused. Returns how many it got. */
static unsigned take_all(struct srdma_account *a, enum srdma_resource r)
{
	unsigned n = 0;

	while (srdma_account_take(a, r, 1) == 0)
		n++;
	return n;
}

static void assert_why(const struct srdma_account *a, enum srdma_resource r,
		       uint64_t n, const char *expected)
{
	char text[512];

	srdma_account_why(a, r, n, text, sizeof(text));
	assert_string_equal(text, expected);
}

/* --- limits and minima ----------------------------------------------------- */

static void test_a_limit_refuses_its_account_only(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *greedy, *other;

	(void)state;
	set(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://x/greedy",
	    quota_of(QPS, 0, 32));
	greedy = open_in(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://x/greedy", NULL);
	other = open_in(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://x/other", NULL);
	assert_int_equal(take_all(greedy, QPS), 32);
	assert_int_equal(refused(greedy, QPS), 1);
	assert_why(greedy, QPS, 1,
		   "identity spiffe://x/greedy has 32 of at most 32 QPs: close "
		   "one, or ask the operator to raise qps in [quota] of the "
		   "agent's policy");
	assert_int_equal(srdma_account_is_short(greedy, QPS, 1), 0);
	assert_int_equal(take_all(other, QPS), 68);
	assert_int_equal(srdma_account_is_short(other, QPS, 1), 1);
	srdma_ledger_destroy(l);
}

/* RFC 5042 R6.4.1-1 */
static void test_a_minimum_survives_a_neighbour_who_takes_all(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *greedy, *named;

	(void)state;
	set(l, SRDMA_ACCOUNT_IDENTITY, "named",
	    quota_of(QPS, 20, SRDMA_QUOTA_DEFAULT));
	greedy = open_in(l, SRDMA_ACCOUNT_IDENTITY, "greedy", NULL);
	/* It is held back before the account has a user. */
	assert_int_equal(take_all(greedy, QPS), 80);
	assert_why(greedy, QPS, 1,
		   "identity greedy has 80 QPs, and the worker has its limit "
		   "of 100 QPs, of which 80 are used and the others held back: "
		   "close one, or ask the operator to raise --max-qps");
	named = open_in(l, SRDMA_ACCOUNT_IDENTITY, "named", NULL);
	assert_int_equal(srdma_account_room(named, QPS), 20);
	assert_int_equal(take_all(named, QPS), 20);
	/* Units that it gives back are its own again. */
	srdma_account_give(named, QPS, 5);
	assert_int_equal(take_all(greedy, QPS), 0);
	assert_int_equal(take_all(named, QPS), 5);
	/* Places above the minimum go to the reserve. */
	srdma_account_give(greedy, QPS, 1);
	assert_int_equal(take_all(named, QPS), 1);
	assert_int_equal(srdma_account_is_above(named, QPS), 1);
	srdma_account_give(named, QPS, 1);
	assert_int_equal(srdma_account_is_above(named, QPS), 0);
	assert_int_equal(take_all(greedy, QPS), 1);
	srdma_ledger_destroy(l);
}

static void test_newcomers_get_the_default_minimum(void **state)
{
	struct srdma_ledger *l = ledger_of(4096, 1);
	struct srdma_account *greedy = process(l, "greedy");
	char name[32];

	(void)state;
	assert_int_equal(take_all(greedy, QPS),
			 4096 - SRDMA_LEDGER_NEWCOMERS * 8);
	for (int i = 0; i < SRDMA_LEDGER_NEWCOMERS; i++) {
		struct srdma_account *a;

		snprintf(name, sizeof(name), "newcomer %d", i);
		a = process(l, name);
		assert_int_equal(guaranteed(a, QPS), 8);
		assert_int_equal(take_all(greedy, QPS), 0);
		assert_int_equal(take_all(a, QPS), 8);
	}
	/* For a further one nothing is left. */
	assert_int_equal(guaranteed(process(l, "late"), QPS), 0);
	assert_int_equal(take_all(process(l, "late"), QPS), 0);
	srdma_ledger_destroy(l);
}

static void test_small_capacities_have_no_default_minima(void **state)
{
	struct srdma_ledger *l = ledger_of(2, 1);
	struct srdma_account *a = process(l, "a");

	(void)state;
	assert_int_equal(guaranteed(a, QPS), 0);
	assert_int_equal(take_all(a, QPS), 2);
	srdma_ledger_destroy(l);
}

static void test_newcomers_take_at_most_an_eighth(void **state)
{
	struct srdma_ledger *l = ledger_of(800, 0);
	struct srdma_account *a;

	(void)state;
	set(l, SRDMA_ACCOUNT_PROCESS, "", quota_of(QPS, 50, 1000));
	a = process(l, "a");
	assert_int_equal(guaranteed(a, QPS), 50);
	assert_int_equal(take_all(a, QPS), 700);
	srdma_ledger_destroy(l);
}

static void test_sums_do_not_wrap(void **state)
{
	struct srdma_ledger *l = ledger_of(1000, 0);
	struct srdma_account *a = process(l, "a");

	(void)state;
	assert_int_equal(srdma_account_take(a, BYTES, 600), 0);
	assert_int_equal(srdma_account_take(a, BYTES, UINT64_MAX), -EDQUOT);
	assert_int_equal(srdma_account_take(a, BYTES, UINT64_MAX - 599),
			 -EDQUOT);
	assert_int_equal(srdma_account_take(a, BYTES, 401), -EDQUOT);
	assert_why(a, BYTES, 401,
		   "a has 600 bytes of registered memory, and 401 more were "
		   "asked for, and the worker has its limit of 1000 bytes of "
		   "registered memory, of which 600 are used and the others "
		   "held back: deregister some, or ask the operator to start "
		   "more --workers");
	assert_int_equal(used(a, BYTES), 600);
	assert_int_equal(srdma_account_take(a, BYTES, 400), 0);
	srdma_ledger_destroy(l);
}

static void test_a_side_does_not_use_the_capacity_of_the_other(void **state)
{
	struct srdma_ledger *l = ledger_of(10, 0);

	(void)state;
	assert_int_equal(take_all(process(l, "x"), QPS), 10);
	assert_int_equal(
		take_all(open_in(l, SRDMA_ACCOUNT_IDENTITY, "x", NULL), QPS),
		10);
	assert_int_equal(srdma_ledger_used(l, SRDMA_SIDE_LOCAL, QPS), 10);
	assert_int_equal(srdma_ledger_used(l, SRDMA_SIDE_REMOTE, QPS), 10);
	srdma_ledger_destroy(l);
}

static void test_a_lower_limit_ends_nothing(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *a = process(l, "a");

	(void)state;
	assert_int_equal(srdma_account_take(a, QPS, 50), 0);
	set(l, SRDMA_ACCOUNT_PROCESS, "", quota_of(QPS, 0, 10));
	assert_int_equal(used(a, QPS), 50);
	assert_int_equal(srdma_account_take(a, QPS, 1), -EDQUOT);
	assert_int_equal(srdma_account_room(a, QPS), 0);
	srdma_account_give(a, QPS, 41);
	assert_int_equal(srdma_account_room(a, QPS), 1);
	assert_int_equal(srdma_account_take(a, QPS, 1), 0);
	srdma_ledger_destroy(l);
}

/* --- groups ---------------------------------------------------------------- */

static void test_a_group_is_charged_too(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *host, *a, *b, *other;

	(void)state;
	set(l, SRDMA_ACCOUNT_GROUP, "host h",
	    quota_of(QPS, SRDMA_QUOTA_DEFAULT, 10));
	host = open_in(l, SRDMA_ACCOUNT_GROUP, "host h", NULL);
	a = open_in(l, SRDMA_ACCOUNT_PROGRAM, "a", host);
	b = open_in(l, SRDMA_ACCOUNT_PROGRAM, "b", host);
	other = open_in(l, SRDMA_ACCOUNT_PROGRAM, "other", NULL);
	assert_ptr_equal(srdma_account_parent(a), host);
	assert_int_equal(srdma_account_take(a, QPS, 7), 0);
	assert_int_equal(srdma_account_room(b, QPS), 3);
	assert_int_equal(srdma_account_take(b, QPS, 4), -EDQUOT);
	assert_int_equal(refused(b, QPS), 1);
	assert_int_equal(refused(host, QPS), 1);
	assert_why(b, QPS, 4,
		   "host h has 7 of at most 10 QPs, and 4 more were asked for: "
		   "close one, or ask the operator to raise qps in [quota] of "
		   "the agent's policy");
	assert_int_equal(srdma_account_take(b, QPS, 3), 0);
	assert_int_equal(used(host, QPS), 10);
	srdma_account_give(a, QPS, 7);
	assert_int_equal(used(host, QPS), 3);
	assert_int_equal(take_all(other, QPS), 97);
	srdma_ledger_destroy(l);
}

/* --- quotas and the end of accounts ---------------------------------------- */

static unsigned count_accounts(struct srdma_ledger *l)
{
	unsigned n = 0;
	uint64_t after = 0;
	const struct srdma_account *a;

	while ((a = srdma_ledger_next(l, after)) != NULL) {
		assert_true(srdma_account_serial(a) > after);
		after = srdma_account_serial(a);
		n++;
	}
	return n;
}

static void test_an_account_ends_with_its_last_user(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 1);
	struct srdma_account *host, *a;

	(void)state;
	host = open_in(l, SRDMA_ACCOUNT_GROUP, "host", NULL);
	a = open_in(l, SRDMA_ACCOUNT_PROGRAM, "a", host);
	srdma_account_close(host);
	assert_ptr_equal(open_in(l, SRDMA_ACCOUNT_PROGRAM, "a", host), a);
	/* The same name of another kind is another account. */
	assert_ptr_not_equal(process(l, "a"), a);
	assert_int_equal(count_accounts(l), 3);
	srdma_account_hold(a);
	srdma_account_close(a);
	srdma_account_close(a);
	assert_int_equal(count_accounts(l), 3);
	srdma_account_close(a);
	assert_int_equal(count_accounts(l), 1);
	srdma_account_close(NULL);
	srdma_ledger_destroy(l);
}

static void test_iteration_survives_the_end_of_accounts(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *a = process(l, "a"), *b = process(l, "b");
	struct srdma_account *c = process(l, "c");

	(void)state;
	assert_ptr_equal(srdma_ledger_next(l, 0), a);
	assert_ptr_equal(srdma_ledger_next(l, 1), b);
	srdma_account_close(b);
	assert_ptr_equal(srdma_ledger_next(l, 2), c);
	srdma_account_close(c);
	assert_null(srdma_ledger_next(l, 3));
	assert_ptr_equal(srdma_ledger_next(l, 0), a);
	assert_int_equal(srdma_account_serial(process(l, "d")), 4);
	srdma_ledger_destroy(l);
}

static void test_quotas_of_an_old_revision_are_removed(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	const struct srdma_quota q = quota_of(QPS, 30, 40);
	struct srdma_account *kept, *dropped;

	(void)state;
	set(l, SRDMA_ACCOUNT_PROGRAM, "kept", q);
	set(l, SRDMA_ACCOUNT_PROGRAM, "dropped", q);
	set(l, SRDMA_ACCOUNT_PROGRAM, "unused", q);
	dropped = open_in(l, SRDMA_ACCOUNT_PROGRAM, "dropped", NULL);
	assert_int_equal(srdma_account_take(dropped, QPS, 35), 0);
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_PROGRAM, "kept", &q, 2), 0);
	srdma_quota_prune(l, 2);
	assert_int_equal(count_accounts(l), 2);
	assert_int_equal(guaranteed(dropped, QPS), 0);
	kept = open_in(l, SRDMA_ACCOUNT_PROGRAM, "kept", NULL);
	assert_int_equal(take_all(dropped, QPS), 35);
	assert_int_equal(take_all(kept, QPS), 30);
	srdma_ledger_destroy(l);
}

static void test_quotas_that_cannot_be_are_refused(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	const struct srdma_quota above = quota_of(QPS, 11, 10),
				 group = quota_of(QPS, 1, 10),
				 plain = nothing_given();
	char name[SRDMA_ACCOUNT_NAME_LEN + 1];

	(void)state;
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_PROGRAM, "a", &above, 1),
		-EINVAL);
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_GROUP, "a", &group, 1),
		-EINVAL);
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_KINDS, "a", &plain, 1),
		-EINVAL);
	assert_int_equal(srdma_quota_set(l, 0, "a", &plain, 1), -EINVAL);
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_PROGRAM, name, &plain, 1),
		-ENOSPC);
	assert_int_equal(count_accounts(l), 0);
	for (int i = 0; i < SRDMA_LEDGER_QUOTAS; i++) {
		snprintf(name, sizeof(name), "%d", i);
		set(l, SRDMA_ACCOUNT_PROGRAM, name, plain);
	}
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_PROGRAM, "more", &plain, 1),
		-ENOSPC);
	assert_int_equal(count_accounts(l), SRDMA_LEDGER_QUOTAS);
	srdma_ledger_destroy(l);
}

static void test_accounts_are_limited(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *a;
	char name[32];

	(void)state;
	for (int i = 0; i < SRDMA_LEDGER_ACCOUNTS; i++) {
		snprintf(name, sizeof(name), "process %d", i);
		process(l, name);
	}
	assert_int_equal(
		srdma_account_open(l, SRDMA_ACCOUNT_PROCESS, "x", NULL, &a),
		-ENOSPC);
	assert_int_equal(
		srdma_account_open(l, SRDMA_ACCOUNT_PROCESS, name, NULL, &a),
		0);
	srdma_ledger_destroy(l);
}

static void test_limits_of_one_account_last_as_long_as_it(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	const struct srdma_quota q = quota_of(QPS, SRDMA_QUOTA_DEFAULT, 5);
	struct srdma_account *a;

	(void)state;
	set(l, SRDMA_ACCOUNT_PROGRAM, "a", quota_of(QPS, 10, 50));
	a = open_in(l, SRDMA_ACCOUNT_PROGRAM, "a", NULL);
	srdma_account_limit(a, &q);
	assert_int_equal(guaranteed(a, QPS), 5);
	assert_int_equal(take_all(a, QPS), 5);
	srdma_account_give(a, QPS, 5);
	srdma_account_close(a);
	a = open_in(l, SRDMA_ACCOUNT_PROGRAM, "a", NULL);
	assert_int_equal(guaranteed(a, QPS), 10);
	assert_int_equal(take_all(a, QPS), 50);
	srdma_ledger_destroy(l);
}

static void test_a_quota_replaces_limits_of_its_account(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *a =
		open_in(l, SRDMA_ACCOUNT_PROGRAM, "uid 1", NULL);
	struct srdma_quota q = quota_of(QPS, SRDMA_QUOTA_DEFAULT, 5);

	(void)state;
	q.of[BYTES].limit = 3;
	srdma_account_limit(a, &q);
	set(l, SRDMA_ACCOUNT_PROGRAM, "", quota_of(QPS, 0, 9));
	assert_int_equal(take_all(a, QPS), 5);
	set(l, SRDMA_ACCOUNT_PROGRAM, "uid 1", quota_of(QPS, 0, 7));
	assert_int_equal(take_all(a, QPS), 2);
	assert_int_equal(take_all(a, BYTES), 3); /* this one it does not give */
	srdma_account_give(a, QPS, 7);
	srdma_account_give(a, BYTES, 3);
	srdma_account_close(a);
	srdma_ledger_destroy(l);
}

/* --- minima that are short ------------------------------------------------- */

/* RFC 5042 R6.4.1-1 */
static void test_a_minimum_is_topped_up_in_turn(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *greedy = process(l, "greedy"), *a, *b;

	(void)state;
	assert_int_equal(take_all(greedy, QPS), 100);
	set(l, SRDMA_ACCOUNT_PROCESS, "a", quota_of(QPS, 20, 100));
	set(l, SRDMA_ACCOUNT_PROCESS, "b", quota_of(QPS, 10, 100));
	a = process(l, "a");
	b = process(l, "b");
	assert_int_equal(guaranteed(a, QPS), 0);
	srdma_account_give(greedy, QPS, 5);
	assert_int_equal(guaranteed(a, QPS), 5);
	assert_int_equal(take_all(greedy, QPS), 0);
	srdma_account_give(greedy, QPS, 16);
	assert_int_equal(guaranteed(a, QPS), 20);
	assert_int_equal(guaranteed(b, QPS), 1);
	srdma_account_give(greedy, QPS, 19);
	assert_int_equal(guaranteed(b, QPS), 10);
	/* The rest is the reserve again. */
	assert_int_equal(take_all(greedy, QPS), 10);
	assert_int_equal(take_all(a, QPS), 20);
	assert_int_equal(take_all(b, QPS), 10);
	srdma_ledger_destroy(l);
}

/* Also what other guarantees held back tops a minimum up. */
static void test_the_guarantee_of_another_tops_a_minimum_up(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *a, *b;

	(void)state;
	set(l, SRDMA_ACCOUNT_PROCESS, "a", quota_of(QPS, 80, 100));
	set(l, SRDMA_ACCOUNT_PROCESS, "b", quota_of(QPS, 80, 100));
	a = process(l, "a");
	b = process(l, "b");
	assert_int_equal(guaranteed(b, QPS), 20);
	set(l, SRDMA_ACCOUNT_PROCESS, "a", quota_of(QPS, 60, 100));
	assert_int_equal(guaranteed(b, QPS), 40);
	/* The one in the queue changes, and leaves it. */
	set(l, SRDMA_ACCOUNT_PROCESS, "b", quota_of(QPS, 30, 100));
	assert_int_equal(guaranteed(b, QPS), 30);
	set(l, SRDMA_ACCOUNT_PROCESS, "b", quota_of(QPS, 90, 100));
	assert_int_equal(guaranteed(b, QPS), 40);
	assert_int_equal(
		srdma_quota_set(l, SRDMA_ACCOUNT_PROCESS, "b",
				&(struct srdma_quota){
					.of[SRDMA_RES_QPS] = { 90, 90 } },
				2),
		0);
	srdma_quota_prune(l, 2);
	assert_int_equal(guaranteed(a, QPS), 0);
	assert_int_equal(guaranteed(b, QPS), 90);
	srdma_ledger_destroy(l);
}

static void test_an_account_that_ends_is_not_topped_up(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *greedy = process(l, "greedy"), *short_[3];

	(void)state;
	assert_int_equal(take_all(greedy, QPS), 100);
	set(l, SRDMA_ACCOUNT_PROCESS, "", quota_of(QPS, 5, 100));
	for (int i = 0; i < 3; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%d", i);
		short_[i] = process(l, name);
		assert_int_equal(guaranteed(short_[i], QPS), 0);
	}
	srdma_account_close(short_[1]);
	srdma_account_close(short_[2]);
	srdma_account_give(greedy, QPS, 6);
	assert_int_equal(guaranteed(short_[0], QPS), 5);
	short_[1] = process(l, "1");
	assert_int_equal(guaranteed(short_[1], QPS), 1);
	srdma_ledger_destroy(l);
}

/*
 * Any number of identities of one trust domain hold back half of the capacity.
 * A quota with a name has the rest, and those that hold nothing get what is
 * free.
 */
/* RFC 5042 R3-2, R6.4.1-1 */
static void test_minima_without_a_name_have_half_of_the_capacity(void **state)
{
	struct srdma_ledger *l = ledger_of(400, 0);
	struct srdma_account *a[60], *named, *greedy;
	uint64_t sum = 0;

	(void)state;
	set(l, SRDMA_ACCOUNT_IDENTITY, "",
	    quota_of(QPS, 8, SRDMA_QUOTA_DEFAULT));
	for (int i = 0; i < 60; i++) {
		char name[24];

		snprintf(name, sizeof(name), "spiffe://x/%d", i);
		a[i] = open_in(l, SRDMA_ACCOUNT_IDENTITY, name, NULL);
		sum += guaranteed(a[i], QPS);
	}
	assert_int_equal(sum, 200);
	set(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://y/named",
	    quota_of(QPS, 100, SRDMA_QUOTA_DEFAULT));
	named = open_in(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://y/named", NULL);
	assert_int_equal(guaranteed(named, QPS), 100);
	/* Above their minima accounts leave an eighth to newcomers. */
	greedy = open_in(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://y/greedy", NULL);
	assert_int_equal(guaranteed(greedy, QPS), 0);
	assert_int_equal(take_all(greedy, QPS), 100 - 50);
	assert_int_equal(take_all(a[59], QPS), 8);
	/* The pool goes on to those that wait, and not to others. */
	srdma_account_close(a[0]);
	assert_int_equal(guaranteed(a[25], QPS), 8);
	assert_int_equal(guaranteed(a[26], QPS), 0);
	/* An account that gets a quota of its own leaves the pool. */
	set(l, SRDMA_ACCOUNT_IDENTITY, "spiffe://x/1", quota_of(QPS, 8, 100));
	assert_int_equal(guaranteed(a[1], QPS), 8);
	assert_int_equal(guaranteed(a[26], QPS), 8);
	assert_int_equal(guaranteed(a[27], QPS), 0);
	srdma_ledger_destroy(l);
}

static void test_an_absent_account_holds_back_its_own_minima_only(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_account *a, *other = process(l, "other");

	(void)state;
	set(l, SRDMA_ACCOUNT_PROCESS, "", quota_of(QPS, 2, 98));
	for (int i = 0; i < 50; i++) {
		char name[24];

		snprintf(name, sizeof(name), "absent %d", i);
		set(l, SRDMA_ACCOUNT_PROCESS, name, quota_of(BYTES, 0, 9));
	}
	set(l, SRDMA_ACCOUNT_PROCESS, "here", quota_of(QPS, 4, 98));
	assert_int_equal(take_all(other, QPS), 100 - 4 - 12);
	a = process(l, "absent 0");
	assert_int_equal(guaranteed(a, QPS), 2);
	assert_int_equal(take_all(a, QPS), 2);
	srdma_account_give(a, QPS, 2);
	srdma_account_close(a);
	assert_int_equal(guaranteed(a, QPS), 0);
	srdma_account_give(other, QPS, 100 - 4 - 12);
	srdma_account_close(other);
	srdma_ledger_destroy(l);
}

static void test_the_idle_time_is_that_of_the_name_or_kind(void **state)
{
	struct srdma_ledger *l = ledger_of(100, 0);
	struct srdma_quota q = nothing_given();
	struct srdma_account *a = process(l, "a"), *b = process(l, "b");

	(void)state;
	assert_int_equal(srdma_account_idle(a), 0);
	q.idle = 60;
	set(l, SRDMA_ACCOUNT_PROCESS, "", q);
	q.idle = 5;
	set(l, SRDMA_ACCOUNT_PROCESS, "b", q);
	assert_int_equal(srdma_account_idle(a), 60);
	assert_int_equal(srdma_account_idle(b), 5);
	srdma_ledger_destroy(l);
}

static void test_every_resource_has_a_name(void **state)
{
	(void)state;
	for (int r = 0; r < SRDMA_RESOURCES; r++) {
		assert_non_null(srdma_resource((enum srdma_resource)r)->name);
	}
}

/* --- random calls against a model ------------------------------------------ */

enum { ACCOUNTS = 12, CAPACITY = 300, STEPS = 200000 };

static uint32_t draw(uint32_t *seed, uint32_t below)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 8) % below;
}

struct model {
	struct srdma_ledger *l;
	struct srdma_account *group;
	struct srdma_account *a[ACCOUNTS]; /* NULL: closed */
	uint64_t used[ACCOUNTS];
	uint64_t limit[ACCOUNTS];
	uint64_t minimum[ACCOUNTS];
	uint64_t group_limit;
};

/* Every third account has no quota of its own. */
static int is_pooled(unsigned i)
{
	return i % 3 == 0;
}

/* Odd accounts are in the group. */
static int in_group(unsigned i)
{
	return i % 2;
}

static uint64_t sum_of(const struct model *m, int only_group)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < ACCOUNTS; i++)
		sum += !only_group || in_group(i) ? m->used[i] : 0;
	return sum;
}

/* The rule of 3.10, from the answers of the ledger. */
static void assert_rule(const struct model *m)
{
	uint64_t sum = 0, unused = 0;

	for (unsigned i = 0; i < ACCOUNTS; i++) {
		struct srdma_usage u = { 0 };

		if (m->a[i])
			srdma_account_usage(m->a[i], QPS, &u);
		assert_int_equal(u.used, m->used[i]);
		sum += u.used;
		unused += u.minimum > u.used ? u.minimum - u.used : 0;
	}
	assert_int_equal(srdma_ledger_used(m->l, SRDMA_SIDE_LOCAL, QPS), sum);
	assert_int_equal(used(m->group, QPS), sum_of(m, 1));
	assert_true(sum + unused <= CAPACITY);
}

/* Guarantees of all accounts, also of unused ones, from the ledger. */
static void sums_of(struct srdma_ledger *l, uint64_t *charged, uint64_t *pooled)
{
	const struct srdma_account *a = NULL;
	struct srdma_usage u;

	*charged = *pooled = 0;
	while ((a = srdma_ledger_next(l, a ? srdma_account_serial(a) : 0))) {
		if (srdma_account_kind(a) == SRDMA_ACCOUNT_GROUP)
			continue;
		srdma_account_usage(a, QPS, &u);
		*charged += u.used > u.minimum ? u.used : u.minimum;
		if (is_pooled((unsigned)atoi(srdma_account_name(a))))
			*pooled += u.minimum;
	}
}

/* A minimum is short only while there is no room for it. */
static void assert_topped_up(const struct model *m)
{
	uint64_t charged, pooled;

	sums_of(m->l, &charged, &pooled);
	assert_true(charged <= CAPACITY && pooled <= CAPACITY / 2);
	for (unsigned i = 0; i < ACCOUNTS; i++) {
		if (!m->a[i] || guaranteed(m->a[i], QPS) >= m->minimum[i])
			continue;
		assert_true(charged == CAPACITY ||
			    (is_pooled(i) && pooled == CAPACITY / 2));
	}
}

static void step_take(struct model *m, unsigned i, uint64_t n)
{
	const uint64_t room = srdma_account_room(m->a[i], QPS);
	const uint64_t sure = guaranteed(m->a[i], QPS);
	int over = m->used[i] + n > m->limit[i] ||
		   (in_group(i) && sum_of(m, 1) + n > m->group_limit);
	int rc = srdma_account_take(m->a[i], QPS, n);

	assert_int_equal(rc == 0, n <= room);
	if (over)
		assert_int_equal(rc, -EDQUOT);
	else if (m->used[i] + n <= sure)
		assert_int_equal(rc, 0); /* a guarantee does not fail */
	if (!rc)
		m->used[i] += n;
}

static void step_quota(struct model *m, unsigned i, uint32_t *seed)
{
	const uint64_t limit = 20 + draw(seed, 100);
	const uint64_t minimum = draw(seed, 20);
	char name[16];

	if (is_pooled(i))
		return;
	snprintf(name, sizeof(name), "%u", i);
	set(m->l, SRDMA_ACCOUNT_PROGRAM, name, quota_of(QPS, minimum, limit));
	m->limit[i] = limit;
	m->minimum[i] = minimum;
}

static void step_end(struct model *m, unsigned i)
{
	srdma_account_give(m->a[i], QPS, m->used[i]);
	srdma_account_close(m->a[i]);
	m->a[i] = NULL;
	m->used[i] = 0;
}

static void step(struct model *m, uint32_t *seed)
{
	const unsigned i = draw(seed, ACCOUNTS), what = draw(seed, 100);
	char name[16];

	if (!m->a[i]) {
		snprintf(name, sizeof(name), "%u", i);
		m->a[i] = open_in(m->l, SRDMA_ACCOUNT_PROGRAM, name,
				  in_group(i) ? m->group : NULL);
	} else if (what < 55) {
		step_take(m, i, 1 + draw(seed, 12));
	} else if (what < 95 && m->used[i]) {
		const uint64_t n = 1 + draw(seed, (uint32_t)m->used[i]);

		srdma_account_give(m->a[i], QPS, n);
		m->used[i] -= n;
	} else if (what < 98) {
		step_quota(m, i, seed);
	} else {
		step_end(m, i);
	}
}

/* RFC 5042 R3-4 */
static void test_random_calls_keep_the_rule(void **state)
{
	struct model m = { .l = ledger_of(CAPACITY, 1), .group_limit = 120 };
	uint32_t seed = 16;

	(void)state;
	set(m.l, SRDMA_ACCOUNT_GROUP, "g",
	    quota_of(QPS, SRDMA_QUOTA_DEFAULT, m.group_limit));
	m.group = open_in(m.l, SRDMA_ACCOUNT_GROUP, "g", NULL);
	set(m.l, SRDMA_ACCOUNT_PROGRAM, "",
	    quota_of(QPS, 50, SRDMA_QUOTA_DEFAULT));
	for (unsigned i = 0; i < ACCOUNTS; i++) {
		m.limit[i] = SRDMA_QUOTA_DEFAULT;
		m.minimum[i] = 50;
		step_quota(&m, i, &seed);
	}
	for (int i = 0; i < STEPS; i++) {
		step(&m, &seed);
		assert_rule(&m);
		assert_topped_up(&m);
	}
	for (unsigned i = 0; i < ACCOUNTS; i++)
		if (m.a[i])
			step_end(&m, i);
	assert_rule(&m);
	assert_int_equal(srdma_ledger_used(m.l, SRDMA_SIDE_LOCAL, QPS), 0);
	srdma_ledger_destroy(m.l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_limit_refuses_its_account_only),
		cmocka_unit_test(
			test_a_minimum_survives_a_neighbour_who_takes_all),
		cmocka_unit_test(test_newcomers_get_the_default_minimum),
		cmocka_unit_test(test_small_capacities_have_no_default_minima),
		cmocka_unit_test(test_newcomers_take_at_most_an_eighth),
		cmocka_unit_test(test_sums_do_not_wrap),
		cmocka_unit_test(
			test_a_side_does_not_use_the_capacity_of_the_other),
		cmocka_unit_test(test_a_lower_limit_ends_nothing),
		cmocka_unit_test(test_a_group_is_charged_too),
		cmocka_unit_test(test_an_account_ends_with_its_last_user),
		cmocka_unit_test(test_iteration_survives_the_end_of_accounts),
		cmocka_unit_test(test_quotas_of_an_old_revision_are_removed),
		cmocka_unit_test(test_quotas_that_cannot_be_are_refused),
		cmocka_unit_test(test_accounts_are_limited),
		cmocka_unit_test(test_limits_of_one_account_last_as_long_as_it),
		cmocka_unit_test(test_a_quota_replaces_limits_of_its_account),
		cmocka_unit_test(
			test_an_absent_account_holds_back_its_own_minima_only),
		cmocka_unit_test(
			test_the_idle_time_is_that_of_the_name_or_kind),
		cmocka_unit_test(test_every_resource_has_a_name),
		cmocka_unit_test(test_a_minimum_is_topped_up_in_turn),
		cmocka_unit_test(
			test_the_guarantee_of_another_tops_a_minimum_up),
		cmocka_unit_test(test_an_account_that_ends_is_not_topped_up),
		cmocka_unit_test(
			test_minima_without_a_name_have_half_of_the_capacity),
		cmocka_unit_test(test_random_calls_keep_the_rule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
