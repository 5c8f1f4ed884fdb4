/* A region that takes the place and the key of another one: REPLACE of the control
 * socket (docs/local-interface.md 3.5). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "relay/relay_impl.h"
#include "support/relay_pair.h"

enum {
	SIZE = 4096,
	OTHER = 8 * SIZE, /* offset of the other region */
};

static struct pair p;
static uint32_t former, other; /* keys at side 1 */

static void begin(uint32_t access)
{
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	former = pair_register(
		&p, 1,
		(struct pair_region){ .len = SIZE,
				      .access = SRDMA_ACCESS_ALL });
	other = pair_register(&p, 1,
			      (struct pair_region){ .at = OTHER,
						    .len = SIZE,
						    .access = access });
	memset(p.side[0].memory, 0x5a, SIZE);
}

static int replace(uint32_t key, uint32_t by)
{
	return srdma_relay_mr_replace(p.side[1].relay, p.side[1].leg, key, by);
}

/* A WRITE of side 0 with the former key, to an offset in the memory of side 1. */
static void write_to(uint64_t id, uint64_t at)
{
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.id = id,
		.length = SIZE,
		.local_addr = (uintptr_t)p.side[0].memory,
		.remote_addr = (uintptr_t)p.side[1].memory + at,
		.rkey = former,
	};

	pair_post(&p, 0, d, NULL);
}

static void test_key_names_the_other_region(void **state)
{
	(void)state;
	begin(SRDMA_ACCESS_ALL);
	assert_int_equal(replace(former, other), 0);
	assert_null(srdma_mr_find(&p.side[1].relay->env.mrs, other));
	write_to(1, OTHER);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	assert_int_equal(p.side[1].memory[OTHER], 0x5a);
	assert_int_equal(p.side[1].memory[0], 0);
	write_to(2, 0);
	pair_settle(&p);
	pair_expect(&p, 0, 2, SRDMA_REASON_OUT_OF_BOUNDS);
	assert_int_equal(p.side[1].memory[0], 0);
	pair_close(&p);
}

static void test_rights_of_the_former_region_end(void **state)
{
	(void)state;
	begin(SRDMA_ACCESS_LOCAL_WRITE);
	assert_int_equal(replace(former, other), 0);
	write_to(1, OTHER);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NO_RIGHT);
	assert_int_equal(p.side[1].memory[OTHER], 0);
	pair_close(&p);
}

/* DMA of the former region ends first, and the key is refused meanwhile. */
static void test_it_waits_for_dma(void **state)
{
	int turns;

	(void)state;
	begin(SRDMA_ACCESS_ALL);
	p.host[1].dma_polls = 8;
	write_to(1, 0);
	while (!srdma_mr_find(&p.side[1].relay->env.mrs, former)->dmas)
		pair_run(&p, 1);
	assert_int_equal(replace(former, other), -EINPROGRESS);
	write_to(2, OTHER);
	for (turns = 0; replace(former, other); turns++) {
		assert_in_range(turns, 0, 100);
		pair_run(&p, 1);
	}
	assert_int_not_equal(turns, 0);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_expect(&p, 0, 2, SRDMA_REASON_BAD_RKEY);
	assert_int_equal(p.side[1].memory[0], 0x5a);
	assert_int_equal(p.side[1].memory[OTHER], 0);
	pair_close(&p);
}

/* A WRITE of side 1 whose SGL names the other region by its own key. */
static void write_from_other(uint64_t id)
{
	const struct srdma_sge sge = {
		.addr = (uintptr_t)p.side[1].memory + OTHER,
		.length = SIZE,
		.lkey = other,
	};
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.id = id,
		.sges = 1,
		.length = SIZE,
		.remote_addr = (uintptr_t)p.side[0].memory,
	};

	memset(p.side[1].memory + OTHER, 0xa5, SIZE);
	pair_post(&p, 1, d, &sge);
}

/* REPLACE waits for a DMA of the other region. */
static void replace_under_dma_of_other(void)
{
	begin(SRDMA_ACCESS_ALL);
	p.host[1].dma_polls = 8;
	write_from_other(1);
	while (!srdma_mr_find(&p.side[1].relay->env.mrs, other)->dmas)
		pair_run(&p, 1);
	assert_int_equal(replace(former, other), -EINPROGRESS);
}

/* DMA of an SGL finds the other region by the key that it loses. */
static void test_it_waits_for_dma_of_the_other_region(void **state)
{
	const struct srdma_mr *by;
	int turns;

	(void)state;
	replace_under_dma_of_other();
	by = srdma_mr_find(&p.side[1].relay->env.mrs, other);
	for (turns = 0; replace(former, other); turns++) {
		assert_in_range(turns, 0, 100);
		pair_run(&p, 1);
	}
	assert_int_not_equal(turns, 0);
	assert_int_equal(by->dmas, 0);
	pair_settle(&p);
	pair_expect(&p, 1, 1, SRDMA_REASON_NONE);
	assert_int_equal(p.side[0].memory[0], 0xa5);
	assert_int_equal(by->key, former);
	assert_int_equal(by->dmas, 0);
	pair_close(&p);
}

/* So requests in a row with its own key cannot delay the answer without a limit. */
static void test_key_of_the_other_region_is_refused(void **state)
{
	(void)state;
	replace_under_dma_of_other();
	write_from_other(2);
	pair_settle(&p);
	pair_expect(&p, 1, 1, SRDMA_REASON_FLUSHED);
	pair_expect(&p, 1, 2, SRDMA_REASON_LOCAL_KEY);
	assert_int_equal(replace(former, other), 0);
	pair_close(&p);
}

/* The other region keeps its key if the former one was deregistered meanwhile. */
static void test_other_region_lives_on_after_a_failure(void **state)
{
	(void)state;
	replace_under_dma_of_other();
	assert_int_equal(
		srdma_relay_mr_dereg(p.side[1].relay, p.side[1].leg, former),
		0);
	assert_int_equal(replace(former, other), -ENOENT);
	write_from_other(2);
	pair_settle(&p);
	pair_expect(&p, 1, 1, SRDMA_REASON_NONE);
	pair_expect(&p, 1, 2, SRDMA_REASON_NONE);
	pair_close(&p);
}

static void test_refusals(void **state)
{
	uint32_t proof;

	(void)state;
	begin(SRDMA_ACCESS_ALL);
	proof = pair_register(
		&p, 1,
		(struct pair_region){ .len = SIZE,
				      .access = SRDMA_ACCESS_ALL |
						SRDMA_ACCESS_PROOF,
				      .log2_block = 12,
				      .depth = 8 });
	assert_int_equal(replace(former, former), -EINVAL);
	assert_int_equal(replace(former, proof), -EINVAL);
	assert_int_equal(replace(proof, former), -EINVAL);
	assert_non_null(strstr(srdma_relay_why(p.side[1].relay),
			       "neither may demand proofs"));
	assert_int_equal(replace(former, other ^ 1), -ENOENT);
	assert_int_equal(replace(former ^ 1, other), -ENOENT);
	assert_int_equal(replace(former, p.side[0].key), -ENOENT);
	assert_int_equal(
		srdma_relay_mr_dereg(p.side[1].relay, p.side[1].leg, other), 0);
	assert_int_equal(replace(former, other), -ENOENT);
	write_to(1, 0); /* nothing has changed */
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key_names_the_other_region),
		cmocka_unit_test(test_rights_of_the_former_region_end),
		cmocka_unit_test(test_it_waits_for_dma),
		cmocka_unit_test(test_it_waits_for_dma_of_the_other_region),
		cmocka_unit_test(test_key_of_the_other_region_is_refused),
		cmocka_unit_test(test_other_region_lives_on_after_a_failure),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
