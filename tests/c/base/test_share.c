/* Shares of a pool: who gives way (base/share.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/share.h"

enum { GROUPS = 3, EACH = 4, ALL = GROUPS * EACH, PLACES = 60, STEPS = 20000 };

static struct srdma_share_groups groups;
static struct srdma_share_group group[GROUPS];
static struct srdma_share holder[ALL];

static void begin(void)
{
	LIST_INIT(&groups);
	for (int i = 0; i < GROUPS; i++)
		group[i] = (struct srdma_share_group){ 0 };
	for (int i = 0; i < ALL; i++)
		holder[i] = (struct srdma_share){ .group = &group[i / EACH] };
}

static void take(int i, int n)
{
	while (n--)
		srdma_share_take(&groups, &holder[i]);
}

/* RFC 5042 R6.4.3.1-1 */
static void test_larger_groups_give_way_first(void **state)
{
	(void)state;
	begin();
	assert_null(srdma_share_yielding(&groups, &holder[0]));
	take(0, 10); /* one holder with much, in a small group */
	take(4, 6);
	take(5, 6);
	take(6, 7);
	assert_ptr_equal(srdma_share_yielding(&groups, &holder[0]), &holder[6]);
	assert_ptr_equal(srdma_share_yielding(&groups, &holder[8]), &holder[6]);
}

static void test_equal_shares_do_not_move(void **state)
{
	(void)state;
	begin();
	take(0, 5);
	take(4, 6);
	/* one more would only change places */
	assert_null(srdma_share_yielding(&groups, &holder[0]));
	assert_null(srdma_share_yielding(&groups, &holder[4]));
	take(4, 1);
	assert_ptr_equal(srdma_share_yielding(&groups, &holder[0]), &holder[4]);
	/* within a group */
	assert_ptr_equal(srdma_share_yielding(&groups, &holder[5]), &holder[4]);
	take(5, 6);
	assert_null(srdma_share_yielding(&groups, &holder[5]));
}

/* Holders of a full pool demand places at random: a group that demands gets its
 * equal part, and so does each of its holders. */
static void test_all_that_demand_become_equal(void **state)
{
	uint32_t seed = 1;

	(void)state;
	begin();
	take(0, PLACES); /* one holds everything at first */
	for (int n = 0; n < STEPS; n++) {
		struct srdma_share *from;
		int i;

		seed = seed * 1664525 + 1013904223;
		i = (int)(seed >> 8) % ALL;
		from = srdma_share_yielding(&groups, &holder[i]);
		if (!from)
			continue;
		srdma_share_give(from);
		take(i, 1);
	}
	for (int i = 0; i < GROUPS; i++)
		assert_in_range(group[i].count, PLACES / GROUPS - 1,
				PLACES / GROUPS + 1);
	for (int i = 0; i < ALL; i++)
		assert_in_range(holder[i].count, PLACES / ALL - 1,
				PLACES / ALL + 1);
	for (int i = 0; i < ALL; i++)
		while (holder[i].count)
			srdma_share_give(&holder[i]);
	assert_true(LIST_EMPTY(&groups));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_larger_groups_give_way_first),
		cmocka_unit_test(test_equal_shares_do_not_move),
		cmocka_unit_test(test_all_that_demand_become_equal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
