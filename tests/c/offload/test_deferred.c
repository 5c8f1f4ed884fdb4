/*
 * Responses that wait for the relay (offload/deferred.h): WAITs cost nothing
 * while no QP changes, a poll has a bound however many wait, and adding and
 * forgetting an item costs the same however many there are.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "deferred.h"
#include "requests.h"
#include "support/relay_pair.h"

enum { MANY = 3 * DEFERRED_LOOKS + 10, QPS = 4 };

struct scene {
	struct pair pair;
	struct legs legs;
	struct deferred_list list;
	unsigned answers, failures;
	uint32_t state; /* of the last answer */
	int status;	/* of it */
};

static void take_answer(void *ctx, const struct deferred *d,
			struct srdma_ctl_msg *out, int rc)
{
	struct scene *s = ctx;

	s->answers++;
	s->failures += rc < 0;
	s->status = rc;
	if (d->kind == SRDMA_CTL_WAIT)
		s->state = rc < 0 ? 0 : out->wait.state;
}

static void scene_open(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	pair_defaults(&s->pair);
	pair_open(&s->pair);
	for (int i = 0; i < QPS; i++)
		pair_init_qp(&s->pair, i);
	s->legs.relay = s->pair.side[0].relay;
	deferred_init(&s->list);
	s->list.legs = &s->legs;
	s->list.answer = take_answer;
	s->list.ctx = s;
}

static void scene_close(struct scene *s)
{
	deferred_clear(&s->list);
	pair_close(&s->pair);
}

static void add_with(struct scene *s, uint16_t kind, uint32_t number,
		     uint64_t ticket, struct client *client)
{
	const struct deferred d = {
		.client = client,
		.kind = kind,
		.leg = srdma_relay_leg_id(s->pair.side[0].leg),
		.number = number,
		.ticket = ticket,
	};

	if (kind == SRDMA_CTL_RESET)
		deferred_cancel_reset(&s->list, d.leg, d.number);
	assert_int_equal(deferred_add(&s->list, &d), 0);
}

static void add(struct scene *s, uint16_t kind, uint32_t number,
		struct client *client)
{
	add_with(s, kind, number, 0, client);
}

static void wait_for(struct scene *s, int i, struct client *client)
{
	add(s, SRDMA_CTL_WAIT, s->pair.side[0].qp[i].qpn, client);
}

static void connect_qp(struct scene *s, int i)
{
	struct srdma_qp_keys k;

	for (int side = 1; side >= 0; side--) {
		pair_keys(&s->pair, side, i, &k);
		assert_int_equal(srdma_relay_qp_keys(s->pair.side[side].relay,
						     s->pair.side[side].leg,
						     &k),
				 0);
	}
	pair_settle(&s->pair);
}

static void destroy_qp(struct scene *s, int i)
{
	const struct side *side = &s->pair.side[0];

	while (srdma_relay_qp_destroy(side->relay, side->leg, side->qp[i].qpn))
		pair_run(&s->pair, 1);
}

/* A poll answers at most DEFERRED_LOOKS of them; later polls go on without a
 * further change. */
static void test_a_poll_has_a_bound(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s);
	for (int n = 0; n < MANY; n++)
		wait_for(&s, 0, NULL);
	assert_int_equal(deferred_poll(&s.list), MANY);
	connect_qp(&s, 0);
	for (unsigned n = 1; n <= 3; n++) {
		assert_int_equal(deferred_poll(&s.list),
				 MANY - n * DEFERRED_LOOKS);
		assert_int_equal(s.answers, n * DEFERRED_LOOKS);
	}
	assert_int_equal(deferred_poll(&s.list), 0);
	assert_int_equal(s.answers, MANY);
	assert_int_equal(s.state, SRDMA_QP_RTS);
	scene_close(&s);
}

/* The QP that changed is found behind many that did not. */
static void test_waits_behind_others_are_answered(void **state)
{
	struct scene s;
	unsigned polls = 0;

	(void)state;
	scene_open(&s);
	for (int n = 0; n < MANY; n++)
		wait_for(&s, 0, NULL);
	wait_for(&s, 1, NULL);
	deferred_poll(&s.list);
	connect_qp(&s, 1);
	for (; !s.answers && polls < 10; polls++)
		deferred_poll(&s.list);
	assert_in_range(polls, 2, MANY / DEFERRED_LOOKS + 1);
	assert_int_equal(s.failures, 0);
	scene_close(&s);
}

/* Each event that ends a WAIT is a change. */
static void test_all_that_ends_a_wait_is_noticed(void **state)
{
	struct scene s;
	uint32_t reason;

	(void)state;
	scene_open(&s);
	for (int i = 0; i < QPS; i++)
		wait_for(&s, i, NULL);
	assert_int_equal(deferred_poll(&s.list), QPS);
	connect_qp(&s, 0); /* RTS */
	assert_int_equal(deferred_poll(&s.list), QPS - 1);
	assert_int_equal(s.state, SRDMA_QP_RTS);
	assert_int_equal(srdma_relay_qp_end(s.pair.side[0].relay,
					    s.pair.side[0].leg,
					    s.pair.side[0].qp[1].qpn,
					    SRDMA_REASON_WIRE_LOST),
			 0);
	pair_settle(&s.pair);
	assert_int_equal(deferred_poll(&s.list), QPS - 2);
	assert_int_equal(pair_state(&s.pair, 0, 1, &reason), SRDMA_QP_ERR);
	assert_int_equal(s.state, SRDMA_QP_ERR);
	destroy_qp(&s, 2);
	assert_int_equal(deferred_poll(&s.list), QPS - 3);
	assert_int_equal(s.failures, 1);
	srdma_relay_leg_close(s.pair.side[0].leg);
	assert_int_equal(deferred_poll(&s.list), 0);
	assert_int_equal(s.failures, 2);
	scene_close(&s);
}

/* A client that leaves takes its WAITs along, in whatever order they are. */
static void test_a_client_that_leaves_is_forgotten(void **state)
{
	struct client staying = { 0 }, leaving = { 0 };
	struct scene s;

	(void)state;
	scene_open(&s);
	for (int n = 0; n < MANY; n++)
		wait_for(&s, 0, n % 3 ? &staying : &leaving);
	connect_qp(&s, 0);
	deferred_poll(&s.list);
	deferred_leave(&s.list, &leaving);
	while (deferred_poll(&s.list))
		;
	assert_in_range(s.answers, MANY * 2 / 3, MANY - 1);
	deferred_leave(&s.list, &staying);
	assert_int_equal(deferred_poll(&s.list), 0);
	scene_close(&s);
}

/* While the QP has not sent its CLOSE, one item of it is left. */
static void test_a_repeated_destroy_is_finished_once(void **state)
{
	struct client first = { 0 }, second = { 0 }, third = { 0 };
	struct scene s;
	uint32_t qpn;

	(void)state;
	scene_open(&s);
	connect_qp(&s, 0);
	qpn = s.pair.side[0].qp[0].qpn;
	add(&s, SRDMA_CTL_DESTROY, qpn, &first);
	add(&s, SRDMA_CTL_DESTROY, qpn, &second);
	add(&s, SRDMA_CTL_DESTROY, 0, &third);	  /* no QP has this number */
	add(&s, SRDMA_CTL_DEREG_MR, qpn, &third); /* another kind of object */
	assert_int_equal(deferred_poll(&s.list), 2);
	assert_int_equal(s.answers, 2);
	deferred_leave(&s.list, &first);
	assert_int_equal(deferred_poll(&s.list), 2);
	deferred_leave(&s.list, &second);
	assert_int_equal(deferred_poll(&s.list), 1);
	add(&s, SRDMA_CTL_DESTROY, qpn, &second);
	deferred_leave(&s.list, &second);
	assert_int_equal(deferred_poll(&s.list), 1);
	while (deferred_poll(&s.list))
		pair_run(&s.pair, 1);
	assert_int_equal(s.answers, 3); /* the last one has no client */
	scene_close(&s);
}

static void add_reset(struct scene *s, int i, uint32_t posted,
		      struct client *client)
{
	add_with(s, SRDMA_CTL_RESET, s->pair.side[0].qp[i].qpn, posted, client);
}

/* A newer RESET of the QP cancels the one that waits. It is forgotten with its
 * client. */
static void test_one_reset_of_a_qp_waits(void **state)
{
	struct client first = { 0 }, second = { 0 };
	struct scene s;

	(void)state;
	scene_open(&s);
	add_reset(&s, 0, 1, &first);
	add_reset(&s, 1, 1, &first);
	assert_int_equal(deferred_poll(&s.list), 2);
	for (int n = 0; n < 3; n++)
		add_reset(&s, 0, 1, &second);
	assert_int_equal(s.answers, 0);
	assert_int_equal(deferred_poll(&s.list), 2);
	assert_int_equal(s.answers, 3);
	assert_int_equal(s.failures, 3);
	assert_int_equal(s.status, -ECANCELED);
	deferred_leave(&s.list, &first);
	assert_int_equal(deferred_poll(&s.list), 1);
	add_reset(&s, 0, 0, &second); /* no descriptor is missing */
	while (deferred_poll(&s.list))
		pair_run(&s.pair, 1);
	assert_int_equal(s.answers, 5);
	assert_int_equal(s.failures, 4);
	add_reset(&s, 2, 1, &second);
	deferred_leave(&s.list, &second);
	assert_int_equal(deferred_poll(&s.list), 0);
	assert_int_equal(s.answers, 5);
	scene_close(&s);
}

/* Both are answered. */
static void test_a_reset_of_a_qp_that_is_destroyed(void **state)
{
	struct client client = { 0 };
	struct scene s;

	(void)state;
	scene_open(&s);
	add_reset(&s, 0, 1, &client);
	assert_int_equal(
		deferred_add(
			&s.list,
			&(struct deferred){
				.client = &client,
				.kind = SRDMA_CTL_DESTROY,
				.leg = srdma_relay_leg_id(s.pair.side[0].leg),
				.number = s.pair.side[0].qp[0].qpn,
			}),
		0);
	while (deferred_poll(&s.list))
		pair_run(&s.pair, 1);
	assert_int_equal(s.answers, 2);
	assert_int_equal(s.failures, 1);
	assert_int_equal(s.status, -ENOENT);
	scene_close(&s);
}

/* A RESET whose descriptors do not come has an answer after 5 s, and may be
 * repeated. */
static void test_a_reset_has_a_limit_of_time(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s);
	add_reset(&s, 0, 1, NULL);
	pair_wait_ms(&s.pair, 4900);
	assert_int_equal(deferred_poll(&s.list), 1);
	pair_wait_ms(&s.pair, 200);
	assert_int_equal(deferred_poll(&s.list), 0);
	assert_int_equal(s.status, -ETIMEDOUT);
	add_reset(&s, 0, 1, NULL);
	pair_wait_ms(&s.pair, 1);
	assert_int_equal(deferred_poll(&s.list), 1);
	add_reset(&s, 0, 0, NULL);
	assert_int_equal(deferred_poll(&s.list), 0);
	assert_int_equal(s.answers, 3);
	assert_int_equal(s.status, 0);
	scene_close(&s);
}

/*
 * If adding or forgetting an item examined the other items, this test would take
 * 9 * 10^10 steps. SIGALRM ends it then.
 */
static void test_items_are_added_and_forgotten_without_a_search(void **state)
{
	enum { ITEMS = 300000, LIMIT = 60 /* s */ };
	struct client *clients = calloc(ITEMS, sizeof(*clients));
	struct scene s;

	(void)state;
	assert_non_null(clients);
	scene_open(&s);
	alarm(LIMIT);
	for (unsigned i = 0; i < ITEMS; i++)
		add(&s, SRDMA_CTL_DEREG_MR, i, &clients[i]);
	for (unsigned i = ITEMS; i-- > 0;)
		add(&s, SRDMA_CTL_DEREG_MR, i, &clients[i]);
	assert_int_equal(s.list.others_count, 2 * ITEMS);
	for (unsigned i = ITEMS; i-- > 0;)
		deferred_leave(&s.list, &clients[i]);
	assert_int_equal(s.list.others_count, ITEMS);
	alarm(0);
	scene_close(&s);
	free(clients);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_poll_has_a_bound),
		cmocka_unit_test(test_waits_behind_others_are_answered),
		cmocka_unit_test(test_all_that_ends_a_wait_is_noticed),
		cmocka_unit_test(test_a_client_that_leaves_is_forgotten),
		cmocka_unit_test(test_a_repeated_destroy_is_finished_once),
		cmocka_unit_test(test_one_reset_of_a_qp_waits),
		cmocka_unit_test(test_a_reset_of_a_qp_that_is_destroyed),
		cmocka_unit_test(test_a_reset_has_a_limit_of_time),
		cmocka_unit_test(
			test_items_are_added_and_forgotten_without_a_search),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
