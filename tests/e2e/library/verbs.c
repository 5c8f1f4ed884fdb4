/*
 * libsrdma between two workers: every operation, and every way in which one
 * fails. `verbs end` kills the worker of $SRDMA_A, whose pid is $SRDMA_A_PID.
 * `verbs rendezvous` connects by GID and QPN, which needs two system agents.
 * `verbs restart` does what the lines at its standard input say (restart.c), and
 * so does `verbs cut` (cut_link.c). `verbs speed` measures.
 */
#include <string.h>

#include "pair.h"
#include "tests.h"

#define each(test)                                                             \
	cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		each(test_write_and_read),
		each(test_inline_write_and_fenced_read),
		each(test_lists),
		each(test_messages),
		each(test_write_with_immediate_data),
		each(test_atomics),
		each(test_atomic_writes),
		each(test_existing_memory),
		each(test_fresh_memory),
		each(test_many_requests),
		each(test_notification),
		each(test_time_limit_of_a_wait),
		each(test_illegal_requests),
		each(test_illegal_lists),
		each(test_full_queue),
		each(test_wrong_rkey),
		each(test_rights_of_a_qp),
		each(test_scope_of_an_identity),
		each(test_withdrawn_region),
		each(test_destroyed_peer),
		each(test_objects_in_use),
		each(test_illegal_regions),
		each(test_illegal_objects),
		each(test_illegal_capabilities),
		each(test_threads_on_a_device),
		each(test_connection),
		each(test_closed_connection),
		each(test_used_qp),
		each(test_listener),
		each(test_damaged_ring),
	};
	const struct CMUnitTest end[] = { each(test_killed_worker) };
	const struct CMUnitTest rendezvous[] = { each(test_rendezvous) };
	const struct CMUnitTest restart[] = { each(test_restarted_agents) };
	const struct CMUnitTest cut[] = { each(test_cut_link) };
	const struct CMUnitTest speed[] = { each(test_speed) };

	if (argc > 1 && !strcmp(argv[1], "end"))
		return cmocka_run_group_tests(end, NULL, NULL);
	if (argc > 1 && !strcmp(argv[1], "rendezvous"))
		return cmocka_run_group_tests(rendezvous, NULL, NULL);
	if (argc > 1 && !strcmp(argv[1], "restart"))
		return cmocka_run_group_tests(restart, NULL, NULL);
	if (argc > 1 && !strcmp(argv[1], "cut"))
		return cmocka_run_group_tests(cut, NULL, NULL);
	if (argc > 1 && !strcmp(argv[1], "speed"))
		return cmocka_run_group_tests(speed, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
