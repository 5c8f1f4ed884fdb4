/* Regions whose addresses in requests differ from those in the host: the bias of
 * REG_MR (docs/local-interface.md 3.5). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "memory/memkey.h"
#include "support/relay_pair.h"

enum { LENGTH = 8192 };

static const uint64_t bases[] = { 0, 0x1000, 1ull << 63,
				  UINT64_MAX - LENGTH - 7 };

static struct pair p;

static void open_pair(void)
{
	pair_defaults(&p);
	p.mode = SRDMA_MODE_MEM;
	pair_open(&p);
	pair_connect(&p, 0);
}

/* Registers the beginning of side 1's memory under these addresses. */
static int reg(uint64_t base, uint32_t access, uint32_t *key)
{
	struct side *s = &p.side[1];
	const struct srdma_mr_params params = {
		.region = { .addr = (uintptr_t)s->memory,
			    .length = LENGTH,
			    .access = access,
			    .fd = -1 },
		.log2_block = access & SRDMA_ACCESS_PROOF ? 12 : 0,
		.depth = access & SRDMA_ACCESS_PROOF ? 48 : 0,
		.bias = (uintptr_t)s->memory - base,
	};

	return srdma_relay_mr_reg(s->relay, s->leg, &params, key);
}

static struct srdma_desc request(uint8_t opcode, uint32_t rkey, uint64_t at,
				 uint32_t length)
{
	return (struct srdma_desc){
		.opcode = opcode,
		.id = 1,
		.length = length,
		.local_addr = (uintptr_t)p.side[0].memory,
		.rkey = rkey,
		.remote_addr = at,
	};
}

static void run(struct srdma_desc d, uint32_t reason)
{
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, reason);
}

static void test_operations(void **state)
{
	uint32_t key;

	(void)state;
	for (unsigned i = 0; i < sizeof(bases) / sizeof(*bases); i++) {
		uint8_t *a, *b;

		open_pair();
		a = p.side[0].memory;
		b = p.side[1].memory;
		assert_int_equal(reg(bases[i], SRDMA_ACCESS_ALL, &key), 0);
		memset(a, 'w', LENGTH);
		run(request(SRDMA_DESC_WRITE, key, bases[i], LENGTH), 0);
		assert_memory_equal(a, b, LENGTH);
		b[LENGTH - 1] = 'r';
		run(request(SRDMA_DESC_READ, key, bases[i] + LENGTH - 1, 1), 0);
		assert_int_equal(a[0], 'r');
		memset(b + 8, 0, 8);
		run((struct srdma_desc){ .opcode = SRDMA_DESC_FETCH_ADD,
					 .id = 1,
					 .length = 8,
					 .local_addr = (uintptr_t)a,
					 .rkey = key,
					 .remote_addr = bases[i] + 8,
					 .swap_add = UINT64_MAX },
		    0);
		assert_memory_equal(b + 8, "\xff\xff\xff\xff\xff\xff\xff\xff",
				    8);
		run(request(SRDMA_DESC_WRITE, key, bases[i] + 1, LENGTH),
		    SRDMA_REASON_OUT_OF_BOUNDS);
		pair_close(&p);
	}
}

/* A region cannot be named by the addresses in the host. */
static void test_host_addresses_are_outside(void **state)
{
	uint32_t key;

	(void)state;
	open_pair();
	assert_int_equal(reg(0x1000, SRDMA_ACCESS_ALL, &key), 0);
	run(request(SRDMA_DESC_READ, key, (uintptr_t)p.side[1].memory, 8),
	    SRDMA_REASON_OUT_OF_BOUNDS);
	pair_close(&p);
}

/* A receive into the region is named by the same addresses. */
static void test_local_addresses(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .id = 7,
				   .length = 100,
				   .local_addr = 0x1000 };

	(void)state;
	open_pair();
	assert_int_equal(reg(0x1000, SRDMA_ACCESS_ALL, &recv.local_key), 0);
	memset(p.side[0].memory, 's', 100);
	pair_post(&p, 1, recv, NULL);
	run(request(SRDMA_DESC_SEND, 0, 0, 100), 0);
	pair_expect(&p, 1, 7, 0);
	assert_memory_equal(p.side[0].memory, p.side[1].memory, 100);
	pair_close(&p);
}

/* Capabilities and revocation count from the beginning of the region. */
static void test_capability(void **state)
{
	struct srdma_cap_params cap = { .offset = 4096,
					.length = 4096,
					.rights = SRDMA_MEMKEY_WRITE };
	struct srdma_revoke_params range = { .offset = 4096, .length = 4096 };
	struct srdma_desc d;

	(void)state;
	open_pair();
	assert_int_equal(reg(1ull << 40, SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
			     &cap.key),
			 0);
	memset(p.side[0].memory, 'c', 100);
	d = request(SRDMA_DESC_WRITE, cap.key, (1ull << 40) + 4096, 100);
	d.capability = pair_install(&p, 0, cap);
	run(d, 0);
	assert_memory_equal(p.side[0].memory, p.side[1].memory + 4096, 100);
	range.key = cap.key;
	assert_int_equal(srdma_relay_mr_revoke(p.side[1].relay, p.side[1].leg,
					       &range, &(uint64_t){ 0 }),
			 0);
	run(d, SRDMA_REASON_PROOF_RANGE);
	pair_close(&p);
}

static void test_refusals(void **state)
{
	uint32_t key;

	(void)state;
	open_pair();
	assert_int_equal(reg(UINT64_MAX - LENGTH + 1, 1, &key), -EINVAL);
	assert_non_null(strstr(srdma_relay_why(p.side[1].relay),
			       "inside the address space"));
	assert_int_equal(reg(0x1004, 15, &key), -EINVAL);
	assert_non_null(
		strstr(srdma_relay_why(p.side[1].relay), "multiple of 8"));
	assert_int_equal(reg(0x1004, 7, &key), 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_host_addresses_are_outside),
		cmocka_unit_test(test_local_addresses),
		cmocka_unit_test(test_capability),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
