/*
 * Multicast groups of ids (docs/run.md 5.1). tests/e2e/test_run_cm.py starts it by `srdma
 * run` on the host with the GID 127.0.0.1, whose agent permits 230.0.0.0/8.
 */
#include "cm_ends.h"

enum { GRH = 40, LENGTH = 64, GROUP_QPN = 0xffffff };

static int context; /* of a join */

struct one {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static void open_one(struct one *o, const char *group)
{
	struct sockaddr_in to = address(group, 7000);

	o->channel = rdma_create_event_channel();
	assert_int_equal(rdma_create_id(o->channel, &o->id, o, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_resolve_addr(o->id, NULL, any(&to), RESOLVE_MS),
			 0);
	expect(o->channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

static void close_one(const struct one *o)
{
	rdma_destroy_qp(o->id);
	assert_int_equal(rdma_destroy_id(o->id), 0);
	rdma_destroy_event_channel(o->channel);
}

/* The event of a join, with the address of the group. */
static struct rdma_ud_param joined(const struct one *o, const char *group)
{
	struct rdma_cm_event *e =
		next(o->channel, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	const struct rdma_ud_param ud = e->param.ud;
	const uint8_t *gid = ud.ah_attr.grh.dgid.raw;
	struct in_addr expected;

	assert_ptr_equal(e->id, o->id);
	assert_ptr_equal(ud.private_data, &context);
	assert_int_equal(ud.private_data_len, 0);
	assert_int_equal(ud.qp_num, GROUP_QPN);
	assert_int_equal(ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(ud.ah_attr.is_global, 1);
	assert_int_equal(inet_pton(AF_INET, group, &expected), 1);
	assert_memory_equal(gid + 12, &expected, sizeof(expected));
	assert_int_equal(gid[10] & gid[11], 0xff);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	return ud;
}

static struct rdma_ud_param join(const struct one *o, const char *group)
{
	struct sockaddr_in at = address(group, 0);

	assert_int_equal(rdma_join_multicast(o->id, any(&at), &context), 0);
	return joined(o, group);
}

static int leave(const struct one *o, const char *group)
{
	struct sockaddr_in at = address(group, 0);

	return rdma_leave_multicast(o->id, any(&at));
}

static void send_hello(const struct one *o, struct rdma_ud_param *ud)
{
	struct ibv_ah *ah = ibv_create_ah(o->id->pd, &ud->ah_attr);
	char out[LENGTH] = "hello";
	struct ibv_mr *mr = rdma_reg_msgs(o->id, out, LENGTH);
	struct ibv_wc wc;

	assert_non_null(ah);
	assert_int_equal(rdma_post_ud_send(o->id, NULL, out, LENGTH, mr,
					   IBV_SEND_SIGNALED, ah, ud->qp_num),
			 0);
	assert_int_equal(rdma_get_send_comp(o->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	rdma_dereg_mr(mr);
}

/* The second id that joins knows the first one. Its QP is attached unless
 * the flags are SENDONLY_FULLMEMBER. */
static void exchange(uint32_t flags)
{
	struct sockaddr_in at = address("230.1.1.1", 0);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
			     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = any(&at),
	};
	char in[GRH + LENGTH], own[GRH + LENGTH];
	struct rdma_ud_param ud;
	struct one member, sender;
	struct ibv_mr *mr, *mr_own;
	struct ibv_wc wc;

	open_one(&member, "230.1.1.1");
	open_one(&sender, "230.1.1.1");
	make_qp(member.id);
	make_qp(sender.id);
	join(&member, "230.1.1.1");
	assert_int_equal(rdma_join_multicast_ex(sender.id, &attr, &context), 0);
	ud = joined(&sender, "230.1.1.1");
	mr = rdma_reg_msgs(member.id, in, sizeof(in));
	mr_own = rdma_reg_msgs(sender.id, own, sizeof(own));
	assert_int_equal(rdma_post_recv(member.id, NULL, in, sizeof(in), mr),
			 0);
	assert_int_equal(
		rdma_post_recv(sender.id, NULL, own, sizeof(own), mr_own), 0);
	send_hello(&sender, &ud);
	assert_int_equal(rdma_get_recv_comp(member.id, &wc), 1);
	assert_int_equal(wc.src_qp, sender.id->qp->qp_num);
	assert_memory_equal(in + 24, ud.ah_attr.grh.dgid.raw, 16);
	assert_string_equal(in + GRH, "hello");
	assert_int_equal(ibv_poll_cq(sender.id->recv_cq, 1, &wc),
			 flags == RDMA_MC_JOIN_FLAG_FULLMEMBER);
	assert_int_equal(leave(&sender, "230.1.1.1"), 0);
	assert_int_equal(leave(&sender, "230.1.1.1"), -1);
	assert_int_equal(errno, EADDRNOTAVAIL);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(mr_own);
	close_one(&member); /* without leaving */
	close_one(&sender);
}

static void test_message(void **state)
{
	(void)state;
	exchange(RDMA_MC_JOIN_FLAG_FULLMEMBER);
}

static void test_sender_that_is_no_member(void **state)
{
	(void)state;
	exchange(RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
}

/* The program attaches its QP itself. */
static void test_id_without_a_qp(void **state)
{
	struct one o;

	(void)state;
	open_one(&o, "230.1.1.2");
	join(&o, "230.1.1.2");
	assert_int_equal(leave(&o, "230.1.1.2"), 0);
	close_one(&o);
}

/* The program has destroyed the QP of the id without the library. */
static void test_qp_that_is_no_more(void **state)
{
	struct one o;

	(void)state;
	open_one(&o, "230.1.1.2");
	make_qp(o.id);
	join(&o, "230.1.1.2");
	assert_int_equal(ibv_destroy_qp(o.id->qp), 0);
	assert_int_equal(leave(&o, "230.1.1.2"), 0);
	join(&o, "230.1.1.2");
	o.id->qp = NULL;
	close_one(&o);
}

static void test_group_that_the_policy_does_not_permit(void **state)
{
	struct sockaddr_in at = address("239.1.1.1", 0);
	struct one o;

	(void)state;
	open_one(&o, "239.1.1.1");
	make_qp(o.id);
	assert_int_equal(rdma_join_multicast(o.id, any(&at), &context), 0);
	expect(o.channel, RDMA_CM_EVENT_MULTICAST_ERROR, -EPERM);
	assert_int_equal(leave(&o, "239.1.1.1"), 0);
	close_one(&o);
}

static void test_calls_that_wait(void **state)
{
	struct sockaddr_in to = address("230.1.1.3", 0);
	struct sockaddr_in foreign = address("239.1.1.1", 0);
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, any(&to), RESOLVE_MS), 0);
	make_qp(id);
	assert_int_equal(rdma_join_multicast(id, any(&to), &context), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	for (int i = 0; i < 2; i++) {
		errno = 0;
		assert_int_equal(rdma_join_multicast(id, any(&foreign), NULL),
				 -1);
		assert_int_equal(errno, EPERM);
	}
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void refuse(struct rdma_cm_id *id, uint32_t mask, uint32_t flags,
		   struct sockaddr *at, int err)
{
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = mask,
						.join_flags = flags,
						.addr = at };

	errno = 0;
	assert_int_equal(rdma_join_multicast_ex(id, &attr, NULL), -1);
	assert_int_equal(errno, err);
}

static void test_refusals(void **state)
{
	struct sockaddr_in group = address("230.1.1.4", 0);
	struct sockaddr_in host = address("127.0.0.2", 0);
	struct sockaddr local = { .sa_family = AF_UNIX };
	struct rdma_cm_id *rc, *early;
	struct one o;

	(void)state;
	open_one(&o, "230.1.1.4");
	refuse(o.id, 0, 0, any(&group), EINVAL);
	refuse(o.id, 1, 0, NULL, EINVAL);
	refuse(o.id, 1, 0, &local, EINVAL);
	refuse(o.id, 1, 0, any(&host), EINVAL);
	refuse(o.id, 3, RDMA_MC_JOIN_FLAG_RESERVED, any(&group), EINVAL);
	refuse(o.id, 5, 0, any(&group), EOPNOTSUPP);
	assert_int_equal(rdma_join_multicast_ex(o.id, NULL, NULL), -1);
	assert_int_equal(errno, EINVAL);
	join(&o, "230.1.1.4");
	refuse(o.id, 1, 0, any(&group), EINVAL); /* again */
	assert_int_equal(rdma_leave_multicast(o.id, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_leave_multicast(o.id, &local), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_create_id(o.channel, &rc, NULL, RDMA_PS_TCP), 0);
	refuse(rc, 1, 0, any(&group), EINVAL);
	assert_int_equal(rdma_destroy_id(rc), 0);
	assert_int_equal(rdma_create_id(o.channel, &early, NULL, RDMA_PS_UDP),
			 0);
	refuse(early, 1, 0, any(&group), EINVAL); /* it has no device yet */
	assert_int_equal(rdma_destroy_id(early), 0);
	close_one(&o);
}

/* A group is no peer that could be called. */
static void test_call_of_a_group(void **state)
{
	struct one o;

	(void)state;
	open_one(&o, "230.1.1.5");
	assert_int_equal(rdma_resolve_route(o.id, RESOLVE_MS), 0);
	expect(o.channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_int_equal(rdma_connect(o.id, NULL), 0);
	expect(o.channel, RDMA_CM_EVENT_CONNECT_ERROR, -EPERM);
	close_one(&o);
}

static void test_group_of_an_rc_id(void **state)
{
	struct sockaddr_in to = address("230.1.1.6", 7000);
	struct one o;

	(void)state;
	o.channel = rdma_create_event_channel();
	assert_int_equal(rdma_create_id(o.channel, &o.id, &o, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(o.id, NULL, any(&to), RESOLVE_MS),
			 0);
	expect(o.channel, RDMA_CM_EVENT_ADDR_ERROR, -EINVAL);
	assert_int_equal(rdma_destroy_id(o.id), 0);
	rdma_destroy_event_channel(o.channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message),
		cmocka_unit_test(test_sender_that_is_no_member),
		cmocka_unit_test(test_id_without_a_qp),
		cmocka_unit_test(test_qp_that_is_no_more),
		cmocka_unit_test(test_group_that_the_policy_does_not_permit),
		cmocka_unit_test(test_calls_that_wait),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_call_of_a_group),
		cmocka_unit_test(test_group_of_an_rc_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
