#include "tests.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

/* --- threads ------------------------------------------------------------- */

enum { THREADS = 3 };

/* Makes and ends objects of a PD of its own, on a device that others use. */
static void *use_device(void *device)
{
	const struct srdma_mr_attr attr = { .length = 100 };
	struct srdma_pd *pd;
	struct srdma_mr *mr;
	struct srdma_qp *qp;
	uint64_t value;
	long rc = 0;

	for (int i = 0; i < pair_count(30) && !rc; i++) {
		rc = srdma_alloc_pd(&pd, device, NULL);
		if (rc)
			break;
		rc |= srdma_alloc_mr(&mr, pd, &attr);
		rc |= srdma_create_qp(&qp, pd, NULL);
		rc |= srdma_query_counter(device, "legs", &value);
		rc |= srdma_destroy_qp(qp);
		rc |= srdma_dereg_mr(mr);
		rc |= srdma_dealloc_pd(pd);
	}
	return (void *)rc;
}

void test_threads_on_a_device(void **state)
{
	struct pair *p = *state;
	pthread_t threads[THREADS];
	void *rc;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_device,
						p->a.device),
				 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &rc);
		assert_null(rc);
	}
}

/* --- connections --------------------------------------------------------- */

void test_connection(void **state)
{
	struct pair *p = *state;
	struct srdma_connection_info info;

	srdma_query_connection(p->a.connection, &info);
	assert_string_equal(info.identity, "spiffe://test/b");
	assert_int_equal(info.data_len, 4);
	assert_memory_equal(info.data, "of b", 4);
	assert_int_equal(info.mode, SRDMA_MODE_BASIC);
	assert_int_equal(info.protection.suite, 1);
	assert_int_equal(info.protection.level, SRDMA_LEVEL_AEAD);
	assert_int_equal(info.protection.tag_len, 16);
	ok(srdma_renew(p->a.connection, WAIT_MS));
	ok(srdma_renew(p->a.connection, WAIT_MS));
	ok(srdma_check_connection(p->a.connection));
}

void test_closed_connection(void **state)
{
	struct pair *p = *state;
	struct srdma_wc wc;

	srdma_disconnect(p->b.connection);
	p->b.connection = NULL;
	assert_int_equal(
		pair_readable(srdma_connection_fd(p->a.connection), WAIT_MS),
		1);
	assert_int_equal(srdma_check_connection(p->a.connection), -ESHUTDOWN);
	assert_int_equal(srdma_check_connection(p->a.connection), -ESHUTDOWN);
	assert_int_equal(srdma_renew(p->a.connection, 1), -ESHUTDOWN);
	wc = pair_next(&p->a);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_PEER_CLOSED);
}

void test_used_qp(void **state)
{
	struct pair *p = *state;
	const struct srdma_connection_attr how = { .identity = "a",
						   .qps = &p->a.qp,
						   .n_qps = 1 };
	struct srdma_connection *connection;

	assert_int_equal(
		srdma_connect(&connection, p->a.pd, "127.0.0.1", 1, &how),
		-EINVAL);
	assert_null(connection);
}

static void on_alarm(int sign)
{
	(void)sign;
}

void test_listener(void **state)
{
	struct pair *p = *state;
	const struct srdma_listener_attr attr = { .identity = "b" };
	struct srdma_listener *listener;
	struct srdma_request request;
	const struct sigaction act = { .sa_handler = on_alarm };
	int rc;

	assert_int_equal(srdma_get_request(p->b.listener, &request, 10),
			 -ETIMEDOUT);
	assert_int_equal(srdma_listen(&listener, p->b.device, "127.0.0.1",
				      srdma_listener_port(p->b.listener),
				      &attr),
			 -EADDRINUSE);
	rc = srdma_listen(&listener, p->b.device, "no such host", 0, &attr);
	assert_true(rc == -EINVAL || rc == -EAGAIN); /* no name server */
	assert_int_equal(
		srdma_listen(&listener, p->b.device, "203.0.113.1", 0, &attr),
		-EADDRNOTAVAIL);
	assert_null(listener);
	ok(srdma_listen(&listener, p->b.device, NULL, 0, &attr));
	srdma_close_listener(listener);
	sigaction(SIGALRM, &act, NULL);
	alarm(1);
	assert_int_equal(srdma_get_request(p->b.listener, &request, -1),
			 -EINTR);
}

/* --- a leg that ends alone ----------------------------------------------- */

/* Finds up to n memories of legs in this process, in the order of addresses.
 * Returns their number. */
static int find_legs(uint8_t **at, int n)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int found = 0;

	assert_non_null(maps);
	while (found < n && fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:srdma-leg"))
			at[found++] =
				(uint8_t *)(uintptr_t)strtoull(line, NULL, 16);
	fclose(maps);
	return found;
}

/* Damages the count of the producer in the descriptor ring
 * (docs/local-interface.md 4.2) of the one leg that is not among others. */
static void damage_new_leg(uint8_t *const *others, int n)
{
	static const uint32_t wrong = 0x80000000;
	uint8_t *all[8];
	int found = find_legs(all, 8), damaged = 0;

	for (int i = 0; i < found; i++) {
		int known = 0;

		for (int k = 0; k < n; k++)
			known |= all[i] == others[k];
		if (known)
			continue;
		memcpy(all[i] + 64, &wrong, sizeof(wrong));
		damaged++;
	}
	assert_int_equal(damaged, 1);
}

/* The worker ends the leg; the program only waits. */
void test_damaged_ring(void **state)
{
	struct pair *p = *state;
	uint8_t *before[8];
	const int n = find_legs(before, 8);
	struct srdma_pd *pd;
	struct srdma_qp *qp;
	struct srdma_wc wc;

	if (!n) /* a leg over RDMA has no such ring */
		skip();
	ok(srdma_alloc_pd(&pd, p->a.device, NULL));
	ok(srdma_create_qp(&qp, pd, NULL));
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, 1500), 0); /* it lives */
	damage_new_leg(before, n);
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, -1), 1);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_WORKER_GONE);
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, -1), -ENOTCONN);
	ok(srdma_destroy_qp(qp));
	ok(srdma_dealloc_pd(pd));
	assert_int_equal(srdma_check_connection(p->a.connection), 0);
}

/* --- the end of a worker, last ------------------------------------------- */

void test_killed_worker(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);
	const struct srdma_mr_attr attr = { .length = 100 };
	const int fd = srdma_cq_fd(p->a.pd);
	struct srdma_mr *mr;
	struct srdma_wc wc;

	pair_post_receive(&p->a, 5, 10);
	srdma_req_notify_cq(p->a.pd);
	assert_int_equal(srdma_poll_cq(p->a.pd, 1, &wc), 0);
	kill(atoi(getenv("SRDMA_A_PID")), SIGKILL);
	assert_int_equal(pair_readable(fd, WAIT_MS), 1);
	wc = pair_next(&p->a);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_WORKER_GONE);
	wc = pair_next(&p->a);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.opcode, SRDMA_WC_RECV);
	assert_int_equal(srdma_wait_cq(p->a.pd, 1, &wc, WAIT_MS), -ENOTCONN);
	assert_int_equal(srdma_post_send(p->a.qp, &wr, NULL), -ENOTCONN);
	assert_int_equal(srdma_alloc_mr(&mr, p->a.pd, &attr), -ENOTCONN);
}
