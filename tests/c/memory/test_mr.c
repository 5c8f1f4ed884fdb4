/* The access check of memory regions, at its limits (docs/protocol.md 6). */
#include "memory/mr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
	KEY = 0x12345678,
	QPN = 7,
	LEN = 4096,
	WRITE = SRDMA_ACCESS_REMOTE_WRITE,
	READ = SRDMA_ACCESS_REMOTE_READ,
	ATOMIC = SRDMA_ACCESS_REMOTE_ATOMIC,
};

#define BASE UINT64_C(0x7f0011223000)
#define LAST (UINT64_MAX - LEN + 1) /* region that ends at the last address */

static struct srdma_mr_table table;
static struct srdma_region region;
static struct srdma_mr mr;
static char leg[1], other[1]; /* only their addresses are used */

static struct srdma_leg *leg_at(char *at)
{
	return (struct srdma_leg *)(void *)at;
}

static int setup(void **state)
{
	(void)state;
	memset(&table, 0, sizeof(table));
	region = (struct srdma_region){ .base = BASE, .length = LEN };
	mr = (struct srdma_mr){
		.leg = leg_at(leg),
		.region = &region,
		.base = BASE,
		.key = KEY,
		.access = WRITE,
	};
	srdma_mr_insert(&table, &mr);
	return 0;
}

/* A WRITE of LEN bytes to the region. */
static struct srdma_mr_want whole(void)
{
	static const uint8_t nobody[SRDMA_MEMKEY_HOLDER_LEN];

	return (struct srdma_mr_want){
		.leg = leg_at(leg),
		.qpn = QPN,
		.key = KEY,
		.holder = nobody,
		.right = WRITE,
		.addr = mr.base,
		.len = region.length,
	};
}

static void expect(struct srdma_mr_want want, enum srdma_reason reason)
{
	struct srdma_mr *found = &mr;

	assert_int_equal(srdma_mr_check(&table, &want, &found), reason);
	assert_ptr_equal(found, reason == SRDMA_REASON_NONE ? &mr : NULL);
}

/* Both the region's start and the access's start and length vary. */
/* RFC 5042 R6.2.1-1, A6.3.1 */
static void test_bounds(void **state)
{
	static const struct {
		uint64_t base, addr, len;
		enum srdma_reason reason;
	} rows[] = {
		{ BASE, BASE, LEN, SRDMA_REASON_NONE },
		{ BASE, BASE, 0, SRDMA_REASON_NONE },
		{ BASE, BASE + LEN, 0, SRDMA_REASON_NONE },
		{ BASE, BASE + LEN - 1, 1, SRDMA_REASON_NONE },
		{ BASE, BASE, LEN + 1, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, BASE + 1, LEN, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, BASE + LEN, 1, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, BASE - 1, 1, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, BASE - 1, LEN, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, UINT64_MAX, 2, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, BASE + 1, UINT64_MAX, SRDMA_REASON_OUT_OF_BOUNDS },
		{ BASE, 0, BASE + LEN, SRDMA_REASON_OUT_OF_BOUNDS },
		{ LAST, LAST, LEN, SRDMA_REASON_NONE },
		{ LAST, LAST + 1, LEN, SRDMA_REASON_OUT_OF_BOUNDS },
		{ LAST, UINT64_MAX, 1, SRDMA_REASON_NONE },
		{ LAST, UINT64_MAX, 2, SRDMA_REASON_OUT_OF_BOUNDS },
		{ 0, 0, LEN, SRDMA_REASON_NONE },
		{ 0, UINT64_MAX, 1, SRDMA_REASON_OUT_OF_BOUNDS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_mr_want want = whole();

		mr.base = rows[i].base;
		want.addr = rows[i].addr;
		want.len = rows[i].len;
		expect(want, rows[i].reason);
	}
}

/* A key is found by all its bits, not by its bucket. */
/* RFC 5042 A6.1.1b */
static void test_key(void **state)
{
	struct srdma_mr_want want = whole();

	(void)state;
	for (unsigned bit = 0; bit < 32; bit++) {
		want.key = KEY ^ 1U << bit;
		expect(want, SRDMA_REASON_BAD_RKEY);
	}
	want.key = KEY + SRDMA_MR_BUCKETS;
	expect(want, SRDMA_REASON_BAD_RKEY);
}

/* Each right permits its own operation only; local reads need none. */
/* RFC 5042 R6.3.5-1, A6.3.5 */
static void test_rights(void **state)
{
	static const uint32_t rights[] = { SRDMA_ACCESS_LOCAL_WRITE, WRITE,
					   READ, ATOMIC };

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (size_t j = 0; j < 4; j++) {
			struct srdma_mr_want want = whole();

			mr.access = rights[i];
			want.right = rights[j];
			expect(want, i == j ? SRDMA_REASON_NONE
					    : SRDMA_REASON_NO_RIGHT);
			want.right = 0;
			expect(want, SRDMA_REASON_NONE);
		}
	}
}

/* RFC 5042 R6.1.1-1, R6.1.1-2, R2.2.2-2 */
static void test_pd_and_scope(void **state)
{
	struct srdma_mr_want want = whole();

	(void)state;
	want.leg = leg_at(other);
	expect(want, SRDMA_REASON_WRONG_PD);
	want.leg = leg_at(leg);
	mr.scope_qpn = QPN;
	expect(want, SRDMA_REASON_NONE);
	want.qpn = QPN + 1;
	expect(want, SRDMA_REASON_QP_SCOPE);
}

/* Neither scope concerns the QPs of the region's own host. */
static void test_scope_of_an_identity(void **state)
{
	static const uint8_t alice[SRDMA_MEMKEY_HOLDER_LEN] =
		"alice's 16 bytes";
	static const uint8_t bob[SRDMA_MEMKEY_HOLDER_LEN] = "alice's 16 byteZ";
	struct srdma_mr_want want = whole();

	(void)state;
	memcpy(mr.scope_holder, alice, sizeof(alice));
	expect(want, SRDMA_REASON_QP_SCOPE); /* a peer without an identity */
	want.holder = alice;
	expect(want, SRDMA_REASON_NONE);
	mr.scope_qpn = QPN + 1; /* both scopes hold */
	expect(want, SRDMA_REASON_QP_SCOPE);
	mr.scope_qpn = 0;
	want.holder = bob;
	expect(want, SRDMA_REASON_QP_SCOPE);
	mr.access |= SRDMA_ACCESS_LOCAL_WRITE;
	mr.scope_qpn = QPN + 1;
	for (uint32_t right = 0; right <= SRDMA_ACCESS_LOCAL_WRITE; right++) {
		want.right = right;
		want.holder = NULL;
		expect(want, SRDMA_REASON_NONE);
	}
}

/* RFC 5042 A6.1.1b */
static void test_deregistered_region(void **state)
{
	(void)state;
	mr.dead = 1;
	expect(whole(), SRDMA_REASON_BAD_RKEY);
	assert_ptr_equal(srdma_mr_find(&table, KEY), &mr);
}

/* --- permits -------------------------------------------------------------- */

/* The verdict with the permit is the one without it. */
static void expect_again(struct srdma_mr_permit *permit,
			 struct srdma_mr_want want, enum srdma_reason reason)
{
	struct srdma_mr *found =
		srdma_mr_permitted(&table, permit, want.key, want.right);

	expect(want, reason);
	if (found) {
		assert_ptr_equal(found, &mr);
		assert_int_equal(srdma_mr_covers(found, want.addr, want.len),
				 reason == SRDMA_REASON_NONE);
		return;
	}
	assert_int_equal(srdma_mr_permit(&table, permit, &want, &found),
			 reason);
}

/* A permit of whole(). */
static struct srdma_mr_permit permitted(void)
{
	struct srdma_mr_permit permit = { 0 };

	expect_again(&permit, whole(), SRDMA_REASON_NONE);
	assert_ptr_equal(permit.mr, &mr);
	return permit;
}

/* RFC 5042 R6.2.1-1, R6.3.5-1, A6.3.1, A6.3.5 */
static void test_permit_is_for_its_access(void **state)
{
	struct srdma_mr_permit permit = permitted();
	struct srdma_mr_want want = whole();

	(void)state;
	want.addr++;
	expect_again(&permit, want, SRDMA_REASON_OUT_OF_BOUNDS);
	want.len--;
	expect_again(&permit, want, SRDMA_REASON_NONE);
	want.right = READ;
	expect_again(&permit, want, SRDMA_REASON_NO_RIGHT);
	want = whole();
	want.key++;
	expect_again(&permit, want, SRDMA_REASON_BAD_RKEY);
	expect_again(&permit, whole(), SRDMA_REASON_NONE);
}

/* RFC 5042 A6.1.1b */
static void test_permit_ends(void **state)
{
	struct srdma_mr_permit permit = permitted();
	struct srdma_mr_want want = whole();

	(void)state;
	srdma_mr_set_moving(&table, &mr, 1);
	expect_again(&permit, whole(), SRDMA_REASON_BAD_RKEY);
	srdma_mr_rename(&table, &mr, KEY + 1);
	expect_again(&permit, whole(), SRDMA_REASON_BAD_RKEY);
	want.key = KEY + 1;
	expect_again(&permit, want, SRDMA_REASON_NONE);
	srdma_mr_withdraw(&table, &mr);
	expect_again(&permit, want, SRDMA_REASON_NO_RIGHT);
	want.right = 0;
	expect_again(&permit, want, SRDMA_REASON_NONE);
	srdma_mr_end(&table, &mr);
	expect_again(&permit, want, SRDMA_REASON_BAD_RKEY);
}

/* A region that got another key without a time in which it was refused. */
static void test_permit_ends_with_the_key(void **state)
{
	struct srdma_mr_permit permit = permitted();

	(void)state;
	srdma_mr_rename(&table, &mr, KEY + 1);
	expect_again(&permit, whole(), SRDMA_REASON_BAD_RKEY);
}

static void close_region(struct srdma_region *closed)
{
	(void)closed;
}

/* Its memory may belong to another region afterwards. */
static void test_permit_ends_with_the_memory_of_its_region(void **state)
{
	static const struct srdma_port_ops ops = { .region_close =
							   close_region };
	struct srdma_port port = { .ops = &ops };
	struct srdma_conn conn = { .port = &port };
	struct srdma_mr_permit permit = { 0 };
	struct srdma_mr_want want = whole();
	struct srdma_mr *found, *freed = malloc(sizeof(*freed));

	(void)state;
	assert_non_null(freed);
	*freed = mr;
	region.leg = &conn;
	freed->key = want.key = KEY + 1;
	srdma_mr_insert(&table, freed);
	assert_int_equal(srdma_mr_permit(&table, &permit, &want, &found),
			 SRDMA_REASON_NONE);
	assert_ptr_equal(srdma_mr_permitted(&table, &permit, KEY + 1, WRITE),
			 freed);
	srdma_mr_free(&table, freed);
	assert_null(srdma_mr_permitted(&table, &permit, KEY + 1, WRITE));
}

#define X(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		X(test_bounds),
		X(test_key),
		X(test_rights),
		X(test_pd_and_scope),
		X(test_scope_of_an_identity),
		X(test_deregistered_region),
		X(test_permit_is_for_its_access),
		X(test_permit_ends),
		X(test_permit_ends_with_the_key),
		X(test_permit_ends_with_the_memory_of_its_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
