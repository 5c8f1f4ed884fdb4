/*
 * libsrdma between two workers: every operation, and every way in which one
 * fails. Both ends are in this process. $SRDMA_A and $SRDMA_B are the control
 * sockets of the workers, $SRDMA_AGENT the agent of both.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <srdma/srdma.h>

enum { SIZE = 65536, WAIT_MS = 20000, DEPTH = 4 };

#define ok(call)                                                               \
	do {                                                                   \
		int rc_ = (call);                                              \
		if (rc_ < 0)                                                   \
			fail_msg("%s: %d: %s", #call, rc_,                     \
				 srdma_error_text());                          \
	} while (0)

struct end {
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
	struct srdma_mr *mr;
	struct srdma_mr_info memory;
	struct srdma_connection *connection;
	struct srdma_listener *listener;
	int rc; /* of the thread that accepts */
	char text[512];
};

struct pair {
	struct end a, b; /* a connects to b */
};

static void open_end(struct end *e, const char *worker, uint32_t access)
{
	const struct srdma_mr_attr attr = { .length = SIZE, .access = access };
	const struct srdma_qp_attr qp = { .sq = DEPTH, .rq = DEPTH };

	ok(srdma_open_device(&e->device, getenv(worker), NULL));
	ok(srdma_alloc_pd(&e->pd, e->device, NULL));
	ok(srdma_alloc_mr(&e->mr, e->pd, &attr));
	srdma_query_mr(e->mr, &e->memory);
	assert_int_equal(e->memory.length, SIZE);
	ok(srdma_create_qp(&e->qp, e->pd, &qp));
}

static void close_end(struct end *e)
{
	ok(srdma_destroy_qp(e->qp));
	srdma_disconnect(e->connection);
	ok(srdma_dereg_mr(e->mr));
	srdma_close_listener(e->listener);
	ok(srdma_dealloc_pd(e->pd));
	ok(srdma_close_device(e->device));
}

static void *accepting(void *arg)
{
	struct end *b = arg;
	const struct srdma_connection_attr how = { .identity = "b",
						   .qps = &b->qp,
						   .n_qps = 1,
						   .data = "of b",
						   .data_len = 4 };
	struct srdma_request request;

	b->rc = srdma_get_request(b->listener, &request, WAIT_MS);
	if (!b->rc)
		b->rc = srdma_accept(&b->connection, b->pd, &request, &how);
	strcpy(b->text, srdma_error_text());
	return NULL;
}

static void join(struct pair *p)
{
	const struct srdma_listener_attr attr = { .identity = "b" };
	const struct srdma_connection_attr how = { .identity = "a",
						   .qps = &p->a.qp,
						   .n_qps = 1,
						   .data = "of a",
						   .data_len = 4 };
	pthread_t thread;

	ok(srdma_listen(&p->b.listener, p->b.device, "127.0.0.1", 0, &attr));
	assert_int_equal(pthread_create(&thread, NULL, accepting, &p->b), 0);
	ok(srdma_connect(&p->a.connection, p->a.pd, "127.0.0.1",
			 srdma_listener_port(p->b.listener), &how));
	pthread_join(thread, NULL);
	if (p->b.rc)
		fail_msg("accept: %d: %s", p->b.rc, p->b.text);
}

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	open_end(&p->a, "SRDMA_A", SRDMA_ACCESS_LOCAL_WRITE);
	open_end(&p->b, "SRDMA_B", SRDMA_ACCESS_ALL);
	join(p);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	close_end(&p->a);
	close_end(&p->b);
	free(p);
	return 0;
}

/* The next completion of an end. */
static struct srdma_wc next(struct end *e)
{
	struct srdma_wc wc;
	int n = srdma_wait_cq(e->pd, 1, &wc, WAIT_MS);

	if (n != 1)
		fail_msg("no completion: %d: %s", n, srdma_error_text());
	return wc;
}

static struct srdma_wc next_ok(struct end *e, enum srdma_wc_opcode opcode)
{
	struct srdma_wc wc = next(e);

	if (wc.status)
		fail_msg("%s: %s", srdma_reason_name(wc.vendor_err),
			 srdma_reason_text(wc.vendor_err));
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_NONE);
	return wc;
}

/* A request of a on b's region. */
static struct srdma_send_wr
request(const struct pair *p, enum srdma_wr_opcode opcode, uint32_t length)
{
	return (struct srdma_send_wr){
		.wr_id = 7,
		.opcode = opcode,
		.flags = SRDMA_SEND_SIGNALED,
		.addr = p->a.memory.addr,
		.length = length,
		.lkey = p->a.memory.key,
		.rkey = p->b.memory.key,
		.remote_addr = (uintptr_t)p->b.memory.addr,
	};
}

static void run(struct pair *p, struct srdma_send_wr *wr,
		enum srdma_wc_opcode opcode)
{
	struct srdma_wc wc;

	ok(srdma_post_send(p->a.qp, wr, NULL));
	wc = next_ok(&p->a, opcode);
	assert_int_equal(wc.wr_id, wr->wr_id);
	assert_int_equal(wc.byte_len, wr->length);
}

static void post_receive(struct end *e, uint64_t wr_id, uint32_t length)
{
	struct srdma_recv_wr wr = { .wr_id = wr_id,
				    .addr = e->memory.addr,
				    .length = length,
				    .lkey = e->memory.key };

	ok(srdma_post_recv(e->qp, &wr, NULL));
}

/* --- operations ---------------------------------------------------------- */

static void test_write_and_read(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE, SIZE);

	memset(p->a.memory.addr, 'w', SIZE);
	run(p, &wr, SRDMA_WC_RDMA_WRITE);
	assert_memory_equal(p->a.memory.addr, p->b.memory.addr, SIZE);

	memset(p->b.memory.addr, 'r', SIZE);
	wr.opcode = SRDMA_WR_RDMA_READ;
	run(p, &wr, SRDMA_WC_RDMA_READ);
	assert_memory_equal(p->a.memory.addr, p->b.memory.addr, SIZE);
}

static void test_inline_write_and_fenced_read(void **state)
{
	struct pair *p = *state;
	char data[SRDMA_INLINE_MAX];
	struct srdma_send_wr read =
		request(p, SRDMA_WR_RDMA_READ, sizeof(data));
	struct srdma_send_wr write =
		request(p, SRDMA_WR_RDMA_WRITE, sizeof(data));

	memset(data, 'i', sizeof(data));
	write.addr = data;
	write.lkey = 0;
	write.flags = SRDMA_SEND_INLINE;
	write.next = &read;
	read.flags = SRDMA_SEND_SIGNALED | SRDMA_SEND_FENCE;
	ok(srdma_post_send(p->a.qp, &write, NULL));
	memset(data, 'x', sizeof(data)); /* it was copied */
	next_ok(&p->a, SRDMA_WC_RDMA_READ);
	memset(data, 'i', sizeof(data));
	assert_memory_equal(p->a.memory.addr, data, sizeof(data));
}

static void test_messages(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_SEND, 5);
	struct srdma_wc wc;

	post_receive(&p->b, 1, 100);
	memcpy(p->a.memory.addr, "hello", 5);
	run(p, &wr, SRDMA_WC_SEND);
	wc = next_ok(&p->b, SRDMA_WC_RECV);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.byte_len, 5);
	assert_int_equal(wc.wc_flags, 0);
	assert_memory_equal(p->b.memory.addr, "hello", 5);

	post_receive(&p->b, 2, 100);
	wr.opcode = SRDMA_WR_SEND_WITH_IMM;
	wr.imm_data = 0x01020304;
	wr.length = 0;
	wr.addr = NULL;
	wr.flags |= SRDMA_SEND_INLINE;
	run(p, &wr, SRDMA_WC_SEND);
	wc = next_ok(&p->b, SRDMA_WC_RECV);
	assert_int_equal(wc.wc_flags, SRDMA_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, 0x01020304);
	assert_int_equal(wc.byte_len, 0);
}

static void test_write_with_immediate_data(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE_WITH_IMM, 10);
	struct srdma_wc wc;

	post_receive(&p->b, 3, 0);
	wr.imm_data = 9;
	run(p, &wr, SRDMA_WC_RDMA_WRITE);
	wc = next_ok(&p->b, SRDMA_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.imm_data, 9);
	assert_int_equal(wc.byte_len, 10);
}

static void test_atomics(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_ATOMIC_FETCH_AND_ADD, 8);
	uint64_t *number = p->b.memory.addr, *old = p->a.memory.addr;

	*number = 40;
	wr.compare_add = 2;
	run(p, &wr, SRDMA_WC_FETCH_ADD);
	assert_int_equal(*old, 40);
	assert_int_equal(*number, 42);

	wr.opcode = SRDMA_WR_ATOMIC_CMP_AND_SWP;
	wr.compare_add = 42;
	wr.swap = 1000;
	run(p, &wr, SRDMA_WC_COMP_SWAP);
	assert_int_equal(*old, 42);
	assert_int_equal(*number, 1000);
	run(p, &wr, SRDMA_WC_COMP_SWAP); /* it does not compare equal now */
	assert_int_equal(*old, 1000);
	assert_int_equal(*number, 1000);
}

static void test_existing_memory(void **state)
{
	struct pair *p = *state;
	char data[100] = "of this process";
	const struct srdma_mr_attr attr = { .addr = data,
					    .length = sizeof(data) };
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE, sizeof(data));
	struct srdma_mr_info info;
	struct srdma_mr *mr;

	ok(srdma_reg_mr(&mr, p->a.pd, &attr));
	srdma_query_mr(mr, &info);
	assert_ptr_equal(info.addr, data);
	wr.addr = data;
	wr.lkey = info.key;
	run(p, &wr, SRDMA_WC_RDMA_WRITE);
	assert_string_equal(p->b.memory.addr, data);
	ok(srdma_dereg_mr(mr));
}

/* More requests than places in the ring of the leg and in the queue. */
static void test_many_requests(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE, 8);
	struct srdma_wc wcs[DEPTH];
	uint64_t posted = 0, done = 0;

	while (done < 20000) {
		int rc = 0, n;

		while (posted < 20000 && !rc) {
			wr.wr_id = posted;
			rc = srdma_post_send(p->a.qp, &wr, NULL);
			posted += !rc;
		}
		assert_true(!rc || rc == -EAGAIN);
		n = srdma_wait_cq(p->a.pd, DEPTH, wcs, WAIT_MS);
		assert_true(n > 0);
		for (int i = 0; i < n; i++) {
			assert_int_equal(wcs[i].status, SRDMA_WC_SUCCESS);
			assert_int_equal(wcs[i].wr_id, done++);
		}
	}
}

/* --- waiting ------------------------------------------------------------- */

static int readable(int fd, int ms)
{
	struct pollfd f = { .fd = fd, .events = POLLIN };

	return poll(&f, 1, ms);
}

static void test_notification(void **state)
{
	struct pair *p = *state;
	const int fd = srdma_cq_fd(p->b.pd);
	struct srdma_send_wr wr = request(p, SRDMA_WR_SEND, 1);
	struct srdma_wc wc;

	assert_int_equal(srdma_poll_cq(p->b.pd, 1, &wc), 0);
	srdma_req_notify_cq(p->b.pd);
	assert_int_equal(srdma_poll_cq(p->b.pd, 1, &wc), 0);
	assert_int_equal(readable(fd, 0), 0);
	post_receive(&p->b, 1, 1);
	run(p, &wr, SRDMA_WC_SEND);
	assert_int_equal(readable(fd, WAIT_MS), 1);
	next_ok(&p->b, SRDMA_WC_RECV);
	assert_int_equal(readable(fd, 0), 0);
}

static void test_time_limit_of_a_wait(void **state)
{
	struct pair *p = *state;
	struct srdma_wc wc;

	assert_int_equal(srdma_wait_cq(p->a.pd, 1, &wc, 10), 0);
	assert_int_equal(srdma_poll_cq(p->a.pd, -1, &wc), -EINVAL);
	assert_int_equal(srdma_poll_cq(p->a.pd, 0, &wc), 0);
}

/* --- refusals ------------------------------------------------------------ */

static void expect_post(struct pair *p, struct srdma_send_wr wr, int rc)
{
	struct srdma_send_wr *bad = NULL;

	assert_int_equal(srdma_post_send(p->a.qp, &wr, &bad), rc);
	assert_ptr_equal(bad, &wr);
	assert_string_not_equal(srdma_error_text(), "");
}

static void test_illegal_requests(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE, 8);

	wr.opcode = (enum srdma_wr_opcode)0;
	expect_post(p, wr, -EINVAL);
	wr.opcode = (enum srdma_wr_opcode)16; /* a RECV among descriptors */
	expect_post(p, wr, -EINVAL);
	wr.opcode = SRDMA_WR_RDMA_WRITE;
	wr.flags = 8;
	expect_post(p, wr, -EINVAL);
	wr.flags = SRDMA_SEND_INLINE;
	wr.length = SRDMA_INLINE_MAX + 1;
	expect_post(p, wr, -EMSGSIZE);
	wr.opcode = SRDMA_WR_RDMA_READ;
	wr.length = 8;
	expect_post(p, wr, -EINVAL);
	wr.flags = 0;
	wr.length = SRDMA_MESSAGE_MAX + 1U;
	expect_post(p, wr, -EMSGSIZE);
	wr.opcode = SRDMA_WR_ATOMIC_FETCH_AND_ADD;
	wr.length = 4;
	expect_post(p, wr, -EINVAL);
	wr.opcode = SRDMA_WR_SEND;
	wr.capability = 1;
	expect_post(p, wr, -EINVAL);
}

static void test_full_queue(void **state)
{
	struct pair *p = *state;
	struct srdma_recv_wr receives[DEPTH + 1], *bad;
	struct srdma_send_wr sends[DEPTH + 1], *bad_send;

	for (int i = 0; i <= DEPTH; i++) {
		receives[i] = (struct srdma_recv_wr){
			.addr = p->a.memory.addr,
			.length = 1,
			.lkey = p->a.memory.key,
			.next = i < DEPTH ? &receives[i + 1] : NULL,
		};
		sends[i] = request(p, SRDMA_WR_RDMA_WRITE, 1);
		sends[i].next = i < DEPTH ? &sends[i + 1] : NULL;
	}
	assert_int_equal(srdma_post_recv(p->a.qp, receives, &bad), -EAGAIN);
	assert_ptr_equal(bad, &receives[DEPTH]);
	assert_int_equal(srdma_post_send(p->a.qp, sends, &bad_send), -EAGAIN);
	assert_ptr_equal(bad_send, &sends[DEPTH]);
	for (int i = 0; i < DEPTH; i++)
		next_ok(&p->a, SRDMA_WC_RDMA_WRITE);
	ok(srdma_post_send(p->a.qp, bad_send, NULL));
	next_ok(&p->a, SRDMA_WC_RDMA_WRITE);
}

/* A failed request, the flushed one behind it, and the event of the QP. */
static void test_wrong_rkey(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE, 8);
	struct srdma_qp_query query;
	struct srdma_wc wc;

	srdma_query_qp(p->a.qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_CONNECTED);
	wr.rkey++;
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_BAD_RKEY);
	assert_int_equal(wc.qp_num, query.qp_num);
	wc = next(&p->a);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.wr_id, 0);
	srdma_query_qp(p->a.qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_ERROR);
	assert_int_equal(query.reason, SRDMA_REASON_BAD_RKEY);
	assert_string_equal(srdma_reason_name(query.reason), "BAD_RKEY");
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_WR_FLUSH_ERR);
}

static void test_destroyed_peer(void **state)
{
	struct pair *p = *state;
	struct srdma_wc wc;

	ok(srdma_destroy_qp(p->b.qp));
	p->b.qp = NULL;
	wc = next(&p->a);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_PEER_CLOSED);
}

static void test_objects_in_use(void **state)
{
	struct pair *p = *state;

	assert_int_equal(srdma_dealloc_pd(p->a.pd), -EBUSY);
	assert_int_equal(srdma_close_device(p->a.device), -EBUSY);
	ok(srdma_destroy_qp(NULL));
	ok(srdma_dereg_mr(NULL));
	ok(srdma_dealloc_pd(NULL));
	ok(srdma_close_device(NULL));
	srdma_disconnect(NULL);
	srdma_close_listener(NULL);
}

static void expect_mr(struct pair *p, struct srdma_mr_attr attr, int rc)
{
	struct srdma_mr *mr;

	assert_int_equal((attr.addr ? srdma_reg_mr
				    : srdma_alloc_mr)(&mr, p->a.pd, &attr),
			 rc);
	assert_null(mr);
}

static void test_illegal_regions(void **state)
{
	struct pair *p = *state;
	struct srdma_mr *mr;
	struct srdma_mr_attr attr = { .length = 100, .addr = &mr };

	assert_int_equal(srdma_alloc_mr(&mr, p->a.pd, &attr), -EINVAL);
	attr.addr = NULL;
	assert_int_equal(srdma_reg_mr(&mr, p->a.pd, &attr), -EINVAL);
	attr.access = 0x80; /* refused by the worker */
	expect_mr(p, attr, -ENOTSUP);
	attr.access = SRDMA_ACCESS_REMOTE_WRITE; /* without LOCAL_WRITE */
	expect_mr(p, attr, -EINVAL);
	attr.access = 0;
	attr.length = 0;
	expect_mr(p, attr, -EINVAL);
	attr.length = 100;
	attr.block_size = 4096; /* without PROOF */
	expect_mr(p, attr, -EINVAL);
	attr.access = SRDMA_ACCESS_PROOF | SRDMA_ACCESS_REMOTE_READ;
	attr.block_size = 1000;
	expect_mr(p, attr, -EINVAL);
	attr.block_size = 32; /* refused by the worker */
	expect_mr(p, attr, -EINVAL);
	attr.block_size = 4096;
	attr.qp = p->b.qp;
	expect_mr(p, attr, -EINVAL);
	expect_mr(p,
		  (struct srdma_mr_attr){ .addr = (void *)4096, .length = 10 },
		  -EFAULT);
}

static void test_illegal_objects(void **state)
{
	struct pair *p = *state;
	struct srdma_pd_attr pd = { .ring = 100 };
	struct srdma_qp_attr qp = { .sq = SRDMA_DEPTH_MAX + 1 };
	struct srdma_pd *no_pd;
	struct srdma_qp *no_qp;
	uint64_t value;

	assert_int_equal(srdma_alloc_pd(&no_pd, p->a.device, &pd), -EINVAL);
	pd = (struct srdma_pd_attr){ .process = 2 };
	assert_int_equal(srdma_alloc_pd(&no_pd, p->a.device, &pd), -EINVAL);
	pd = (struct srdma_pd_attr){ .group = "\xff" };
	assert_int_equal(srdma_alloc_pd(&no_pd, p->a.device, &pd), -EINVAL);
	assert_null(no_pd);
	assert_int_equal(srdma_create_qp(&no_qp, p->a.pd, &qp), -EINVAL);
	qp = (struct srdma_qp_attr){ .rq = SRDMA_DEPTH_MAX + 1 };
	assert_int_equal(srdma_create_qp(&no_qp, p->a.pd, &qp), -EINVAL);
	qp = (struct srdma_qp_attr){ .sq = 4096 }; /* the ring has 4,096 */
	assert_int_equal(srdma_create_qp(&no_qp, p->a.pd, &qp), -ENOSPC);
	qp = (struct srdma_qp_attr){ .mtu = 100 };
	assert_int_equal(srdma_create_qp(&no_qp, p->a.pd, &qp), -EINVAL);
	assert_null(no_qp);
	assert_int_equal(srdma_query_counter(p->a.device, "none", &value),
			 -ENOENT);
	ok(srdma_query_counter(p->a.device, "packets_sealed", &value));
	assert_int_not_equal(value, 0);
}

static void test_illegal_capabilities(void **state)
{
	struct pair *p = *state;
	const struct srdma_mr_attr attr = {
		.length = 8192,
		.access = SRDMA_ACCESS_REMOTE_READ | SRDMA_ACCESS_PROOF,
	};
	struct srdma_cap_attr cap = { .access = SRDMA_ACCESS_REMOTE_READ };
	struct srdma_cap_info info;
	struct srdma_mr_info memory;
	struct srdma_mr *mr;
	uint8_t token[SRDMA_CAP_MAX];
	uint32_t handle;
	int len;

	assert_int_equal(srdma_make_cap(token, sizeof(token), p->a.mr, &cap),
			 -EPERM);
	ok(srdma_alloc_mr(&mr, p->a.pd, &attr));
	srdma_query_mr(mr, &memory);
	assert_int_equal(srdma_make_cap(token, 10, mr, &cap), -ENOSPC);
	cap.access = SRDMA_ACCESS_LOCAL_WRITE;
	assert_int_equal(srdma_make_cap(token, sizeof(token), mr, &cap),
			 -EACCES);
	cap.access = SRDMA_ACCESS_REMOTE_WRITE; /* the region has it not */
	assert_int_equal(srdma_make_cap(token, sizeof(token), mr, &cap),
			 -EACCES);
	cap.access = SRDMA_ACCESS_REMOTE_READ;
	cap.length = 1;
	assert_int_equal(srdma_make_cap(token, sizeof(token), mr, &cap),
			 -EINVAL);
	cap.offset = 4096;
	cap.length = 4096;
	cap.expires = 4000000000U;
	len = srdma_make_cap(token, sizeof(token), mr, &cap);
	assert_int_equal(len, SRDMA_CAP_MIN);

	ok(srdma_query_cap(&info, token, (size_t)len));
	assert_int_equal(info.remote_addr, (uintptr_t)memory.addr + 4096);
	assert_int_equal(info.length, 4096);
	assert_int_equal(info.offset, 4096);
	assert_int_equal(info.rkey, memory.key);
	assert_int_equal(info.access, SRDMA_ACCESS_REMOTE_READ);
	assert_int_equal(info.expires, 4000000000U);
	assert_int_equal(info.sealed, 1);
	assert_int_equal(srdma_query_cap(&info, token, 87), -EPROTO);

	assert_int_equal(srdma_install_cap(&handle, p->b.pd, token, 10),
			 -EMSGSIZE);
	token[70] ^= 1;
	assert_int_equal(
		srdma_install_cap(&handle, p->b.pd, token, (size_t)len),
		-EBADMSG);
	token[0] = 0;
	assert_int_equal(srdma_query_cap(&info, token, (size_t)len), -EPROTO);
	assert_int_equal(srdma_uninstall_cap(p->b.pd, 1), -ENOENT);
	assert_int_equal(srdma_revoke_caps(mr, 1, 1), -EINVAL);
	assert_int_equal(srdma_revoke_caps(p->a.mr, 0, 0), -EPERM);
	ok(srdma_dereg_mr(mr));
}

/* --- threads ------------------------------------------------------------- */

enum { ROUNDS = 30, THREADS = 3 };

/* Makes and ends objects of a PD of its own, on a device that others use. */
static void *use_device(void *device)
{
	const struct srdma_mr_attr attr = { .length = 100 };
	struct srdma_pd *pd;
	struct srdma_mr *mr;
	struct srdma_qp *qp;
	uint64_t value;
	long rc = 0;

	for (int i = 0; i < ROUNDS && !rc; i++) {
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

static void test_threads_on_a_device(void **state)
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

static void test_connection(void **state)
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

static void test_closed_connection(void **state)
{
	struct pair *p = *state;
	struct srdma_wc wc;

	srdma_disconnect(p->b.connection);
	p->b.connection = NULL;
	assert_int_equal(
		readable(srdma_connection_fd(p->a.connection), WAIT_MS), 1);
	assert_int_equal(srdma_check_connection(p->a.connection), -ESHUTDOWN);
	assert_int_equal(srdma_check_connection(p->a.connection), -ESHUTDOWN);
	assert_int_equal(srdma_renew(p->a.connection, 1), -ESHUTDOWN);
	wc = next(&p->a);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_PEER_CLOSED);
}

static void test_used_qp(void **state)
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

static void test_listener(void **state)
{
	struct pair *p = *state;
	const struct srdma_listener_attr attr = { .identity = "b" };
	struct srdma_listener *listener;
	struct srdma_request request;
	const struct sigaction act = { .sa_handler = on_alarm };

	assert_int_equal(srdma_get_request(p->b.listener, &request, 10),
			 -ETIMEDOUT);
	assert_int_equal(srdma_listen(&listener, p->b.device, "127.0.0.1",
				      srdma_listener_port(p->b.listener),
				      &attr),
			 -EADDRINUSE);
	assert_int_equal(
		srdma_listen(&listener, p->b.device, "no such host", 0, &attr),
		-EINVAL);
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

/* --- the end of a worker, last --------------------------------------------- */

static void test_killed_worker(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = request(p, SRDMA_WR_RDMA_WRITE, 8);
	const struct srdma_mr_attr attr = { .length = 100 };
	const int fd = srdma_cq_fd(p->a.pd);
	struct srdma_mr *mr;
	struct srdma_wc wc;

	post_receive(&p->a, 5, 10);
	srdma_req_notify_cq(p->a.pd);
	assert_int_equal(srdma_poll_cq(p->a.pd, 1, &wc), 0);
	kill(atoi(getenv("SRDMA_A_PID")), SIGKILL);
	assert_int_equal(readable(fd, WAIT_MS), 1);
	wc = next(&p->a);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_WORKER_GONE);
	wc = next(&p->a);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.opcode, SRDMA_WC_RECV);
	assert_int_equal(srdma_wait_cq(p->a.pd, 1, &wc, WAIT_MS), -ENOTCONN);
	assert_int_equal(srdma_post_send(p->a.qp, &wr, NULL), -ENOTCONN);
	assert_int_equal(srdma_alloc_mr(&mr, p->a.pd, &attr), -ENOTCONN);
}

#define each(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		each(test_write_and_read),
		each(test_inline_write_and_fenced_read),
		each(test_messages),
		each(test_write_with_immediate_data),
		each(test_atomics),
		each(test_existing_memory),
		each(test_many_requests),
		each(test_notification),
		each(test_time_limit_of_a_wait),
		each(test_illegal_requests),
		each(test_full_queue),
		each(test_wrong_rkey),
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
	};
	const struct CMUnitTest end[] = { each(test_killed_worker) };

	if (argc > 1 && !strcmp(argv[1], "end"))
		return cmocka_run_group_tests(end, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
