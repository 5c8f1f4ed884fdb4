/* Multicast groups of an id (rdmacm/multicast.c), with a QP and a channel of the test. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <setjmp.h>

#include <cmocka.h>

#include "rdmacm/objects.h"

static struct cm_id id;
static struct ibv_qp qp;
static struct ibv_context context;
static struct sockaddr_in group;
static unsigned uses, attached, left, detached, reported;
static int refusal; /* -errno: there is no memory for the event */
static int answer;  /* errno of the use */

/* --- the rest of the library --------------------------------------------------------- */

int srdma_private_link(struct ibv_context *verbs, uint32_t qp_num)
{
	assert_ptr_equal(verbs, &context);
	(void)qp_num;
	return 0;
}

int srdma_private_use_group(struct ibv_qp *used,
			    const uint8_t gid[SRDMA_GID_LEN], int attach)
{
	assert_ptr_equal(used, &qp);
	assert_int_equal(gid[12], 230);
	uses++;
	attached += attach != 0;
	return answer;
}

void srdma_private_leave_group(struct ibv_qp *used,
			       const uint8_t gid[SRDMA_GID_LEN])
{
	assert_ptr_equal(used, &qp);
	assert_int_equal(gid[12], 230);
	left++;
}

int ibv_detach_mcast(struct ibv_qp *used, const union ibv_gid *gid,
		     uint16_t lid)
{
	assert_ptr_equal(used, &qp);
	assert_int_equal(gid->raw[12], 230);
	(void)lid;
	detached++;
	return 0;
}

int cm_report_group(struct cm_id *of, const struct cm_group *g, int status)
{
	assert_ptr_equal(of, &id);
	assert_non_null(g);
	assert_int_equal(status, -answer);
	reported++;
	return refusal;
}

int cm_is_ud(const struct cm_id *of)
{
	assert_ptr_equal(of, &id);
	return 1;
}

int cm_hold(struct cm_id *of)
{
	assert_ptr_equal(of, &id);
	return 0;
}

int cm_fail(int err)
{
	errno = err;
	return -1;
}

int cm_done(struct cm_id *of, int err)
{
	assert_ptr_equal(of, &id);
	return err ? cm_fail(err) : 0;
}

int cm_complete(struct cm_id *of)
{
	assert_ptr_equal(of, &id);
	return 0;
}

/* --- an id --------------------------------------------------------------------------- */

static int begin(void **state)
{
	(void)state;
	memset(&id, 0, sizeof(id));
	id.rdma.qp = &qp;
	id.rdma.verbs = &context;
	uses = attached = left = detached = reported = 0;
	refusal = answer = 0;
	group = (struct sockaddr_in){ .sin_family = AF_INET };
	return inet_pton(AF_INET, "230.1.2.3", &group.sin_addr) != 1;
}

static int end(void **state)
{
	(void)state;
	cm_group_leave_all(&id);
	return id.groups != NULL;
}

static int join(uint32_t flags)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
			     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = (struct sockaddr *)&group,
	};

	return rdma_join_multicast_ex(&id.rdma, &attr, NULL);
}

static int leave(void)
{
	return rdma_leave_multicast(&id.rdma, (struct sockaddr *)&group);
}

/* --- tests --------------------------------------------------------------------------- */

static void test_member(void **state)
{
	(void)state;
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), 0);
	assert_int_equal(uses, 1);
	assert_int_equal(attached, 1);
	assert_int_equal(leave(), 0);
	assert_int_equal(detached, 1);
	assert_int_equal(left, 0);
	assert_int_equal(leave(), -1);
	assert_int_equal(errno, EADDRNOTAVAIL);
}

/* The agent need not know the use any more. */
static void test_sender_that_leaves(void **state)
{
	(void)state;
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER), 0);
	assert_int_equal(uses, 1);
	assert_int_equal(attached, 0);
	assert_int_equal(leave(), 0);
	assert_int_equal(left, 1);
	assert_int_equal(detached, 0);
}

/* The program learns of no group, and can join it again. */
static void test_event_without_memory(void **state)
{
	(void)state;
	refusal = -ENOMEM;
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), -1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(detached, 1);
	assert_null(id.groups);
	refusal = 0;
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), 0);
	assert_int_equal(reported, 2);
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), -1);
	assert_int_equal(errno, EINVAL);
}

/* The event tells it, and the program leaves the group, or tries again. */
static void test_refused_group(void **state)
{
	(void)state;
	answer = EPERM;
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), 0);
	assert_int_equal(reported, 1);
	assert_int_equal(leave(), 0);
	assert_null(id.groups);
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), 0);
	assert_int_equal(detached, 0);
	answer = 0;
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), 0);
	assert_int_equal(reported, 3);
	assert_null(id.groups->next);
	assert_int_equal(join(RDMA_MC_JOIN_FLAG_FULLMEMBER), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(leave(), 0);
	assert_int_equal(detached, 1);
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_member),
		TEST(test_sender_that_leaves),
		TEST(test_event_without_memory),
		TEST(test_refused_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
