/*
 * Responses that wait for the relay (offload/deferred.h): WAITs cost nothing
 * while no QP changes, and a poll has a bound however many wait.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

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
};

static void take_answer(void *ctx, const struct deferred *d,
			struct srdma_ctl_msg *out, int rc)
{
	struct scene *s = ctx;

	assert_int_equal(d->kind, SRDMA_CTL_WAIT);
	s->answers++;
	s->failures += rc < 0;
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

static void wait_for(struct scene *s, int i, struct client *client)
{
	const struct deferred d = {
		.client = client,
		.kind = SRDMA_CTL_WAIT,
		.leg = srdma_relay_leg_id(s->pair.side[0].leg),
		.number = s->pair.side[0].qp[i].qpn,
	};

	assert_int_equal(deferred_add(&s->list, &d), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_poll_has_a_bound),
		cmocka_unit_test(test_waits_behind_others_are_answered),
		cmocka_unit_test(test_all_that_ends_a_wait_is_noticed),
		cmocka_unit_test(test_a_client_that_leaves_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
