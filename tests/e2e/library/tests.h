/*
 * Tests of libsrdma between two workers, each a function for cmocka with
 * pair_setup() and pair_teardown().
 */
#ifndef SRDMA_TESTS_TESTS_H
#define SRDMA_TESTS_TESTS_H

/* operations.c */
void test_write_and_read(void **state);
void test_inline_write_and_fenced_read(void **state);
void test_lists(void **state);
void test_messages(void **state);
void test_write_with_immediate_data(void **state);
void test_atomics(void **state);
void test_atomic_writes(void **state);
void test_existing_memory(void **state);
void test_fresh_memory(void **state);
void test_many_requests(void **state);
void test_notification(void **state);
void test_time_limit_of_a_wait(void **state);

/* refusals.c */
void test_illegal_requests(void **state);
void test_illegal_lists(void **state);
void test_full_queue(void **state);
void test_wrong_rkey(void **state);
void test_rights_of_a_qp(void **state);
void test_scope_of_an_identity(void **state);
void test_withdrawn_region(void **state);
void test_destroyed_peer(void **state);
void test_objects_in_use(void **state);
void test_illegal_regions(void **state);
void test_illegal_objects(void **state);
void test_illegal_capabilities(void **state);

/* connections.c */
void test_threads_on_a_device(void **state);
void test_connection(void **state);
void test_closed_connection(void **state);
void test_used_qp(void **state);
void test_listener(void **state);
void test_damaged_ring(void **state);
void test_killed_worker(void **state);

/* rendezvous.c */
void test_rendezvous(void **state);

/* restart.c */
void test_restarted_agents(void **state);

/* cut_link.c */
void test_cut_link(void **state);

/* speed.c */
void test_speed(void **state);

#endif
