/* Installed capabilities of a leg (protocol.md 6.4). */
#include "memory/captable.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/granting.h"
#include "wire/wire.h"

enum { LEN = 1000, LO = 64, HI = 960, ANYBODY = SRDMA_STH_PROOF };

static struct srdma_captable *grants;

static int setup(void **state)
{
	const struct srdma_memtree t = region(LEN, SRDMA_MEMTREE_BLOCK_MIN, 48);

	(void)state;
	grants = calloc(1, sizeof(*grants));
	assert_non_null(grants);
	set_region(&t);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	srdma_captable_wipe(grants);
	assert_int_equal(grants->count, 0);
	free(grants);
	srdma_memkey_cache_wipe(&cache);
	return 0;
}

/* Installs a capability for [LO, HI). */
static uint32_t add(uint8_t rights, int sealed)
{
	struct srdma_capability cap;
	uint32_t handle;

	assert_int_equal(grant(&cap, LO, HI, rights), 0);
	if (sealed)
		seal(&cap);
	assert_int_equal(srdma_capability_ready(&cap, &cmac), 0);
	assert_int_equal(srdma_captable_add(grants, &cap, &handle), 0);
	return handle;
}

static struct srdma_captable_want want(uint32_t handle, uint64_t offset,
				       uint64_t len)
{
	return (struct srdma_captable_want){ .handle = handle,
					     .rkey = RKEY,
					     .right = SRDMA_MEMKEY_WRITE,
					     .addr = tree.start + offset,
					     .len = len };
}

/*
 * A range of bytes inside the granted range is permitted. The result covers it
 * up to the end of the node of its first byte (use.run).
 */
static void test_access_to_every_range(void **state)
{
	uint32_t handle = add(SRDMA_MEMKEY_WRITE, 0);

	(void)state;
	for (uint64_t lo = 0; lo < LEN; lo += 7) {
		for (uint64_t len = 1; len < LEN; len += 13) {
			struct srdma_captable_want w = want(handle, lo, len);
			struct srdma_captable_use use;
			uint8_t key[SRDMA_MEMKEY_LEN];
			int err = srdma_captable_find(grants, &w, &use);

			if (lo < LO || lo + len > HI) {
				assert_int_equal(err, -EACCES);
				continue;
			}
			assert_int_equal(err, 0);
			assert_true(use.node->lo <= lo && lo < use.node->hi);
			assert_int_equal(use.run, lo + len < use.node->hi
							  ? len
							  : use.node->hi - lo);
			assert_int_equal(use.flags, ANYBODY);
			assert_int_equal(use.expiry, 0);
			node_key(key, &tree, SRDMA_MEMKEY_WRITE, use.node);
			assert_int_equal(srdma_memkey_access(
						 &cmac, key, key, use.node,
						 &(struct srdma_memkey_bearer){
							 .expiry = 0 }),
					 0);
			assert_memory_equal(use.key, key, sizeof(key));
		}
	}
}

static void test_access_refusals(void **state)
{
	uint32_t handle = add(SRDMA_MEMKEY_WRITE, 0);
	struct srdma_captable_use use;
	struct srdma_captable_want w;

	(void)state;
#define FIND(err, ...)                                                         \
	do {                                                                   \
		w = want(handle, LO, 8);                                       \
		__VA_ARGS__;                                                   \
		assert_int_equal(srdma_captable_find(grants, &w, &use), err);  \
	} while (0)
	FIND(0, (void)0);
	FIND(-ENOENT, w.handle = 0);
	FIND(-ENOENT, w.handle++);
	FIND(-ENOENT, w.handle += SRDMA_CAPTABLE_MAX);
	FIND(-ENOENT, w.handle++; w.len = 0);
	FIND(-EACCES, w.rkey++);
	FIND(-EACCES, w.right = SRDMA_MEMKEY_READ);
	FIND(-EACCES, w.right = SRDMA_MEMKEY_ATOMIC);
	FIND(-EACCES, w.addr = tree.start - 1);
	FIND(-EACCES, w.addr = tree.end);
	FIND(-EACCES, w.addr = 0);
	FIND(-EACCES, w.addr = UINT64_MAX);
	FIND(-EACCES, w.len = UINT64_MAX);
	FIND(-EACCES, w.len = 0 - w.addr);
	/* For 0 bytes only the handle is checked. */
	FIND(0, w.rkey++; w.addr = 0; w.right = 0; w.len = 0);
}

static void test_holder_flag_and_expiry(void **state)
{
	struct srdma_captable_want w = want(add(SRDMA_MEMKEY_ALL, 1), LO, 8);
	struct srdma_captable_use use;

	(void)state;
	assert_int_equal(srdma_captable_find(grants, &w, &use), 0);
	assert_int_equal(use.flags, SRDMA_STH_PROOF | SRDMA_STH_HOLDER);
	assert_int_equal(use.expiry, alice.expiry);
}

/* Packets of a capability with an expiry but no holder carry no holder flag. */
static void test_expiry_without_holder(void **state)
{
	const struct srdma_memkey_bearer b = { .expiry = 99 };
	struct srdma_captable_use use;
	struct srdma_captable_want w;
	struct srdma_capability cap;
	uint32_t handle;

	(void)state;
	assert_int_equal(grant(&cap, LO, HI, SRDMA_MEMKEY_WRITE), 0);
	assert_int_equal(srdma_capability_seal(&cap, &cmac, &b), 0);
	assert_int_equal(srdma_captable_add(grants, &cap, &handle), 0);
	w = want(handle, LO, 8);
	assert_int_equal(srdma_captable_find(grants, &w, &use), 0);
	assert_int_equal(use.flags, ANYBODY);
	assert_int_equal(use.expiry, 99);
}

static void test_installed_capabilities_are_limited(void **state)
{
	uint32_t handle[SRDMA_CAPTABLE_MAX], one_more;
	struct srdma_capability cap;

	(void)state;
	for (int i = 0; i < SRDMA_CAPTABLE_MAX; i++)
		handle[i] = add(SRDMA_MEMKEY_READ, 0);
	assert_int_equal(grant(&cap, LO, HI, SRDMA_MEMKEY_READ), 0);
	assert_int_equal(srdma_captable_add(grants, &cap, &one_more), -EDQUOT);
	assert_int_equal(srdma_captable_drop(grants, handle[700]), 0);
	assert_int_equal(srdma_captable_drop(grants, handle[700]), -ENOENT);
	assert_int_equal(srdma_captable_add(grants, &cap, &one_more), 0);
	assert_int_not_equal(one_more, handle[700]);
	assert_int_equal(srdma_captable_add(grants, &cap, &one_more), -EDQUOT);
}

/* A proof found by a handle ends with the installation, also if another
 * capability gets the same handle. */
static void test_proof_ends_with_its_installation(void **state)
{
	const uint32_t handle = add(SRDMA_MEMKEY_WRITE, 0);
	const struct srdma_captable_want w = want(handle, LO, 1);
	struct srdma_captable_use use = { 0 };

	(void)state;
	assert_false(srdma_captable_is_current(grants, handle, &use));
	assert_int_equal(srdma_captable_find(grants, &w, &use), 0);
	assert_true(srdma_captable_is_current(grants, handle, &use));
	assert_int_equal(srdma_captable_drop(grants, handle), 0);
	assert_false(srdma_captable_is_current(grants, handle, &use));
	grants->serial = handle - 1; /* 2^32 installations later */
	assert_int_equal(add(SRDMA_MEMKEY_WRITE, 0), handle);
	assert_false(srdma_captable_is_current(grants, handle, &use));
	assert_int_equal(srdma_captable_find(grants, &w, &use), 0);
	assert_true(srdma_captable_is_current(grants, handle, &use));
}

/* Handles are never 0 nor recently used, also when the serial wraps. */
static void test_handles_are_not_reused(void **state)
{
	enum { ROUNDS = 3000 };
	uint32_t *seen = calloc(ROUNDS, sizeof(*seen));
	uint32_t keep;

	(void)state;
	assert_non_null(seen);
	grants->serial = UINT32_MAX - ROUNDS / 2;
	keep = add(SRDMA_MEMKEY_READ, 0);
	for (int i = 0; i < ROUNDS; i++) {
		seen[i] = add(SRDMA_MEMKEY_READ, 0);
		assert_int_not_equal(seen[i], 0);
		assert_int_not_equal(seen[i], keep);
		for (int n = 0; n < i; n++)
			assert_int_not_equal(seen[i], seen[n]);
		assert_int_equal(srdma_captable_drop(grants, seen[i]), 0);
	}
	assert_int_equal(srdma_captable_drop(grants, keep), 0);
	free(seen);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_access_to_every_range),
		TEST(test_access_refusals),
		TEST(test_holder_flag_and_expiry),
		TEST(test_expiry_without_holder),
		TEST(test_installed_capabilities_are_limited),
		TEST(test_proof_ends_with_its_installation),
		TEST(test_handles_are_not_reused),
	};

	return cmocka_run_group_tests(tests, open_cmac, close_cmac);
}
