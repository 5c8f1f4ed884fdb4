/*
 * The relay's context for memory keys is scratch. It holds no key of a
 * capability or region that ended, and none that only a control call used.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memory.h"
#include "memory/memguard.h"
#include "proving.h"

enum { ALL_PROOF = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF };

static struct pair p;

/* Returns 1 if the context of a side holds no key. */
static int is_clean(int side)
{
	uint8_t got[SRDMA_CMAC_LEN];

	return srdma_cmac_sum(&p.side[side].relay->cmac, got, NULL, 0) == -EIO;
}

/*
 * Adds a region and a capability and WRITEs with it, so that the contexts of
 * both relays hold keys.
 */
static void use_one(uint32_t *key, uint32_t *handle)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = 1,
				.length = BLOCK };

	*key = add_region(&p, (struct place){ .access = ALL_PROOF });
	*handle = pair_install(
		&p, 0,
		(struct srdma_cap_params){ .key = *key,
					   .length = REGION,
					   .rights = SRDMA_MEMKEY_WRITE });
	d.rkey = *key;
	d.capability = *handle;
	d.local_addr = (uintptr_t)p.side[0].memory;
	d.remote_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	assert_false(is_clean(0));
	assert_false(is_clean(1));
}

static int open_relays(void **state)
{
	pair_defaults(&p);
	p.mode = SRDMA_MODE_MEM;
	pair_open(&p);
	pair_connect(&p, 0);
	return open_cmac(state);
}

static int close_relays(void **state)
{
	pair_close(&p);
	return close_cmac(state);
}

/* Loads a key that the next call must replace. */
static void soil(int side)
{
	static const uint8_t key[SRDMA_MEMKEY_LEN] = "K_access of some";

	assert_int_equal(srdma_cmac_key(&p.side[side].relay->cmac, key), 0);
	assert_false(is_clean(side));
}

static void test_control_calls_leave_no_key(void **state)
{
	const struct srdma_memkey_bearer bearer = { .expiry = 77 };
	struct srdma_cap_params cap = { .length = REGION,
					.rights = SRDMA_MEMKEY_ALL &
						  ~SRDMA_MEMKEY_ATOMIC };
	struct srdma_revoke_params range = { .length = BLOCK };
	struct srdma_leg *leg = p.side[1].leg;
	struct srdma_relay *r = p.side[1].relay;
	uint8_t token[SRDMA_CAPABILITY_MAX];
	struct srdma_capability made;
	uint64_t ticket;
	uint32_t handle;

	(void)state;
	soil(1);
	cap.key = range.key =
		add_region(&p, (struct place){ .access = ALL_PROOF });
	assert_true(is_clean(1));
	for (int sealed = 0; sealed < 2; sealed++) {
		if (sealed)
			cap.bearer = bearer;
		soil(1);
		assert_int_equal(srdma_relay_mr_capability(r, leg, &cap, &made),
				 0);
		assert_true(is_clean(1));
		soil(1);
		assert_int_equal(
			srdma_relay_install(
				r, leg, token,
				(size_t)srdma_capability_encode(token, &made),
				&handle),
			0);
		assert_true(is_clean(1));
	}
	for (int whole = 0; whole < 2; whole++) {
		if (whole)
			range.length = 0;
		soil(1);
		assert_int_equal(srdma_relay_mr_revoke(r, leg, &range, &ticket),
				 0);
		assert_true(is_clean(1));
	}
}

/*
 * The context loses the keys of the data path when their capability or region
 * ends.
 */
static void test_drop_and_deregistration_leave_no_key(void **state)
{
	uint32_t key, handle;

	(void)state;
	use_one(&key, &handle);
	assert_int_equal(
		srdma_relay_uninstall(p.side[0].relay, p.side[0].leg, handle),
		0);
	assert_true(is_clean(0));
	assert_int_equal(
		srdma_relay_mr_dereg(p.side[1].relay, p.side[1].leg, key), 0);
	assert_true(is_clean(1));
}

static void test_leg_close_leaves_no_key(void **state)
{
	uint32_t key, handle;

	(void)state;
	use_one(&key, &handle);
	for (int side = 0; side < 2; side++)
		srdma_relay_leg_close(p.side[side].relay, p.side[side].leg);
	pair_settle(&p);
	pair_wait_ms(&p, 2000);
	pair_settle(&p);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(p.side[side].relay->leg_count, 0);
		assert_true(is_clean(side));
	}
}

int main(void)
{
#define CASE(test)                                                             \
	cmocka_unit_test_setup_teardown(test, open_relays, close_relays)
	const struct CMUnitTest tests[] = {
		CASE(test_control_calls_leave_no_key),
		CASE(test_drop_and_deregistration_leave_no_key),
		CASE(test_leg_close_leaves_no_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
