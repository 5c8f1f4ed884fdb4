/*
 * The relay has one CMAC context for memory keys, which is keyed again for each
 * use. It keeps neither a key of a capability or region that ended nor a key
 * that only a control call needed. No memory that is freed holds a secret.
 */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/memory.h"
#include "memory/memguard.h"
#include "support/proving.h"

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
	p.key_cache = 16;
	pair_open(&p);
	pair_connect(&p, 0);
	return open_cmac(state);
}

static int close_relays(void **state)
{
	pair_close(&p);
	return close_cmac(state);
}

/* Puts a key into the context that the next control call must remove. */
static void soil(int side)
{
	static const uint8_t key[SRDMA_MEMKEY_LEN] = "K_access of some";

	assert_int_equal(srdma_cmac_key(&p.side[side].relay->cmac, key), 0);
	assert_false(is_clean(side));
}

/* review A12 */
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

/* RFC 5042 X6 */
static void test_leg_close_leaves_no_key(void **state)
{
	uint32_t key, handle;

	(void)state;
	use_one(&key, &handle);
	for (int side = 0; side < 2; side++)
		srdma_relay_leg_close(p.side[side].leg);
	pair_settle(&p);
	pair_wait_ms(&p, 2000);
	pair_settle(&p);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(p.side[side].relay->leg_count, 0);
		assert_true(is_clean(side));
	}
}

#ifndef SRDMA_SANITIZED

enum { SECRET = 16 };

static uint8_t secret[SECRET];
static int watching;
static unsigned leaks;

void __libc_free(void *block);

/* replaces the C library's function */
void free(void *block)
{
	if (watching && block &&
	    memmem(block, malloc_usable_size(block), secret, SECRET))
		leaks++;
	__libc_free(block);
}

static void watch(const uint8_t *bytes)
{
	memcpy(secret, bytes, SECRET);
	leaks = 0;
	watching = 1;
}

static void expect_no_leak(void)
{
	watching = 0;
	assert_int_equal(leaks, 0);
}

/* review A36, A43 */
static void test_freed_memory_holds_no_secret(void **state)
{
	struct srdma_leg *leg = p.side[0].leg;
	struct srdma_cap_params params = { .length = REGION,
					   .rights = SRDMA_MEMKEY_WRITE };
	struct srdma_capability cap;
	struct srdma_qp_keys keys;
	uint32_t key, handle;
	uint8_t *block = malloc(64);
	/* The compiler assumes that a direct call of free() changes nothing. */
	void (*volatile release)(void *) = free;

	(void)state;
	memset(block, 7, 64);
	watch(block);
	release(block);
	watching = 0;
	assert_int_equal(leaks, 1); /* the check itself works */

	use_one(&key, &handle);
	watch(leg->captable.slot[handle % SRDMA_CAPTABLE_MAX]->cap.key[0]);
	assert_int_equal(srdma_relay_uninstall(p.side[0].relay, leg, handle),
			 0);
	expect_no_leak();

	params.key = key;
	assert_int_equal(srdma_relay_mr_capability(
				 p.side[1].relay, p.side[1].leg, &params, &cap),
			 0);
	watch(cap.key[0]); /* the region's cache holds it too */
	assert_int_equal(
		srdma_relay_mr_dereg(p.side[1].relay, p.side[1].leg, key), 0);
	expect_no_leak();

	pair_keys(&p, 0, 0, &keys);
	watch(keys.tx_secret);
	pair_destroy_qp(&p, 0);
	expect_no_leak();

	watch(leg->keys.pd);
	srdma_relay_leg_close(leg);
	pair_settle(&p);
	assert_int_equal(p.side[0].relay->leg_count, 0);
	expect_no_leak();
}

#endif

int main(void)
{
#define CASE(test)                                                             \
	cmocka_unit_test_setup_teardown(test, open_relays, close_relays)
	const struct CMUnitTest tests[] = {
		CASE(test_control_calls_leave_no_key),
		CASE(test_drop_and_deregistration_leave_no_key),
		CASE(test_leg_close_leaves_no_key),
#ifndef SRDMA_SANITIZED
		CASE(test_freed_memory_holds_no_secret),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
