/*
 * Withdrawal of a region at the responder (protocol.md 6.5): when it is
 * complete, no access of a peer changes or fetches a byte any more.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/memory.h"
#include "support/proving.h"

enum {
	/* offset in the client's memory of what a READ fetched */
	FETCHED = PAIR_MEMORY / 2,
	OWN = 9, /* id of requests of the target itself */
};

/* A pair, and a region at the target that the peer may use. */
struct scene {
	struct pair p;
	uint32_t key;
	int busy; /* 1: DMA of the target finds no room */
};

static int dma_hook(void *ctx, const struct srdma_dma *dma, int is_write)
{
	const struct scene *s = ctx;

	(void)dma;
	(void)is_write;
	return s->busy ? -EAGAIN : 0;
}

static void begin(struct scene *s)
{
	pair_defaults(&s->p);
	s->busy = 0;
	s->p.mtu = BLOCK;
	s->p.host[1].ctx = s;
	s->p.host[1].dma = dma_hook;
	pair_open(&s->p);
	pair_connect(&s->p, 0);
	s->key =
		add_region(&s->p, (struct place){ .access = SRDMA_ACCESS_ALL });
	memset(s->p.side[0].memory, 0x5a, REGION);
}

static int withdraw(struct scene *s, uint64_t *ticket)
{
	struct side *target = &s->p.side[1];

	return srdma_relay_mr_withdraw(target->relay, target->leg, s->key,
				       ticket);
}

static int withdrawing(struct scene *s, uint64_t ticket)
{
	struct side *target = &s->p.side[1];

	return srdma_relay_mr_withdrawing(target->relay, target->leg, s->key,
					  ticket);
}

/* The peer's request for the first len bytes of the region. */
static void post(struct scene *s, uint8_t opcode, uint32_t len)
{
	struct srdma_desc d = {
		.opcode = opcode,
		.id = 1,
		.length = len,
		.local_addr = (uintptr_t)s->p.side[0].memory,
		.remote_addr = (uintptr_t)s->p.side[1].memory,
		.rkey = s->key,
	};

	if (opcode != SRDMA_DESC_WRITE)
		d.local_addr += FETCHED;
	pair_post(&s->p, 0, d, NULL);
}

/* A WRITE of the target itself, from its region to the peer. */
static void post_own(struct scene *s, uint32_t len)
{
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.id = OWN,
		.length = len,
		.local_addr = (uintptr_t)s->p.side[1].memory,
		.local_key = s->key,
		.remote_addr = (uintptr_t)s->p.side[0].memory,
	};

	pair_post(&s->p, 1, d, NULL);
}

static const struct srdma_mr *mr_of(const struct scene *s)
{
	return srdma_mr_find(&s->p.side[1].relay->env.mrs, s->key);
}

/* Runs until this many DMAs use the region. */
static void until_dmas(struct scene *s, uint32_t n)
{
	for (int i = 0; mr_of(s)->dmas < n; i++) {
		assert_in_range(i, 0, 100);
		pair_run(&s->p, 1);
	}
}

/* --- after a withdrawal -------------------------------------------------- */

static void test_peer_has_no_access_to_a_withdrawn_region(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t len;
	} rows[] = {
		{ SRDMA_DESC_WRITE, REGION },
		{ SRDMA_DESC_READ, REGION },
		{ SRDMA_DESC_FETCH_ADD, 8 },
	};
	struct scene s;
	uint64_t ticket;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		begin(&s);
		memset(s.p.side[1].memory, 0x77, REGION);
		assert_int_equal(withdraw(&s, &ticket), 0);
		assert_int_equal(withdrawing(&s, ticket), 0);
		post(&s, rows[i].opcode, rows[i].len);
		pair_settle(&s.p);
		pair_expect(&s.p, 0, 1, SRDMA_REASON_NO_RIGHT);
		assert_int_equal(changed(&s.p, 0, REGION), 0);
		assert_int_equal(s.p.side[1].memory[0], 0x77);
		assert_int_equal(s.p.side[0].memory[FETCHED], 0);
		pair_close(&s.p);
	}
}

static void test_program_goes_on_with_a_withdrawn_region(void **state)
{
	struct scene s;
	uint64_t ticket;

	(void)state;
	begin(&s);
	memset(s.p.side[1].memory, 0x77, REGION);
	assert_int_equal(withdraw(&s, &ticket), 0);
	post_own(&s, REGION);
	pair_settle(&s.p);
	pair_expect(&s.p, 1, OWN, SRDMA_REASON_NONE);
	assert_memory_equal(s.p.side[0].memory, s.p.side[1].memory, REGION);
	pair_close(&s.p);
}

static void test_no_capability_of_a_withdrawn_region(void **state)
{
	struct srdma_cap_params cap = { .length = REGION,
					.rights = SRDMA_MEMKEY_WRITE };
	struct srdma_capability made;
	struct scene s;
	uint64_t ticket;

	(void)state;
	begin(&s);
	s.key = cap.key = add_region(
		&s.p, (struct place){ .access = SRDMA_ACCESS_ALL |
						SRDMA_ACCESS_PROOF });
	assert_int_equal(withdraw(&s, &ticket), 0);
	assert_int_equal(srdma_relay_mr_capability(s.p.side[1].relay,
						   s.p.side[1].leg, &cap,
						   &made),
			 -EACCES);
	pair_close(&s.p);
}

static void test_keys_that_the_leg_does_not_have_are_refused(void **state)
{
	struct scene s;
	uint64_t ticket = 77;
	uint32_t key;

	(void)state;
	begin(&s);
	key = s.key;
	s.key ^= 1;
	assert_int_equal(withdraw(&s, &ticket), -ENOENT);
	assert_int_equal(withdrawing(&s, UINT64_MAX), 0);
	s.key = s.p.side[0].key;
	assert_int_equal(withdraw(&s, &ticket), -ENOENT);
	s.key = key;
	s.p.host[1].dma_polls = 8;
	post(&s, SRDMA_DESC_WRITE, BLOCK);
	until_dmas(&s, 1);
	assert_int_equal(
		srdma_relay_mr_dereg(s.p.side[1].relay, s.p.side[1].leg, key),
		-EINPROGRESS);
	assert_int_equal(withdraw(&s, &ticket), -ENOENT);
	assert_int_equal(ticket, 77);
	pair_close(&s.p);
}

/* --- DMA in progress ----------------------------------------------------- */

/* Repeated, it waits too. */
static void test_withdrawal_waits_for_dma_of_the_peer(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };
	struct scene s;
	uint64_t ticket, again;
	int turns;

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin(&s);
		s.p.host[1].dma_polls = 8;
		post(&s, ops[i], BLOCK);
		until_dmas(&s, 1);
		assert_int_equal(withdraw(&s, &ticket), -EINPROGRESS);
		assert_int_equal(withdraw(&s, &again), -EINPROGRESS);
		for (turns = 0; withdrawing(&s, ticket); turns++) {
			assert_in_range(turns, 0, 100);
			pair_run(&s.p, 1);
		}
		assert_int_not_equal(turns, 0);
		assert_int_equal(withdrawing(&s, again), 0);
		assert_int_equal(mr_of(&s)->dmas, 0);
		pair_settle(&s.p);
		/* the access was permitted, and succeeds */
		pair_expect(&s.p, 0, 1, SRDMA_REASON_NONE);
		pair_close(&s.p);
	}
}

static void test_withdrawal_does_not_wait_for_the_program(void **state)
{
	struct scene s;
	uint64_t ticket;

	(void)state;
	begin(&s);
	s.p.host[1].dma_polls = 8;
	post_own(&s, BLOCK);
	until_dmas(&s, 1);
	assert_int_equal(withdraw(&s, &ticket), 0);
	pair_settle(&s.p);
	pair_expect(&s.p, 1, OWN, SRDMA_REASON_NONE);
	pair_close(&s.p);
}

/* Their packets are verified and permitted, and their DMA has not begun. */
static void test_withdrawal_refuses_accepted_requests(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };
	struct scene s;
	uint64_t ticket;

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin(&s);
		memset(s.p.side[1].memory, 0x77, REGION);
		s.busy = 1;
		post(&s, ops[i], 4 * BLOCK);
		pair_run(&s.p, 20);
		assert_int_equal(withdraw(&s, &ticket), 0);
		s.busy = 0;
		pair_settle(&s.p);
		pair_expect(&s.p, 0, 1, SRDMA_REASON_NO_RIGHT);
		assert_int_equal(verdict(&s.p), SRDMA_REASON_NO_RIGHT);
		assert_int_equal(changed(&s.p, 0, REGION), 0);
		assert_int_equal(s.p.side[0].memory[FETCHED], 0);
		pair_close(&s.p);
	}
}

/* --- a writer that does not stop ----------------------------------------- */

/* Posts a WRITE of other bytes than before, if there is room. */
static void write_more(struct scene *s, uint64_t *seed)
{
	const struct srdma_qp *qp = qp_of(&s->p, 0);
	const uint32_t len = 1 + (uint32_t)random_below(seed, REGION);
	struct srdma_record r;

	memset(s->p.side[0].memory, (int)(1 + random_below(seed, 255)), len);
	while (pair_record(&s->p, 0, &r))
		;
	if (srdma_qp_requester(qp)->sq_tail - srdma_qp_requester(qp)->sq_head <
	    8)
		post(s, SRDMA_DESC_WRITE, len);
}

/* Returns 1 if the withdrawal had to wait. */
static int race(uint64_t seed)
{
	static uint8_t before[REGION];
	struct scene s;
	uint64_t ticket;
	int r;

	begin(&s);
	s.p.host[1].dma_polls = (uint32_t)random_below(&seed, 6);
	for (uint64_t turns = 5 + random_below(&seed, 40); turns; turns--) {
		write_more(&s, &seed);
		s.busy = !random_below(&seed, 3);
		pair_run(&s.p, 1);
	}
	r = withdraw(&s, &ticket);
	assert_true(!r || r == -EINPROGRESS);
	while (r && withdrawing(&s, ticket)) {
		write_more(&s, &seed);
		s.busy = !random_below(&seed, 3);
		pair_run(&s.p, 1);
	}
	memcpy(before, s.p.side[1].memory, REGION);
	s.busy = 0;
	for (int turns = 0; turns < 60; turns++) {
		if (pair_state(&s.p, 0, 0, NULL) == SRDMA_QP_RTS)
			write_more(&s, &seed);
		pair_run(&s.p, 1);
	}
	assert_memory_equal(s.p.side[1].memory, before, REGION);
	pair_close(&s.p);
	return r != 0;
}

/* RFC 5042 R6.2.2-1, RA-1, R6.2.2-2, A6.2.2 */
static void test_no_byte_changes_after_withdrawal(void **state)
{
	int waited = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++)
		waited += race(seed);
	assert_in_range(waited, 20, 180);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer_has_no_access_to_a_withdrawn_region),
		cmocka_unit_test(test_program_goes_on_with_a_withdrawn_region),
		cmocka_unit_test(test_no_capability_of_a_withdrawn_region),
		cmocka_unit_test(
			test_keys_that_the_leg_does_not_have_are_refused),
		cmocka_unit_test(test_withdrawal_waits_for_dma_of_the_peer),
		cmocka_unit_test(test_withdrawal_does_not_wait_for_the_program),
		cmocka_unit_test(test_withdrawal_refuses_accepted_requests),
		cmocka_unit_test(test_no_byte_changes_after_withdrawal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
