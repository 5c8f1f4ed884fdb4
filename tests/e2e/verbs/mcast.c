/*
 * UD QPs of one program that use multicast groups (docs/run.md 4.1).
 * tests/e2e/test_run.py starts it by `srdma run`, on a host whose agent permits
 * 230.0.0.0/8.
 */
#include "ud_end.h"

#include <arpa/inet.h>
#include <time.h>

enum {
	MEMORY = 8192,
	LENGTH = 64,
	GROUP_QPN = 0xffffff,
	QPS = 3,
	QUIET = 100, /* polls of 1 ms in which nothing arrives */
	TRIES = 20000,
};

static union ibv_gid gid, group;
static struct ibv_ah *ah; /* of the group */
static struct end ends[QPS];

/* An IPv4-mapped GID. */
static union ibv_gid gid_of(const char *ip)
{
	union ibv_gid found = { .raw = { [10] = 0xff, [11] = 0xff } };

	assert_int_equal(inet_pton(AF_INET, ip, found.raw + 12), 1);
	return found;
}

static struct ibv_ah *ah_of(union ibv_gid to)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = to, .hop_limit = 1 } };

	return ibv_create_ah(pd, &attr);
}

static int open_device(void **state)
{
	if (setup(state) || ibv_query_gid(ctx, 1, 0, &gid))
		return -1;
	group = gid_of("230.1.2.3");
	ah = ah_of(group);
	return ah ? 0 : -1;
}

static int close_device(void **state)
{
	return ibv_destroy_ah(ah) ? -1 : teardown(state);
}

/* --- ends ------------------------------------------------------------------------ */

static struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type,
			      uint32_t flags)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = type,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = pd,
		.create_flags = flags,
	};

	return ibv_create_qp_ex(ctx, &init);
}

static void open_end(struct end *e, uint32_t flags)
{
	open_memory(e, MEMORY);
	e->qp = make_qp(e->cq, IBV_QPT_UD, flags);
	assert_non_null(e->qp);
	to_rts(e->qp);
}

static int open_ends(void **state)
{
	(void)state;
	for (int i = 0; i < QPS; i++)
		open_end(&ends[i], 0);
	return 0;
}

static int close_ends(void **state)
{
	(void)state;
	for (int i = 0; i < QPS; i++)
		close_end(&ends[i]);
	return 0;
}

static void attach(const struct end *e)
{
	assert_int_equal(ibv_attach_mcast(e->qp, &group, 0), 0);
}

static void post_recv(const struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->memory + MEMORY / 2, MEMORY / 2,
			       e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

/* 0 or errno. */
static int post(struct end *e, uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)e->memory, LENGTH, e->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 7,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htonl(9),
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { ah, qpn, QKEY },
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

/* The next completion, while all ends make progress. */
static struct ibv_wc await(const struct end *e)
{
	struct ibv_wc wc;
	int n;

	do {
		for (int i = 0; i < QPS; i++)
			assert_int_equal(ibv_poll_cq(ends[i].cq, 0, NULL), 0);
		n = ibv_poll_cq(e->cq, 1, &wc);
	} while (!n);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return wc;
}

static void send_to_group(struct end *e, const char *text)
{
	strcpy(e->memory, text);
	assert_int_equal(post(e, GROUP_QPN), 0);
}

static void is_sent(const struct end *e)
{
	assert_int_equal(await(e).opcode, IBV_WC_SEND);
}

static void has_message(const struct end *e, const struct ibv_wc *wc,
			const struct end *from, const char *text)
{
	const char *received = e->memory + MEMORY / 2;
	struct ibv_grh grh;

	assert_int_equal(wc->opcode, IBV_WC_RECV);
	assert_int_equal(wc->byte_len, GRH + LENGTH);
	assert_int_equal(wc->src_qp, from->qp->qp_num);
	assert_int_equal(ntohl(wc->imm_data), 9);
	memcpy(&grh, received, GRH);
	assert_memory_equal(&grh.sgid, &gid, sizeof(gid));
	assert_memory_equal(&grh.dgid, &group, sizeof(group));
	assert_string_equal(received + GRH, text);
}

static void arrives(const struct end *e, const struct end *from,
		    const char *text)
{
	const struct ibv_wc wc = await(e);

	has_message(e, &wc, from, text);
}

static void nothing_arrives(const struct end *e)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc;

	for (int i = 0; i < QUIET; i++) {
		assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 0);
		nanosleep(&pause, NULL);
	}
}

/* --- messages -------------------------------------------------------------------- */

/* All members have it, the sender too. */
static void test_message_for_a_group(void **state)
{
	(void)state;
	attach(&ends[0]);
	attach(&ends[1]);
	for (int i = 0; i < QPS; i++)
		post_recv(&ends[i]);
	send_to_group(&ends[0], "hello");
	arrives(&ends[0], &ends[0], "hello");
	is_sent(&ends[0]);
	arrives(&ends[1], &ends[0], "hello");
	nothing_arrives(&ends[2]);

	attach(&ends[2]); /* it knows the members that joined before */
	post_recv(&ends[0]);
	post_recv(&ends[1]);
	send_to_group(&ends[2], "again");
	arrives(&ends[2], &ends[2], "again");
	is_sent(&ends[2]);
	arrives(&ends[0], &ends[2], "again");
	arrives(&ends[1], &ends[2], "again");
}

static void test_member_that_leaves(void **state)
{
	(void)state;
	attach(&ends[0]);
	attach(&ends[1]);
	post_recv(&ends[0]);
	post_recv(&ends[1]);
	assert_int_equal(ibv_detach_mcast(ends[0].qp, &group, 0), 0);
	send_to_group(&ends[1], "hello"); /* perhaps not known yet: dropped */
	arrives(&ends[1], &ends[1], "hello");
	is_sent(&ends[1]);
	nothing_arrives(&ends[0]);
	assert_int_equal(ibv_detach_mcast(ends[0].qp, &group, 0), EINVAL);
}

/* Its messages are dropped until the agent has told the members. */
static void test_sender_that_is_no_member(void **state)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc;
	int n = 0;

	(void)state;
	attach(&ends[1]);
	post_recv(&ends[0]);
	post_recv(&ends[1]);
	for (int i = 0; i < TRIES && !n; i++) {
		send_to_group(&ends[0], "hello");
		is_sent(&ends[0]);
		nanosleep(&pause, NULL); /* a request does not wait for keys */
		n = ibv_poll_cq(ends[1].cq, 1, &wc);
	}
	assert_int_equal(n, 1);
	has_message(&ends[1], &wc, &ends[0], "hello");
}

static void test_own_messages_do_not_come_back(void **state)
{
	struct end quiet;

	(void)state;
	open_end(&quiet, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	attach(&ends[0]);
	attach(&quiet);
	post_recv(&ends[0]);
	post_recv(&quiet);
	send_to_group(&quiet, "hello");
	is_sent(&quiet);
	arrives(&ends[0], &quiet, "hello");
	nothing_arrives(&quiet);
	send_to_group(&ends[0], "other");
	arrives(&quiet, &ends[0], "other");
	is_sent(&ends[0]);
	close_end(&quiet);
}

/* RESET keeps the groups of a QP. */
static void test_reset(void **state)
{
	(void)state;
	attach(&ends[0]);
	to(ends[0].qp, IBV_QPS_RESET, 0);
	to_rts(ends[0].qp);
	assert_int_equal(ibv_attach_mcast(ends[0].qp, &group, 0), 0);
	attach(&ends[1]);
	post_recv(&ends[0]);
	for (struct ibv_wc wc; !ibv_poll_cq(ends[0].cq, 1, &wc);) {
		send_to_group(&ends[1], "hello");
		is_sent(&ends[1]);
	}
}

/* --- refusals -------------------------------------------------------------------- */

static void test_limits_of_the_device(void **state)
{
	struct ibv_device_attr attr;

	(void)state;
	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_int_equal(attr.max_mcast_grp, 64);
	assert_int_equal(attr.max_mcast_qp_attach, 48);
	assert_int_equal(attr.max_total_mcast_qp_attach, 64);
}

static void test_refused_groups(void **state)
{
	struct ibv_qp *rc = make_qp(ends[0].cq, IBV_QPT_RC, 0);
	const union ibv_gid foreign = gid_of("239.0.0.1");

	(void)state;
	assert_int_equal(ibv_attach_mcast(ends[0].qp, &foreign, 0), EPERM);
	assert_int_equal(ibv_detach_mcast(ends[0].qp, &foreign, 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(ends[0].qp, &gid, 0), EINVAL);
	assert_int_equal(ibv_detach_mcast(ends[0].qp, &gid, 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(rc, &group, 0), EINVAL);
	assert_int_equal(ibv_detach_mcast(rc, &group, 0), EINVAL);
	assert_int_equal(ibv_destroy_qp(rc), 0);
	attach(&ends[0]);
	attach(&ends[0]); /* again */
	assert_int_equal(post(&ends[0], GROUP_QPN - 1), EINVAL);
	assert_null(make_qp(ends[0].cq, IBV_QPT_RC,
			    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(make_qp(ends[0].cq, IBV_QPT_UD, IBV_QP_CREATE_SCATTER_FCS));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void test_too_many_groups(void **state)
{
	union ibv_gid each = gid_of("230.0.0.0");

	(void)state;
	for (each.raw[15] = 0; each.raw[15] < 16; each.raw[15]++)
		assert_int_equal(ibv_attach_mcast(ends[0].qp, &each, 0), 0);
	assert_int_equal(ibv_attach_mcast(ends[0].qp, &each, 0), ENOMEM);
	each.raw[15]--;
	assert_int_equal(ibv_detach_mcast(ends[0].qp, &each, 0), 0);
	assert_int_equal(ibv_attach_mcast(ends[0].qp, &each, 0), 0);
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, open_ends, close_ends)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_message_for_a_group),
		TEST(test_member_that_leaves),
		TEST(test_sender_that_is_no_member),
		TEST(test_own_messages_do_not_come_back),
		TEST(test_reset),
		TEST(test_limits_of_the_device),
		TEST(test_refused_groups),
		TEST(test_too_many_groups),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
