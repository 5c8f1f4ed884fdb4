/* The table of QP states (docs/protocol.md 7). */
#include "qp/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Columns: RESET, INIT, RTR, RTS, ERR. */
static const char *const moves[SRDMA_QP_STATES] = {
	[SRDMA_QP_RESET] = ".x...", [SRDMA_QP_INIT] = "x.x.x",
	[SRDMA_QP_RTR] = "x..xx",   [SRDMA_QP_RTS] = "x...x",
	[SRDMA_QP_ERR] = "x....",
};

static void test_moves(void **state)
{
	(void)state;
	for (unsigned from = 0; from < SRDMA_QP_STATES; from++)
		for (unsigned to = 0; to < SRDMA_QP_STATES; to++)
			assert_int_equal(srdma_state_may_move(from, to),
					 moves[from][to] == 'x');
	assert_int_equal(srdma_state_may_move(SRDMA_QP_STATES, 0), 0);
	assert_int_equal(srdma_state_may_move(0, SRDMA_QP_STATES), 0);
}

/* Before a packet of the peer was verified, no request leaves. */
static void test_abilities(void **state)
{
	static const enum srdma_qp_ability abilities[] = { SRDMA_QP_OPENS,
							   SRDMA_QP_SENDS,
							   SRDMA_QP_WATCHES };
	/* rows as in `abilities`, columns as in `moves` */
	static const char *const can[] = { "..xx.", "...x.", "..xx." };

	(void)state;
	for (int i = 0; i < 3; i++)
		for (unsigned s = 0; s < SRDMA_QP_STATES; s++)
			assert_int_equal(srdma_state_can(s, abilities[i]),
					 can[i][s] == 'x');
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(srdma_state_name(SRDMA_QP_RESET), "RESET");
	assert_string_equal(srdma_state_name(SRDMA_QP_RTS), "RTS");
	assert_string_equal(srdma_state_name(SRDMA_QP_STATES), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_abilities),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
