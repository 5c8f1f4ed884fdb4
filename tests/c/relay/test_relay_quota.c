/* Limit of the revoked ranges of one leg (local-interface.md 5). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memory/memguard.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum {
	BLOCK = 64,
	/* regions at their own limit */
	FULL = SRDMA_MAX_REVOKED_OF_LEG / SRDMA_MAX_REVOKED,
	REGION = 2 * SRDMA_MAX_REVOKED * BLOCK,
};

static struct pair p;
static uint32_t keys[FULL + 1];

static uint32_t add(struct srdma_leg *leg)
{
	const struct srdma_mr_params mp = {
		.region = { .addr = (uintptr_t)p.side[0].memory,
			    .length = REGION,
			    .access = SRDMA_ACCESS_REMOTE_READ |
				      SRDMA_ACCESS_PROOF,
			    .fd = -1 },
		.log2_block = 6,
		.depth = 48,
	};
	uint32_t key;

	assert_int_equal(srdma_relay_mr_reg(p.side[0].relay, leg, &mp, &key),
			 0);
	return key;
}

/* Revokes blocks of a region; 0, 0: the whole region. */
static int revoke(struct srdma_leg *leg, uint32_t key, uint64_t block,
		  uint64_t blocks)
{
	const struct srdma_revoke_params params = { key, block * BLOCK,
						    blocks * BLOCK };
	uint64_t ticket;

	return srdma_relay_mr_revoke(p.side[0].relay, leg, &params, &ticket);
}

static struct srdma_leg *open_leg(void)
{
	struct srdma_leg_params lp = { .ring = PAIR_RING,
				       .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_leg *leg;

	assert_int_equal(
		srdma_relay_leg_open(p.side[0].relay, &lp, &leg, &answer), 0);
	return leg;
}

static void check_full(struct srdma_leg *leg)
{
	const char *why = srdma_relay_why(p.side[0].relay);

	assert_int_equal(revoke(leg, keys[FULL], 0, 1), -EDQUOT);
	assert_non_null(strstr(why, "4096 revoked ranges"));
	assert_non_null(strstr(why, "revoke a whole region"));
}

/* Expects room for exactly one more range. */
static void check_room(struct srdma_leg *leg)
{
	assert_int_equal(revoke(leg, keys[FULL], 0, 1), 0);
	/* the same range again */
	assert_int_equal(revoke(leg, keys[FULL], 0, 1), 0);
	assert_int_equal(revoke(leg, keys[FULL], 2, 1), -EDQUOT);
	assert_int_equal(revoke(leg, keys[FULL], 0, 0), 0);
}

static void test_revoked_ranges_of_leg_are_limited(void **state)
{
	struct srdma_leg *leg, *other;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	leg = p.side[0].leg;
	for (unsigned i = 0; i <= FULL; i++)
		keys[i] = add(leg);
	for (unsigned i = 0; i < FULL; i++)
		for (uint64_t n = 0; n < SRDMA_MAX_REVOKED; n++)
			assert_int_equal(revoke(leg, keys[i], 2 * n, 1), 0);
	check_full(leg);
	/* The limit of a region is checked before that of the leg. */
	assert_int_equal(revoke(leg, keys[0], 1, 1), -ENOSPC);
	/*
	 * A range that merges with as many ranges as it adds fits; one that
	 * merges two frees one.
	 */
	assert_int_equal(revoke(leg, keys[0], 0, 2), 0);
	check_full(leg);
	assert_int_equal(revoke(leg, keys[0], 0, 3), 0);
	check_room(leg);
	assert_int_equal(revoke(leg, keys[0], 3, 1), 0);
	check_full(leg);
	/* Revoking a whole region or deregistering it frees its ranges. */
	assert_int_equal(revoke(leg, keys[1], 0, 0), 0);
	for (uint64_t n = 0; n < SRDMA_MAX_REVOKED - 1; n++)
		assert_int_equal(revoke(leg, keys[1], 2 * n, 1), 0);
	check_room(leg);
	assert_int_equal(srdma_relay_mr_dereg(p.side[0].relay, leg, keys[2]),
			 0);
	for (uint64_t n = 0; n < SRDMA_MAX_REVOKED; n++)
		assert_int_equal(revoke(leg, keys[FULL], 2 * n, 1), 0);
	assert_int_equal(revoke(leg, keys[1], REGION / BLOCK - 1, 1), 0);
	assert_int_equal(revoke(leg, keys[3], 0, 0), 0);
	/* Each leg has its own count. */
	other = open_leg();
	assert_int_equal(revoke(other, add(other), 0, 1), 0);
	assert_int_equal(other->revoked, 1);
	assert_int_equal(leg->revoked,
			 SRDMA_MAX_REVOKED_OF_LEG - SRDMA_MAX_REVOKED);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_revoked_ranges_of_leg_are_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
