/* The table of QP states: exactly the listed moves are legal. */
#include "qp/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N SRDMA_QP_STATES

static void test_only_listed_moves_are_legal(void **state)
{
	/* Row: from, column: to; both in the order RESET, INIT, RTR, RTS, ERR. */
	static const int legal[N][N] = {
		{ 0, 1, 0, 0, 0 }, { 0, 0, 1, 0, 1 }, { 0, 0, 0, 1, 1 },
		{ 0, 0, 0, 0, 1 }, { 0, 0, 0, 0, 0 },
	};

	(void)state;
	for (unsigned from = 0; from < N; from++)
		for (unsigned to = 0; to < N; to++)
			assert_int_equal(srdma_state_may_move(from, to),
					 legal[from][to]);
	assert_false(srdma_state_may_move(N, SRDMA_QP_INIT));
	assert_false(srdma_state_may_move(SRDMA_QP_INIT, N));
}

static void test_abilities_of_states(void **state)
{
	(void)state;
	assert_false(srdma_state_can(SRDMA_QP_INIT, SRDMA_QP_OPENS));
	assert_true(srdma_state_can(SRDMA_QP_RTR, SRDMA_QP_OPENS));
	assert_false(srdma_state_can(SRDMA_QP_RTR, SRDMA_QP_SENDS));
	assert_true(srdma_state_can(SRDMA_QP_RTS, SRDMA_QP_SENDS));
	assert_false(srdma_state_can(SRDMA_QP_ERR, SRDMA_QP_WATCHES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_listed_moves_are_legal),
		cmocka_unit_test(test_abilities_of_states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
