#include <string.h>

#include "tests.h"

#include <errno.h>

#include "pair.h"

/* --- refusals ------------------------------------------------------------ */

static void expect_post(struct pair *p, struct srdma_send_wr wr, int rc)
{
	struct srdma_send_wr *bad = NULL;

	assert_int_equal(srdma_post_send(p->a.qp, &wr, &bad), rc);
	assert_ptr_equal(bad, &wr);
	assert_string_not_equal(srdma_error_text(), "");
}

void test_illegal_requests(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);

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

void test_illegal_lists(void **state)
{
	struct pair *p = *state;
	struct srdma_sge list[SRDMA_SGE_MAX + 1];
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_SEND, 0);

	for (unsigned i = 0; i <= SRDMA_SGE_MAX; i++)
		list[i] = (struct srdma_sge){ (uintptr_t)p->a.memory.addr, 17,
					      p->a.memory.key };
	wr.sg_list = list;
	wr.num_sge = SRDMA_SGE_MAX + 1;
	expect_post(p, wr, -EINVAL);
	wr.sg_list = NULL;
	wr.num_sge = 1;
	expect_post(p, wr, -EINVAL);
	wr.sg_list = list;
	wr.num_sge = SRDMA_SGE_MAX;
	wr.flags |= SRDMA_SEND_INLINE; /* 476 bytes */
	expect_post(p, wr, -EMSGSIZE);
	wr.flags = 0;
	list[0].length = SRDMA_MESSAGE_MAX;
	expect_post(p, wr, -EMSGSIZE);
	list[0].length = list[1].length = 4;
	wr.num_sge = 2;
	wr.opcode = SRDMA_WR_ATOMIC_FETCH_AND_ADD;
	expect_post(p, wr, -EINVAL);
}

void test_full_queue(void **state)
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
		sends[i] = pair_request(p, SRDMA_WR_RDMA_WRITE, 1);
		sends[i].next = i < DEPTH ? &sends[i + 1] : NULL;
	}
	assert_int_equal(srdma_post_recv(p->a.qp, receives, &bad), -EAGAIN);
	assert_ptr_equal(bad, &receives[DEPTH]);
	assert_int_equal(srdma_post_send(p->a.qp, sends, &bad_send), -EAGAIN);
	assert_ptr_equal(bad_send, &sends[DEPTH]);
	for (int i = 0; i < DEPTH; i++)
		pair_next_ok(&p->a, SRDMA_WC_RDMA_WRITE);
	ok(srdma_post_send(p->a.qp, bad_send, NULL));
	pair_next_ok(&p->a, SRDMA_WC_RDMA_WRITE);
}

/* A failed request, the flushed one behind it, and the event of the QP. */
void test_wrong_rkey(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);
	struct srdma_qp_query query;
	struct srdma_wc wc;

	srdma_query_qp(p->a.qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_CONNECTED);
	wr.rkey++;
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = pair_next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_BAD_RKEY);
	assert_int_equal(wc.qp_num, query.qp_num);
	wc = pair_next(&p->a);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.wr_id, 0);
	srdma_query_qp(p->a.qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_ERROR);
	assert_int_equal(query.reason, SRDMA_REASON_BAD_RKEY);
	assert_string_equal(srdma_reason_name(query.reason), "BAD_RKEY");
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = pair_next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_WR_FLUSH_ERR);
}

/* Rights of the peer on a QP, whose region has all. */
void test_rights_of_a_qp(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_READ, 8);
	struct srdma_qp_mod mod = { .access = SRDMA_ACCESS_REMOTE_READ };
	struct srdma_wc wc;

	assert_int_equal(srdma_modify_qp(p->b.qp, &mod, 0), -EINVAL);
	assert_int_equal(srdma_modify_qp(p->b.qp, &mod, 4), -EINVAL);
	assert_int_equal(srdma_modify_qp(p->b.qp, &mod, SRDMA_QP_MASK_TIMEOUT),
			 -EINVAL);
	mod.timeout_ms = SRDMA_TIMEOUT_NONE;
	ok(srdma_modify_qp(p->b.qp, &mod,
			   SRDMA_QP_MASK_ACCESS | SRDMA_QP_MASK_TIMEOUT));
	pair_run(p, &wr, SRDMA_WC_RDMA_READ);
	wr.opcode = SRDMA_WR_RDMA_WRITE;
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = pair_next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_NO_RIGHT);
}

/* A region of b for the identity of a, then one for another. */
void test_scope_of_an_identity(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);
	struct srdma_connection_info peer;
	struct srdma_mr_attr attr = {
		.length = 8,
		.access = SRDMA_ACCESS_LOCAL_WRITE | SRDMA_ACCESS_REMOTE_WRITE,
		.identity = peer.identity,
	};
	struct srdma_mr_info info;
	struct srdma_mr *mr[2];
	struct srdma_wc wc;

	srdma_query_connection(p->b.connection, &peer);
	ok(srdma_alloc_mr(&mr[0], p->b.pd, &attr));
	attr.identity = "spiffe://test/another";
	ok(srdma_alloc_mr(&mr[1], p->b.pd, &attr));
	srdma_query_mr(mr[0], &info);
	wr.remote_addr = (uintptr_t)info.addr;
	wr.rkey = info.key;
	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	srdma_query_mr(mr[1], &info);
	wr.remote_addr = (uintptr_t)info.addr;
	wr.rkey = info.key;
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = pair_next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_QP_SCOPE);
	ok(srdma_dereg_mr(mr[0]));
	ok(srdma_dereg_mr(mr[1]));
}

/* b withdraws a region that a has written, and still sends from it. */
/* RFC 5042 R6.2.2-1, RA-1 */
void test_withdrawn_region(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);
	struct srdma_wc wc;

	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	ok(srdma_withdraw_mr(p->b.mr));
	ok(srdma_withdraw_mr(p->b.mr));
	pair_post_receive(&p->a, 1, 8);
	wr = pair_request(p, SRDMA_WR_SEND, 8);
	wr.addr = p->b.memory.addr;
	wr.lkey = p->b.memory.key;
	ok(srdma_post_send(p->b.qp, &wr, NULL));
	pair_next_ok(&p->b, SRDMA_WC_SEND);
	pair_next_ok(&p->a, SRDMA_WC_RECV);
	wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);
	ok(srdma_post_send(p->a.qp, &wr, NULL));
	wc = pair_next(&p->a);
	assert_int_equal(wc.status, SRDMA_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_NO_RIGHT);
}

void test_destroyed_peer(void **state)
{
	struct pair *p = *state;
	struct srdma_wc wc;

	ok(srdma_destroy_qp(p->b.qp));
	p->b.qp = NULL;
	wc = pair_next(&p->a);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_PEER_CLOSED);
}

void test_objects_in_use(void **state)
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

void test_illegal_regions(void **state)
{
	struct pair *p = *state;
	struct srdma_mr *mr;
	struct srdma_mr_attr attr = { .length = 100, .addr = &mr };
	char long_uri[SRDMA_IDENTITY_LEN + 1] = "";

	assert_int_equal(srdma_alloc_mr(&mr, p->a.pd, &attr), -EINVAL);
	attr.addr = NULL;
	assert_int_equal(srdma_reg_mr(&mr, p->a.pd, &attr), -EINVAL);
	attr.access = 0x80; /* refused by the worker */
	expect_mr(p, attr, -ENOTSUP);
	attr.access = SRDMA_ACCESS_REMOTE_WRITE; /* without LOCAL_WRITE */
	expect_mr(p, attr, -EINVAL);
	attr.access |= SRDMA_ACCESS_LOCAL_WRITE; /* without a scope */
	expect_mr(p, attr, -EINVAL);
	assert_non_null(strstr(srdma_error_text(), "whole_pd for all peers"));
	attr.whole_pd = 1;
	attr.identity = "spiffe://test/a"; /* two scopes */
	expect_mr(p, attr, -EINVAL);
	attr.whole_pd = 0;
	attr.identity = ""; /* no identity has it */
	expect_mr(p, attr, -EINVAL);
	memset(long_uri, 'x', sizeof(long_uri) - 1);
	attr.identity = long_uri;
	expect_mr(p, attr, -EINVAL);
	attr.identity = NULL;
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

void test_illegal_objects(void **state)
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

void test_illegal_capabilities(void **state)
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
