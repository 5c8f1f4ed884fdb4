/*
 * Read chunks: filled by responses and requested again after loss
 * (docs/protocol.md 5.3).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "requester/read_chunk.h"

enum { MTU = 1000, ID = 7 };

static uint64_t now = 5;
static struct srdma_table_memory memory;

static void open_parts(struct srdma_read_chunks *t, uint32_t size, int ordered)
{
	srdma_read_chunk_create(t, &memory, size);
	t->mtu = MTU;
	t->results = size;
	t->ordered = ordered;
}

/* A read chunk whose request was sent and executed. */
static struct srdma_read_chunk *ask(struct srdma_read_chunks *t, uint64_t id,
				    uint32_t start, uint32_t end)
{
	struct srdma_read_chunk *p = srdma_read_chunk_add(t, id, start, end);

	assert_non_null(p);
	assert_ptr_equal(srdma_read_chunk_find(t, id, start, end), p);
	srdma_read_chunk_asked(t, p, 40 + id, 0);
	srdma_read_chunk_executed(p, 0);
	return p;
}

static int answer(struct srdma_read_chunks *t, uint64_t id, uint32_t offset,
		  uint32_t len)
{
	const struct srdma_read_chunk_response a = { .request_id = id,
						     .offset = offset,
						     .len = len,
						     .now = now,
						     .patience = 100 };
	uint64_t flight = 0;
	int err = srdma_read_chunk_fill(t, &a, &flight);

	assert_true(err || flight == 40 + id || flight == SRDMA_NO_FLIGHT);
	return err;
}

/* Expects the next range that is requested again, and marks it as sent. */
static void expect_again(struct srdma_read_chunks *t, uint64_t id,
			 uint32_t from, uint32_t until)
{
	struct srdma_read_chunk *p = srdma_read_chunk_next(t);

	assert_non_null(p);
	assert_int_equal(p->request_id, id);
	assert_int_equal(p->from, from);
	assert_int_equal(p->until, until);
	assert_ptr_equal(srdma_read_chunk_find(t, id, from, until), p);
	srdma_read_chunk_asked(t, p, SRDMA_NO_FLIGHT, 9);
	assert_int_equal(t->tail->from, from);
}

static void expect_empty(struct srdma_read_chunks *t)
{
	assert_null(srdma_read_chunk_next(t));
	assert_int_equal(t->count, 0);
	assert_int_equal(t->due, 0);
	assert_int_equal(t->wanted, 0);
}

/* review A11 */
static void test_responses_in_any_order(void **state)
{
	static const uint32_t order[] = { 2, 0, 4, 1, 3 };
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 4, 0);
	ask(&t, ID, 3000, 7500);
	assert_int_equal(t.due, 5);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t len = order[i] == 4 ? 500 : MTU;

		assert_int_equal(answer(&t, ID, 3000 + order[i] * MTU, len), 0);
		assert_int_equal(answer(&t, ID, 3000 + order[i] * MTU, len),
				 -ENOENT);
	}
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/* A response that does not match an outstanding range is refused. */
/* RFC 5042 A6.2.1 */
static void test_unexpected_responses_are_refused(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 4, 1);
	srdma_read_chunk_add(&t, ID, 3000, 7500);
	assert_int_equal(answer(&t, ID, 3000, MTU), -ENOENT); /* not sent yet */
	srdma_read_chunk_asked(&t, t.head, 40 + ID, 0);
	assert_int_equal(answer(&t, ID + 1, 3000, MTU), -ENOENT);
	assert_int_equal(answer(&t, ID, 2000, MTU), -ENOENT);
	assert_int_equal(answer(&t, ID, 3001, MTU), -ENOENT);
	assert_int_equal(answer(&t, ID, 3000, MTU - 1), -ENOENT);
	assert_int_equal(answer(&t, ID, 3000, 2 * MTU), -ENOENT);
	assert_int_equal(answer(&t, ID, 3000, 0), -ENOENT);
	assert_int_equal(answer(&t, ID, 7000, MTU), -ENOENT);
	assert_int_equal(answer(&t, ID, 7500, 0), -ENOENT);
	assert_int_equal(answer(&t, ID, UINT32_MAX, 1), -ENOENT);
	assert_int_equal(t.due, 5);
	srdma_read_chunk_clear(&t);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

static void test_empty_read(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 1, 1);
	ask(&t, ID, 0, 0);
	assert_null(srdma_read_chunk_add(&t, ID + 1, 0, 0));
	assert_int_equal(answer(&t, ID, 0, 1), -ENOENT);
	assert_int_equal(answer(&t, ID, 1, 0), -ENOENT);
	srdma_read_chunk_lose(&t);
	expect_again(&t, ID, 0, 0);
	assert_int_equal(answer(&t, ID, 0, 0), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/* When the last response has arrived, each missing range is requested. */
static void test_missing_ranges_are_requested_again(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 4, 1);
	ask(&t, ID, 0, 8000);
	assert_int_equal(answer(&t, ID, 1000, MTU), 0);
	assert_int_equal(answer(&t, ID, 4000, MTU), 0);
	assert_null(srdma_read_chunk_next(&t));
	assert_int_equal(answer(&t, ID, 7000, MTU), 0);
	assert_int_equal(t.count, 3);
	assert_int_equal(t.due, 5);
	expect_again(&t, ID, 0, 1000);
	expect_again(&t, ID, 2000, 4000);
	expect_again(&t, ID, 5000, 7000);
	assert_int_equal(answer(&t, ID, 4000, MTU), -ENOENT);
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	assert_int_equal(answer(&t, ID, 2000, MTU), 0);
	assert_int_equal(answer(&t, ID, 3000, MTU), 0);
	assert_int_equal(answer(&t, ID, 5000, MTU), 0);
	assert_int_equal(answer(&t, ID, 6000, MTU), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/*
 * The peer has one response slot: missing ranges are requested one after the
 * other.
 */
/* RFC 5042 R6.4.3.3-2 */
static void test_one_slot_requests_ranges_in_turn(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 1, 1);
	ask(&t, ID, 0, 6000);
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	assert_int_equal(answer(&t, ID, 3000, MTU), 0);
	assert_int_equal(answer(&t, ID, 5000, MTU), 0);
	expect_again(&t, ID, 1000, 3000);
	assert_null(srdma_read_chunk_next(&t));
	assert_int_equal(answer(&t, ID, 2000, MTU), 0); /* 1000 is lost */
	expect_again(&t, ID, 1000, 2000);
	assert_int_equal(answer(&t, ID, 1000, MTU), 0);
	expect_again(&t, ID, 4000, 5000);
	assert_int_equal(answer(&t, ID, 4000, MTU), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/*
 * On a wire that keeps order, a response to a later read chunk shows that the
 * missing responses of earlier chunks are lost.
 */
static void test_later_response_reveals_loss(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 4, 1);
	ask(&t, ID, 0, 2000);
	srdma_read_chunk_asked(&t, srdma_read_chunk_add(&t, ID + 1, 0, 1000),
			       48, 0);
	ask(&t, ID + 2, 0, 1000);
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	assert_int_equal(answer(&t, ID + 2, 0, MTU), 0);
	expect_again(&t, ID, 1000, 2000);
	/* the request of the other one is still unacknowledged */
	assert_null(srdma_read_chunk_next(&t));
	assert_int_equal(t.head->request_id, ID + 1);
	assert_int_equal(answer(&t, ID, 1000, MTU), 0);
	assert_int_equal(answer(&t, ID + 1, 0, MTU), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/*
 * On a wire that may reorder, a missing response counts as lost after three
 * later ones.
 */
static void test_reordering_tolerance(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 8, 0);
	ask(&t, ID, 0, 3000);
	assert_int_equal(answer(&t, ID, 1000, MTU), 0);
	assert_int_equal(answer(&t, ID, 2000, MTU), 0);
	for (uint64_t i = 1; i < 4; i++) {
		ask(&t, ID + i, 0, 1000);
		assert_null(srdma_read_chunk_next(&t));
		assert_int_equal(answer(&t, ID + i, 0, MTU), 0);
	}
	expect_again(&t, ID, 0, 1000);
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	ask(&t, ID, 0, 4000);
	assert_int_equal(answer(&t, ID, 1000, MTU), 0);
	assert_int_equal(answer(&t, ID, 2000, MTU), 0);
	assert_null(srdma_read_chunk_next(&t));
	assert_int_equal(answer(&t, ID, 3000, MTU), 0);
	expect_again(&t, ID, 0, 1000);
	srdma_read_chunk_destroy(&t);
}

/*
 * One later response has arrived and no further one: a timer declares the loss.
 */
static void test_timer_reveals_loss(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 8, 0);
	ask(&t, ID, 0, 1000);
	ask(&t, ID + 1, 0, 3000);
	ask(&t, ID + 2, 0, 1000);
	assert_int_equal(srdma_read_chunk_expire(&t, 1000, 100), UINT64_MAX);
	assert_int_equal(answer(&t, ID + 1, 2000, MTU), 0);
	now = 50;
	assert_int_equal(answer(&t, ID + 1, 1000, MTU), 0);
	assert_int_equal(srdma_read_chunk_expire(&t, 104, 100), 105);
	assert_null(srdma_read_chunk_next(&t));
	assert_int_equal(srdma_read_chunk_expire(&t, 105, 100), UINT64_MAX);
	expect_again(&t, ID, 0, 1000);
	expect_again(&t, ID + 1, 0, 1000);
	/*
	 * The third READ's response is not known to be lost: no later response
	 * has arrived.
	 */
	assert_null(srdma_read_chunk_next(&t));
	assert_int_equal(srdma_read_chunk_expire(&t, 1000, 100), UINT64_MAX);
	/*
	 * A later response declares the loss without the timer if it arrives
	 * that long after the first later one.
	 */
	now = 1000;
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	now = 1100;
	assert_int_equal(answer(&t, ID + 1, 0, MTU), 0);
	expect_again(&t, ID + 2, 0, 1000);
	assert_int_equal(answer(&t, ID + 2, 0, MTU), 0);
	expect_empty(&t);
	now = 5;
	srdma_read_chunk_destroy(&t);
}

/*
 * A request whose flight is acknowledged counts as executed, without a
 * response.
 */
static void test_acknowledged_request_counts_as_executed(void **state)
{
	struct srdma_read_chunk_response a = { .request_id = ID + 1,
					       .len = MTU };
	struct srdma_read_chunks t;
	uint64_t flight;

	(void)state;
	open_parts(&t, 4, 1);
	srdma_read_chunk_asked(&t, srdma_read_chunk_add(&t, ID, 0, 1000), 20,
			       0);
	srdma_read_chunk_asked(&t, srdma_read_chunk_add(&t, ID + 1, 0, 2000),
			       21, 0);
	a.flights = 20;
	assert_int_equal(srdma_read_chunk_fill(&t, &a, &flight), 0);
	assert_int_equal(flight, 21);
	assert_null(srdma_read_chunk_next(&t));
	a.offset = MTU;
	a.flights = 21;
	assert_int_equal(srdma_read_chunk_fill(&t, &a, &flight), 0);
	expect_again(&t, ID, 0, 1000);
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/* A late response arrives while the chunk is about to be requested again. */
static void test_late_response_shortens_range(void **state)
{
	struct srdma_read_chunk *p;
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 2, 1);
	ask(&t, ID, 0, 3000);
	srdma_read_chunk_lose(&t);
	p = srdma_read_chunk_next(&t);
	assert_int_equal(answer(&t, ID, 0, MTU), 0);
	/*
	 * The chunk now begins behind the late response, so that the old range
	 * is not found.
	 */
	assert_null(srdma_read_chunk_find(&t, ID, 0, 3000));
	p = srdma_read_chunk_next(&t);
	srdma_read_chunk_not_yet(&t, p);
	expect_again(&t, ID, 1000, 3000);
	srdma_read_chunk_lose(&t);
	assert_non_null(srdma_read_chunk_next(&t));
	assert_int_equal(answer(&t, ID, 2000, MTU), 0);
	assert_int_equal(answer(&t, ID, 1000, MTU), 0);
	assert_null(srdma_read_chunk_find(&t, ID, 1000, 3000));
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/* A read chunk with the maximum number of responses. */
static void test_largest_chunk(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 1, 1);
	t.mtu = 256;
	ask(&t, ID, SRDMA_MAX_READ_CHUNK, 2 * SRDMA_MAX_READ_CHUNK);
	assert_int_equal(t.due, SRDMA_PLACES);
	for (uint32_t i = SRDMA_PLACES; i-- > 1;)
		assert_int_equal(
			answer(&t, ID, SRDMA_MAX_READ_CHUNK + i * 256, 256), 0);
	assert_int_equal(t.count, 1);
	assert_int_equal(answer(&t, ID, SRDMA_MAX_READ_CHUNK, 256), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/* --- atomics -------------------------------------------------------------- */

static int answer_atomic(struct srdma_read_chunks *t, uint64_t id)
{
	const struct srdma_read_chunk_response a = {
		.request_id = id, .len = SRDMA_ATOMIC_LEN, .atomic = 1, .now = 5
	};
	uint64_t flight;

	return srdma_read_chunk_fill(t, &a, &flight);
}

static struct srdma_read_chunk *ask_atomic(struct srdma_read_chunks *t,
					   uint64_t id)
{
	struct srdma_read_chunk *p = srdma_read_chunk_add_atomic(t, id);

	if (!p)
		return NULL;
	assert_ptr_equal(srdma_read_chunk_find(t, id, 0, SRDMA_ATOMIC_LEN), p);
	srdma_read_chunk_asked(t, p, 40 + id, 0);
	srdma_read_chunk_executed(p, 0);
	return p;
}

/* Only the response of an outstanding atomic is accepted. */
static void test_atomic_answers(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 4, 1);
	ask(&t, ID, 0, SRDMA_ATOMIC_LEN);
	ask_atomic(&t, ID + 1);
	assert_int_equal(t.due, 2);
	assert_int_equal(answer_atomic(&t, ID), -ENOENT);
	assert_int_equal(answer_atomic(&t, ID + 2), -ENOENT);
	assert_int_equal(answer(&t, ID + 1, 0, SRDMA_ATOMIC_LEN), -ENOENT);
	assert_int_equal(answer(&t, ID, 0, SRDMA_ATOMIC_LEN), 0);
	assert_int_equal(answer_atomic(&t, ID + 1), 0);
	assert_int_equal(answer_atomic(&t, ID + 1), -ENOENT);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/* A lost atomic is requested again unchanged. */
static void test_lost_atomic_is_requested_again(void **state)
{
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, 4, 1);
	ask_atomic(&t, ID);
	ask_atomic(&t, ID + 1);
	/* later than the first */
	assert_int_equal(answer_atomic(&t, ID + 1), 0);
	expect_again(&t, ID, 0, SRDMA_ATOMIC_LEN);
	srdma_read_chunk_lose(&t);
	expect_again(&t, ID, 0, SRDMA_ATOMIC_LEN);
	assert_int_equal(answer_atomic(&t, ID), 0);
	expect_empty(&t);
	srdma_read_chunk_destroy(&t);
}

/*
 * The peer keeps a limited number of results, counted from the oldest
 * unanswered atomic.
 */
/* RFC 5042 R6.4.3.3-2 */
static void test_atomics_are_limited_by_results(void **state)
{
	enum { SLOTS = 4 };
	struct srdma_read_chunks t;

	(void)state;
	open_parts(&t, SLOTS, 0);
	for (uint64_t id = 0; id < SLOTS; id++)
		assert_non_null(ask_atomic(&t, id));
	assert_null(ask_atomic(&t, SLOTS));
	for (uint64_t id = 1; id < SLOTS; id++)
		assert_int_equal(answer_atomic(&t, id), 0);
	assert_int_equal(t.count, 1);
	assert_null(ask_atomic(&t, SLOTS)); /* a slot, but no result left */
	ask(&t, SLOTS, 0, 1);		    /* a READ needs a slot only */
	assert_int_equal(answer_atomic(&t, 0), 0);
	for (uint64_t id = 1; id < SLOTS; id++)
		assert_non_null(ask_atomic(&t, SLOTS + id));
	assert_null(ask_atomic(&t, 2 * SLOTS)); /* no free slot */
	assert_int_equal(answer(&t, SLOTS, 0, 1), 0);
	assert_non_null(ask_atomic(&t, 2 * SLOTS));
	assert_null(ask_atomic(&t, 2 * SLOTS + 1));
	srdma_read_chunk_destroy(&t);
}

/* Memory is allocated on demand and freed when no chunk is left. */
static void test_memory_is_allocated_on_demand(void **state)
{
	enum { SIZE = 40 };
	struct srdma_read_chunk *all[SIZE];
	struct srdma_read_chunks t;
	uint64_t flight;

	(void)state;
	open_parts(&t, SIZE, 1);
	assert_int_equal(memory.used, 0);
	memory.most = 1;
	assert_null(srdma_read_chunk_add(&t, ID, 0, MTU));
	memory.most = 0;
	for (uint32_t i = 0; i < SIZE; i++)
		all[i] = ask(&t, ID + i, 0, MTU);
	assert_null(srdma_read_chunk_add(&t, ID + SIZE, 0, MTU));
	assert_int_equal(t.room, SIZE);
	assert_ptr_equal(t.head, all[0]);
	srdma_read_chunk_shrink(
		&t); /* no effect while chunks are outstanding */
	for (uint32_t i = 0; i < SIZE; i++) {
		const struct srdma_read_chunk_response a = {
			.request_id = ID + i, .len = MTU, .now = now
		};

		assert_true(memory.used > SIZE * sizeof(*all[0]));
		assert_int_equal(srdma_read_chunk_fill(&t, &a, &flight), 0);
	}
	srdma_read_chunk_shrink(&t);
	assert_int_equal(memory.used, 0);
	assert_int_equal(t.mtu, MTU);
	ask(&t, ID, 0, MTU);
	srdma_read_chunk_destroy(&t);
	assert_int_equal(memory.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_is_allocated_on_demand),
		cmocka_unit_test(test_responses_in_any_order),
		cmocka_unit_test(test_unexpected_responses_are_refused),
		cmocka_unit_test(test_empty_read),
		cmocka_unit_test(test_missing_ranges_are_requested_again),
		cmocka_unit_test(test_one_slot_requests_ranges_in_turn),
		cmocka_unit_test(test_later_response_reveals_loss),
		cmocka_unit_test(test_reordering_tolerance),
		cmocka_unit_test(test_timer_reveals_loss),
		cmocka_unit_test(test_acknowledged_request_counts_as_executed),
		cmocka_unit_test(test_late_response_shortens_range),
		cmocka_unit_test(test_largest_chunk),
		cmocka_unit_test(test_atomic_answers),
		cmocka_unit_test(test_lost_atomic_is_requested_again),
		cmocka_unit_test(test_atomics_are_limited_by_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
