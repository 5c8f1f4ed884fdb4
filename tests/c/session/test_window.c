#include "session/window.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NONE UINT64_MAX

static const uint64_t K24 = 1ull << 24, K32 = 1ull << 32, K62 = 1ull << 62;
static const uint64_t HALF = 1ull << 23;

static uint64_t infer(uint64_t expected, uint64_t low)
{
	uint64_t c = 12345;

	if (srdma_window_infer(&c, expected, (uint32_t)(low & 0xffffff))) {
		assert_int_equal(c, 12345);
		return NONE;
	}
	return c;
}

/* Expected numbers around each base, where one of the fields wraps. */
/* review A14 */
static void test_inference_near_wraps(void **state)
{
	const uint64_t bases[] = { HALF,       K24 - 5,	  K24,
				   K24 + HALF, K32 - 5,	  K32,
				   K62 / 2,    K62 - K24, K62 - HALF };

	(void)state;
	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		for (uint64_t e = bases[i] - 3; e <= bases[i] + 9; e++) {
			assert_int_equal(infer(e, e), e);
			assert_int_equal(infer(e, e - 1), e - 1);
			assert_int_equal(infer(e, e + 1), e + 1);
			/*
			 * 2^23 above and 2^23 below have the same 24 bits; the
			 * one above is inferred.
			 */
			if (e + HALF < K62)
				assert_int_equal(infer(e, e + HALF), e + HALF);
			if (e + HALF + 1 >= K24)
				assert_int_equal(infer(e, e + HALF + 1),
						 e + HALF + 1 - K24);
			if (e + HALF - 1 < K62)
				assert_int_equal(infer(e, e + HALF - 1),
						 e + HALF - 1);
		}
	}
}

static void test_inference_at_ends(void **state)
{
	(void)state;
	assert_int_equal(infer(0, 0), 0);
	assert_int_equal(infer(0, HALF), HALF);
	assert_int_equal(infer(0, HALF + 1), NONE); /* would be below 0 */
	assert_int_equal(infer(0, K24 - 1), NONE);
	assert_int_equal(infer(5, HALF + 5), HALF + 5);
	assert_int_equal(infer(5, HALF + 6), NONE);
	assert_int_equal(infer(HALF, 0), K24);
	assert_int_equal(infer(HALF, 1), 1);
	assert_int_equal(infer(HALF - 1, K24 - 1), K24 - 1);
	/* numbers from K62 on do not exist */
	assert_int_equal(infer(K62 - 5, K62 - 1), K62 - 1);
	assert_int_equal(infer(K62 - 5, 0), NONE);
	assert_int_equal(infer(K62, 0), NONE);
	assert_int_equal(infer(K62, K24 - 1), K62 - 1);
	assert_int_equal(infer(K62 - HALF, 0), NONE);
	assert_int_equal(infer(K62 - HALF - 1, 0), K62 - K24);
}

/*
 * The inferred number is the nearest one with these 24 bits, by the definition
 * in 4.1.
 */
/* RFC 5042 X3 */
static void test_inferred_number_is_nearest(void **state)
{
	uint64_t seed = 0x9e3779b97f4a7c15;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint64_t e, p, c;

		seed = seed * 6364136223846793005 + 1442695040888963407;
		e = (seed >> 2) >> (seed % 62);
		p = seed >> 40;
		c = infer(e, p);
		if (c == NONE) {
			/* the nearest one is below 0 or exceeds 62 bits */
			assert_true(e < HALF || e > K62 - HALF - 1);
			continue;
		}
		assert_int_equal(c & 0xffffff, p & 0xffffff);
		assert_true(c < K62 && c <= e + HALF && c + HALF > e);
	}
}

/* A simple model of the window. */
struct model {
	uint64_t base, next;
	uint32_t size;
	uint8_t seen[1 << 16];
};

static int model_test(const struct model *m, uint64_t pn)
{
	if (pn < m->next && pn + m->size <= m->next - 1)
		return -ESTALE;
	return m->seen[pn - m->base] ? -ESTALE : 0;
}

static void against_model(uint64_t base, uint32_t size)
{
	static struct model m;
	struct srdma_window w;
	uint32_t seed = 1;

	memset(&m, 0, sizeof(m));
	m.base = base;
	m.size = size;
	m.next = base + 2000;
	srdma_window_init(&w, m.next, size);
	for (int i = 0; i < 60000; i++) {
		uint64_t pn;
		int r;

		seed = seed * 1664525 + 1013904223;
		/* mostly near the edge, sometimes a leap */
		if ((seed >> 8) % 500 == 0)
			pn = m.next + (seed >> 17) % 3000;
		else
			pn = m.next + 4 - (seed >> 16) % (size + 12);
		if (pn - base >= sizeof(m.seen) || pn < base)
			break;
		r = srdma_window_test(&w, pn);
		assert_int_equal(r, model_test(&m, pn));
		if (r || (seed >> 9) % 3 == 0)
			continue; /* refused, or its tag failed */
		srdma_window_commit(&w, pn);
		m.seen[pn - base] = 1;
		if (pn >= m.next)
			m.next = pn + 1;
		assert_int_equal(w.next, m.next);
	}
}

static void test_random_numbers_match_model(void **state)
{
	const uint64_t bases[] = { 0, HALF, K24 - 5000, K32 - 5000,
				   K62 - 65536 };

	(void)state;
	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		against_model(bases[i], 64);
		against_model(bases[i], 1024);
	}
}

static struct srdma_window w;

/* Tests a number and commits it if accepted. Returns 1 if it was. */
static int take(uint64_t pn)
{
	int r = srdma_window_test(&w, pn);

	if (!r)
		srdma_window_commit(&w, pn);
	return !r;
}

static const uint32_t sizes[] = { 64, 1024 };

/* The steps of WireGuard's selftest/counter.c, for both sizes. */
static void test_wireguard_steps(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const uint64_t n = sizes[i];
		const struct {
			uint64_t pn;
			int taken;
		} rows[] = {
			{ 0, 1 },
			{ 1, 1 },
			{ 1, 0 },
			{ 9, 1 },
			{ 8, 1 },
			{ 7, 1 },
			{ 7, 0 },
			{ n, 1 },
			{ n - 1, 1 },
			{ n - 1, 0 },
			{ n - 2, 1 },
			{ 2, 1 },
			{ 2, 0 },
			{ n + 16, 1 },
			{ 3, 0 },
			{ n + 16, 0 },
			{ 16, 0 },
			{ 17, 1 },
			{ n * 4, 1 },
			{ n * 4 - n, 0 },
			{ n * 4 - (n - 1), 1 },
			{ 10, 0 },
			{ n * 4 - n - 1, 0 },
			{ n * 4 + 1 - n, 0 },
			{ n * 4 + 3, 1 },
			{ n * 4 - (n - 1), 0 },
			{ n * 4 + 2, 1 },
			{ K32, 1 },
			{ K32, 0 },
			{ K32 - n, 0 },
			{ K32 - n + 1, 1 },
			{ K32 - n + 1, 0 },
			{ K32 - 1, 1 },
			{ 0, 0 },
			{ K62 - 1, 1 },
			{ K62 - 1, 0 },
			{ K62 - n, 1 },
			{ K62 - n - 1, 0 },
		};

		srdma_window_init(&w, 0, sizes[i]);
		for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
			if (take(rows[k].pn) != rows[k].taken)
				print_error("size %u, row %zu\n", sizes[i], k);
			else
				continue;
			fail();
		}
	}
}

/* Upwards, then downwards over the whole window, then each number again. */
static void test_sweeps(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const uint64_t n = sizes[i];

		for (uint64_t start = 0; start < 70; start += 23) {
			srdma_window_init(&w, start, sizes[i]);
			for (uint64_t k = 0; k < n; k++)
				assert_true(take(start + k));
			for (uint64_t k = 0; k < n; k++)
				assert_false(take(start + k));
			/* leave gaps, then fill them downwards */
			assert_true(take(start + 2 * n - 1));
			for (uint64_t k = 1; k < n; k++)
				assert_true(take(start + 2 * n - 1 - k));
			assert_false(take(start + n - 1));
			/* a leap beyond the window clears it */
			assert_true(take(start + 100 * n));
			for (uint64_t k = 1; k < n; k++)
				assert_true(take(start + 100 * n - k));
			assert_false(take(start + 99 * n));
		}
	}
}

/*
 * The last number outside the window and the first inside, at every alignment.
 */
static void test_window_edges(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		for (uint64_t top = 5000; top < 5200; top++) {
			srdma_window_init(&w, 100, sizes[i]);
			assert_true(take(top));
			assert_int_equal(srdma_window_test(&w, top), -ESTALE);
			assert_int_equal(srdma_window_test(&w, top - sizes[i]),
					 -ESTALE);
			assert_int_equal(
				srdma_window_test(&w, top - sizes[i] + 1), 0);
			assert_int_equal(srdma_window_test(&w, top + 1), 0);
		}
	}
}

/* A test alone changes nothing. */
/* RFC 5042 X3 */
static void test_testing_changes_nothing(void **state)
{
	struct srdma_window before;

	(void)state;
	srdma_window_init(&w, 1000, 64);
	assert_true(take(1000));
	before = w;
	for (uint64_t pn = 0; pn < 5000; pn++)
		srdma_window_test(&w, pn);
	assert_memory_equal(&w, &before, sizeof(w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inference_near_wraps),
		cmocka_unit_test(test_inference_at_ends),
		cmocka_unit_test(test_inferred_number_is_nearest),
		cmocka_unit_test(test_random_numbers_match_model),
		cmocka_unit_test(test_wireguard_steps),
		cmocka_unit_test(test_sweeps),
		cmocka_unit_test(test_window_edges),
		cmocka_unit_test(test_testing_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
