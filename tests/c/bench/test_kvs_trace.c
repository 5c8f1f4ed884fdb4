/*
 * The request traces of the key-value store's clients (bench/kvs/zipf.h,
 * trace.h), and the latency classes of latency.h.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "latency.h"
#include "trace.h"
#include "zipf.h"

static void test_illegal_parameters_are_refused(void **state)
{
	struct kvs_zipf zipf;
	struct kvs_wish wish;

	(void)state;
	assert_int_equal(kvs_zipf_init(&zipf, 0, 0.5), -EINVAL);
	assert_int_equal(kvs_zipf_init(&zipf, 10, 1), -EINVAL);
	assert_int_equal(kvs_zipf_init(&zipf, 10, -0.1), -EINVAL);
	assert_int_equal(kvs_zipf_init(&zipf, 10, (double)NAN), -EINVAL);
	assert_null(kvs_mix_named("e"));
	assert_int_equal(kvs_trace_throw(&wish, 1, kvs_mix_named("a"),
					 KVS_MAX_RANKS + 1, 0, 1),
			 -EINVAL);
	assert_int_equal(kvs_trace_throw(&wish, 1, kvs_mix_named("a"), 0, 0, 1),
			 -EINVAL);
}

/* Few ranks: each draw is in range, at any theta. */
static void test_few_ranks(void **state)
{
	(void)state;
	for (uint64_t n = 1; n < 6; n++) {
		for (int theta = 0; theta < 100; theta += 33) {
			struct kvs_zipf zipf;
			uint64_t dice = n, seen = 0;

			kvs_zipf_init(&zipf, n, theta / 100.0);
			for (int i = 0; i < 1000; i++) {
				const uint64_t r = kvs_zipf_draw(&zipf, &dice);

				assert_true(r < n);
				seen |= (uint64_t)1 << r;
			}
			assert_int_equal(seen, ((uint64_t)1 << n) - 1);
		}
	}
}

/*
 * Compares the shares of ranks with the Zipf law. The method is exact for the
 * first two ranks and approximate after them: Gray's formula is within 10 %.
 */
static void check_law(double theta)
{
	enum { N = 1000, DRAWS = 1000000 };
	static uint32_t seen[N];
	struct kvs_zipf zipf;
	uint64_t dice = 7;
	double sum = 0, drawn = 0, due = 0;

	memset(seen, 0, sizeof(seen));
	assert_int_equal(kvs_zipf_init(&zipf, N, theta), 0);
	for (int i = 0; i < DRAWS; i++)
		seen[kvs_zipf_draw(&zipf, &dice)]++;
	for (int i = 1; i <= N; i++)
		sum += pow(i, -theta);
	for (int i = 0; i < N; i++) {
		const double share = pow(i + 1, -theta) / sum;

		drawn += (double)seen[i] / DRAWS;
		due += share;
		if (i < 2)
			assert_true(fabs(drawn - due) < 0.02 * due);
		assert_true(fabs(drawn - due) < 0.10 * due);
	}
}

static void test_zipf_law(void **state)
{
	(void)state;
	check_law(0);
	check_law(0.5);
	check_law(0.99);
}

static void test_shares_of_reads(void **state)
{
	enum { N = 100000 };
	static struct kvs_wish wishes[N];
	const struct kvs_mix_row *mix;
	unsigned i = 0;

	(void)state;
	for (; (mix = kvs_mix_at(i)); i++) {
		uint32_t reads = 0;

		assert_ptr_equal(kvs_mix_named(mix->name), mix);
		assert_int_equal(
			kvs_trace_throw(wishes, N, mix, 1 << 20, 0.99, 3), 0);
		for (uint32_t k = 0; k < N; k++) {
			assert_true(wishes[k].rank < 1 << 20);
			reads += wishes[k].read;
		}
		assert_true(abs((int)reads - mix->reads * N / 100) < N / 100);
	}
	assert_int_equal(i, 6);
}

static void test_same_seed_same_trace(void **state)
{
	struct kvs_wish a[100], b[100];

	(void)state;
	kvs_trace_throw(a, 100, kvs_mix_named("a"), 1000, 0.99, 3);
	kvs_trace_throw(b, 100, kvs_mix_named("a"), 1000, 0.99, 3);
	assert_memory_equal(a, b, sizeof(a));
	kvs_trace_throw(b, 100, kvs_mix_named("a"), 1000, 0.99, 4);
	assert_memory_not_equal(a, b, sizeof(a));
}

static void test_classes_of_latency(void **state)
{
	struct kvs_latency *l = calloc(1, sizeof(*l));
	unsigned last = 0;

	(void)state;
	assert_non_null(l);
	assert_int_equal(kvs_latency_quantile(l, 0.5), 0);
	for (uint64_t ns = 1; ns; ns <<= 1) {
		for (uint64_t part = 0; part < 16; part++) {
			const uint64_t t = ns + part * (ns >> 4);
			const unsigned class = kvs_latency_class(t);

			assert_true(class >= last && class < KVS_CLASSES);
			last = class;
		}
	}
	assert_int_equal(kvs_latency_class(UINT64_MAX), KVS_CLASSES - 1);
	for (uint64_t ns = 1; ns <= 100000; ns++)
		kvs_latency_add(l, ns);
	for (int percent = 1; percent <= 100; percent++) {
		const double is =
			(double)kvs_latency_quantile(l, percent / 100.0);

		assert_true(is > percent * 992 && is < percent * 1008);
	}
	free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_illegal_parameters_are_refused),
		cmocka_unit_test(test_few_ranks),
		cmocka_unit_test(test_zipf_law),
		cmocka_unit_test(test_shares_of_reads),
		cmocka_unit_test(test_same_seed_same_trace),
		cmocka_unit_test(test_classes_of_latency),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
