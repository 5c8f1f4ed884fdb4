#include "wire/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The name of the counter at a byte offset of the struct. */
static const char *name_at(size_t offset)
{
	return srdma_stats_name((unsigned)(offset / sizeof(uint64_t)));
}

static void test_names_match_struct(void **state)
{
	const size_t refused = offsetof(struct srdma_stats, refused);
	const size_t reason = offsetof(struct srdma_stats, reason);

	(void)state;
	assert_string_equal(srdma_stats_name(0), "packets_sealed");
	assert_string_equal(name_at(offsetof(struct srdma_stats, wakeups)),
			    "wakeups");
	assert_string_equal(name_at(refused + 8 * SRDMA_REFUSED_SHORT),
			    "refused_short");
	assert_string_equal(name_at(refused + 8 * SRDMA_REFUSED_TAG),
			    "refused_tag");
	assert_string_equal(name_at(refused + 8 * SRDMA_REFUSED_UNSOLICITED),
			    "refused_unsolicited");
	assert_string_equal(name_at(reason + 8 * SRDMA_REASON_BAD_RKEY),
			    "reason_BAD_RKEY");
	assert_string_equal(name_at(reason + 8 * SRDMA_REASON_QP_STATE),
			    "reason_QP_STATE");
}

static void test_unused_codes_have_no_name(void **state)
{
	(void)state;
	assert_null(name_at(offsetof(struct srdma_stats, refused)));
	assert_null(name_at(offsetof(struct srdma_stats, reason) + 8 * 18));
	assert_null(srdma_stats_name(srdma_stats_count()));
	assert_null(srdma_stats_name(~0u));
}

static void test_names_are_unique(void **state)
{
	(void)state;
	assert_int_equal(srdma_stats_count() * sizeof(uint64_t),
			 sizeof(struct srdma_stats));
	for (unsigned i = 0; i < srdma_stats_count(); i++)
		for (unsigned j = 0; srdma_stats_name(i) && j < i; j++)
			if (srdma_stats_name(j))
				assert_string_not_equal(srdma_stats_name(i),
							srdma_stats_name(j));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_match_struct),
		cmocka_unit_test(test_unused_codes_have_no_name),
		cmocka_unit_test(test_names_are_unique),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
