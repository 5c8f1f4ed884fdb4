/* Overlapping ranges of files that peers may access (RFC 5042 6.3.6). */
#include "memory/exposed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANGES = 400, ROUNDS = 20000, TRUSTS = 4, FILES = 2, BYTES = 3000 };

static struct srdma_exposed_table table;

static const struct srdma_exposure base = {
	.dev = 1,
	.ino = 7,
	.first = 100,
	.last = 199,
	.trust = 1,
	.written = 1,
};

/* Adds `second` beside `base`. Returns the result. */
static int beside(const struct srdma_exposure *first,
		  const struct srdma_exposure *second)
{
	struct srdma_exposed a = { 0 }, b = { 0 };
	int r;

	assert_int_equal(srdma_exposed_add(&table, &a, first, 5), 0);
	r = srdma_exposed_add(&table, &b, second, 9);
	assert_int_equal(b.set != NULL, r == 0);
	srdma_exposed_remove(&table, &b);
	srdma_exposed_remove(&table, &a);
	return r;
}

static int is_empty(void)
{
	for (int i = 0; i < SRDMA_EXPOSED_BUCKETS; i++)
		if (table.bucket[i])
			return 0;
	return 1;
}

/* R6.3.6-1: one common byte is enough, at each edge. */
/* RFC 5042 R6.3.6-1 */
static void test_one_byte_is_an_overlap(void **state)
{
	static const struct {
		uint64_t first, last;
		int want;
	} rows[] = {
		{ 100, 199, -EBUSY },
		{ 199, 300, -EBUSY },
		{ 0, 100, -EBUSY },
		{ 150, 150, -EBUSY },
		{ 0, UINT64_MAX, -EBUSY },
		{ 200, 300, 0 },
		{ 0, 99, 0 },
		{ UINT64_MAX, UINT64_MAX, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_exposure other = base;

		other.trust = 2;
		other.first = rows[i].first;
		other.last = rows[i].last;
		assert_int_equal(beside(&base, &other), rows[i].want);
		assert_int_equal(beside(&other, &base), rows[i].want);
	}
	assert_true(is_empty());
}

/* R6.3.6-1, R6.3.6-2: which pairs of rights conflict. */
/* RFC 5042 R6.3.6-1 */
static void test_matrix_of_rights(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 32; bits++) {
		struct srdma_exposure a = base, b = base;
		int conflict;

		a.written = bits & 1;
		b.written = bits >> 1 & 1;
		a.shared = bits >> 2 & 1;
		b.shared = bits >> 3 & 1;
		b.trust = bits >> 4 & 1 ? 2 : a.trust;
		conflict = a.trust != b.trust && (a.written || b.written) &&
			   !(a.shared && b.shared);
		assert_int_equal(beside(&a, &b), conflict ? -EBUSY : 0);
	}
	assert_true(is_empty());
}

static void test_files_are_known_by_device_and_inode(void **state)
{
	struct srdma_exposure other = base;

	(void)state;
	other.trust = 2;
	other.dev = base.dev + SRDMA_EXPOSED_BUCKETS; /* the same bucket */
	assert_int_equal(beside(&base, &other), 0);
	other.dev = base.dev;
	other.ino = base.ino + SRDMA_EXPOSED_BUCKETS;
	assert_int_equal(beside(&base, &other), 0);
	assert_true(is_empty());
}

/* --- against a list ------------------------------------------------------- */

struct entry {
	struct srdma_exposed e;
	struct srdma_exposure what;
};

static struct entry entries[RANGES];

static int conflict_in_list(const struct srdma_exposure *w)
{
	for (int i = 0; i < RANGES; i++) {
		const struct srdma_exposure *o = &entries[i].what;

		if (entries[i].e.set && o->ino == w->ino &&
		    o->trust != w->trust && (o->written || w->written) &&
		    !(o->shared && w->shared) && o->first <= w->last &&
		    w->first <= o->last)
			return 1;
	}
	return 0;
}

static struct srdma_exposure some(void)
{
	struct srdma_exposure w = base;

	w.ino = (uint64_t)(random() % FILES);
	w.trust = (uint64_t)(random() % TRUSTS);
	w.written = random() % 4 == 0;
	w.shared = random() % 2;
	w.first = (uint64_t)(random() % BYTES);
	w.last = w.first + (uint64_t)(random() % 40);
	return w;
}

static void test_random_ranges_agree_with_a_list(void **state)
{
	int refused = 0, added = 0;

	(void)state;
	srandom(1);
	memset(entries, 0, sizeof(entries));
	for (int i = 0; i < ROUNDS; i++) {
		struct entry *n = &entries[random() % RANGES];
		int r;

		srdma_exposed_remove(&table, &n->e);
		n->what = some();
		r = conflict_in_list(&n->what) ? -EBUSY : 0;
		assert_int_equal(srdma_exposed_add(&table, &n->e, &n->what,
						   (uint32_t)random()),
				 r);
		refused += r != 0;
		added += r == 0;
	}
	assert_true(refused > ROUNDS / 20 && added > ROUNDS / 20);
	for (int i = 0; i < RANGES; i++)
		srdma_exposed_remove(&table, &entries[i].e);
	assert_true(is_empty());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_byte_is_an_overlap),
		cmocka_unit_test(test_matrix_of_rights),
		cmocka_unit_test(test_files_are_known_by_device_and_inode),
		cmocka_unit_test(test_random_ranges_agree_with_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
