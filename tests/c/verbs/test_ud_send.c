/* The send queue of a UD QP (verbs/ud_send.c), with a session of the test. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "ud_fakes.h"
#include "verbs/group_gid.h"

enum { QKEY = 5, DEPTH = SLOTS + 2, MEMORY = UD_MTU + 1 };

static uint8_t memory[MEMORY];
static struct srdma_send_wr posted; /* the last one */
static unsigned n_posted;

struct subject {
	struct verbs_root root;
	struct verbs_pd pd;
	struct verbs_qp qp;
	struct verbs_ud ud;
	struct ud_session session;
	struct ud_message messages[SLOTS];
	struct verbs_ah ah;
	struct ud_send send[DEPTH];
};

static struct subject s;
static struct ud_session *answer; /* of ud_session_to() */

/* A group, whose members other than this QP have the QPNs from 20 on. */
enum { FIRST = 20 };
static struct ud_group group;
static struct ud_member members[UD_MEMBERS];
static const uint8_t member_gid[SRDMA_GID_LEN] = { 1 };
static struct ud_session sessions[2]; /* of the first ones */
static unsigned asked;		      /* for sessions of members */
static int known;		      /* 1: ud_group_to() knows the members */
static unsigned own;		      /* messages that came back */

static struct ud_session *session_of_member(const struct ud_name *to)
{
	const unsigned i = to->qp_num - FIRST;

	assert_ptr_equal(to->gid, member_gid);
	asked++;
	return i < 2 ? &sessions[i] : answer;
}

const struct ud_group *ud_group_to(struct verbs_ud *ud,
				   const uint8_t gid[SRDMA_GID_LEN],
				   const char **why)
{
	(void)ud;
	assert_ptr_equal(gid, s.ah.gid.raw);
	*why = "no answer";
	return known ? &group : NULL;
}

int ud_group_attached(const struct verbs_qp *qp,
		      const uint8_t gid[SRDMA_GID_LEN])
{
	(void)qp;
	assert_ptr_equal(gid, s.ah.gid.raw);
	return group.attached;
}

void ud_recv_own(struct verbs_ud *ud, const struct ud_head *head,
		 const struct ud_own *message)
{
	(void)ud;
	assert_int_equal(head->qkey, QKEY);
	assert_ptr_equal(head->group, s.ah.gid.raw);
	assert_int_equal(message->payload[0], memory[0]);
	assert_int_equal(message->len, 1);
	own++;
}

struct ud_session *ud_session_to(struct verbs_ud *ud, const struct ud_name *to,
				 const char **why)
{
	(void)ud;
	*why = "no agent";
	if (to->qp_num >= FIRST)
		return session_of_member(to);
	assert_int_equal(to->qp_num, 9);
	assert_ptr_equal(to->gid, s.ah.gid.raw);
	return answer;
}

void verbs_connect_look(struct verbs_root *root)
{
	(void)root;
}

int srdma_alloc_mr(struct srdma_mr **mr, struct srdma_pd *pd,
		   const struct srdma_mr_attr *attr)
{
	static uint8_t nothing;

	(void)pd;
	assert_int_equal(attr->access, 0);
	assert_int_equal(attr->length, (size_t)SLOTS * UD_SLOT);
	*mr = refusal ? NULL : (struct srdma_mr *)&nothing;
	return refusal;
}

int srdma_post_send(struct srdma_qp *qp, struct srdma_send_wr *wr,
		    struct srdma_send_wr **bad_wr)
{
	(void)qp;
	(void)bad_wr;
	if (refusal)
		return refusal;
	posted = *wr;
	n_posted++;
	return 0;
}

static int begin(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	reset_fakes();
	n_posted = 0;
	s.ud.qp = &s.qp;
	s.ud.root = &s.root;
	s.ud.send = s.send;
	s.ud.sends.room = DEPTH;
	s.ud.places = SLOTS;
	s.qp.ud = &s.ud;
	s.qp.ibv.pd = &s.pd.ibv;
	s.qp.ibv.state = IBV_QPS_RTS;
	s.qp.attr.qkey = QKEY;
	s.qp.cap.max_send_sge = 1;
	s.session.ud = &s.ud;
	s.session.messages = s.messages;
	s.session.state = UD_UP;
	answer = &s.session;
	return 0;
}

static struct ibv_send_wr request(struct ibv_sge *sge)
{
	return (struct ibv_send_wr){ .wr_id = 3,
				     .sg_list = sge,
				     .num_sge = 1,
				     .opcode = IBV_WR_SEND,
				     .send_flags = IBV_SEND_SIGNALED,
				     .wr.ud = { &s.ah.ibv, 9, QKEY } };
}

static int post(uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, 1 };
	const struct ibv_send_wr wr = request(&sge);

	return verbs_ud_post_send(&s.ud, &wr);
}

static void arrive(enum srdma_wc_status status)
{
	const struct srdma_wc wc = { .status = status };

	ud_send_done(&s.session, &wc);
	ud_send_complete(&s.ud);
}

static void completed(int n, enum ibv_wc_status status)
{
	assert_int_equal(count, n);
	assert_int_equal(found.status, status);
}

/* --- tests -------------------------------------------------------------------------- */

static void test_completion_waits_for_the_message(void **state)
{
	struct ud_head head;

	(void)state;
	memory[0] = 'x';
	assert_int_equal(post(1000), 0);
	assert_int_equal(n_posted, 1);
	assert_int_equal(posted.length, UD_HEAD + 1000);
	assert_false(posted.flags & SRDMA_SEND_INLINE);
	assert_int_equal(ud_head_read(&head, slots[0], posted.length), 0);
	assert_int_equal(head.qkey, QKEY);
	assert_null(head.group);
	assert_int_equal(slots[0][UD_HEAD], 'x');
	assert_int_equal(count, 0);
	arrive(SRDMA_WC_SUCCESS);
	completed(1, IBV_WC_SUCCESS);
	assert_int_equal(found.wr_id, 3);
	assert_int_equal(verbs_ud_send_room(&s.ud), DEPTH);
}

static void test_short_message_is_inline(void **state)
{
	(void)state;
	assert_int_equal(post(1), 0);
	assert_true(posted.flags & SRDMA_SEND_INLINE);
}

static void test_session_that_makes_no_progress(void **state)
{
	(void)state;
	assert_int_equal(post(1), 0);
	now += 100;
	ud_send_complete(&s.ud);
	assert_int_equal(count, 0);
	now++;
	ud_send_complete(&s.ud);
	completed(1, IBV_WC_SUCCESS);
}

static void test_session_without_keys(void **state)
{
	(void)state;
	s.session.state = UD_KEYING;
	assert_int_equal(post(1), 0);
	assert_int_equal(n_posted, 0);
	s.session.state = UD_WAITING;
	ud_send_flush(&s.session);
	assert_int_equal(n_posted, 0);
	now += 2000;
	ud_send_complete(&s.ud);
	assert_int_equal(count, 0);
	now++;
	ud_send_complete(&s.ud);
	completed(1, IBV_WC_SUCCESS);
	s.session.state = UD_UP;
	ud_send_flush(&s.session);
	assert_int_equal(n_posted, 1);
}

/* Others wait for their turn in the order of their requests. */
static void test_full_session_drops(void **state)
{
	(void)state;
	for (int i = 0; i < SLOTS; i++)
		assert_int_equal(post(1), 0);
	assert_int_equal(drops[UD_DROP_FULL], 0);
	assert_int_equal(post(1), 0);
	assert_int_equal(drops[UD_DROP_FULL], 1);
	assert_int_equal(count, 0);
	assert_int_equal(post(1), 0);
	assert_int_equal(post(1), ENOMEM);
	for (int i = 0; i < SLOTS; i++) {
		arrive(SRDMA_WC_SUCCESS);
		ud_send_flush(&s.session);
	}
	completed(DEPTH, IBV_WC_SUCCESS);
	assert_int_equal(n_posted, SLOTS);
}

/* The worker gets as many messages as its QP takes, and the next ones in their turn. */
static void test_messages_wait_for_the_worker(void **state)
{
	(void)state;
	for (int i = 0; i < UD_SENDS; i++)
		assert_int_equal(post(1), 0);
	memory[0] = 'y';
	assert_int_equal(post(2), 0);
	assert_int_equal(n_posted, UD_SENDS);
	arrive(SRDMA_WC_SUCCESS);
	ud_send_flush(&s.session);
	assert_int_equal(n_posted, UD_SENDS + 1);
	assert_int_equal(posted.length, UD_HEAD + 2);
	assert_ptr_equal(posted.addr, slots[UD_SENDS]);
	assert_int_equal(slots[UD_SENDS][UD_HEAD], 'y');
}

static void test_no_session_and_no_memory(void **state)
{
	(void)state;
	answer = NULL;
	assert_int_equal(post(1), 0);
	completed(1, IBV_WC_SUCCESS);
	assert_int_equal(drops[UD_DROP_NO_SESSION], 1);
	answer = &s.session;
	refusal = -ENOMEM;
	assert_int_equal(post(1), 0);
	completed(2, IBV_WC_SUCCESS);
	assert_int_equal(drops[UD_DROP_FULL], 1);
}

static void test_full_leg(void **state)
{
	(void)state;
	assert_int_equal(post(1), 0);
	refusal = -EAGAIN;
	assert_int_equal(post(1), 0);
	assert_int_equal(n_posted, 1);
	refusal = 0;
	ud_send_flush(&s.session);
	assert_int_equal(n_posted, 2);
}

static void test_end_of_the_session(void **state)
{
	(void)state;
	assert_int_equal(post(1), 0);
	arrive(SRDMA_WC_RETRY_EXC_ERR);
	assert_true(s.session.lost);
	assert_int_equal(count, 0);
	ud_send_forget(&s.session);
	ud_send_complete(&s.ud);
	completed(1, IBV_WC_SUCCESS);
	arrive(SRDMA_WC_SUCCESS); /* a completion that was on its way */
	assert_int_equal(s.session.done, s.session.put);
}

static void test_long_message(void **state)
{
	(void)state;
	assert_int_equal(post(UD_MTU + 1), 0);
	completed(1, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(errors, 1);
	assert_int_equal(post(1), 0);
	completed(2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(n_posted, 0);
}

/* A batch is refused as a whole. */
static void test_batch_with_an_illegal_request(void **state)
{
	struct ibv_sge sge = { (uintptr_t)memory, 1, 1 };
	struct ibv_send_wr second = request(&sge), first = request(&sge);

	(void)state;
	first.next = &second;
	assert_int_equal(verbs_ud_check_all(&s.ud, &first), 0);
	second.wr.ud.ah = NULL;
	assert_int_equal(verbs_ud_check_all(&s.ud, &first), EINVAL);
}

/* --- groups ------------------------------------------------------------------------ */

static struct ud_message member_messages[2][SLOTS];

/* A group with n members, of which the first two have sessions. */
static void use_group(unsigned n)
{
	known = 1;
	asked = own = 0;
	memset(sessions, 0, sizeof(sessions));
	group = (struct ud_group){ .members.n = n };
	for (unsigned i = 0; i < n; i++) {
		members[i].qp_num = FIRST + i;
		group.members.copies[i] =
			(struct ud_copy){ member_gid, &members[i] };
	}
	for (int i = 0; i < 2; i++) {
		sessions[i] = (struct ud_session){
			.next = i ? NULL : &sessions[1],
			.ud = &s.ud,
			.messages = member_messages[i],
			.state = UD_UP,
		};
	}
	s.ud.sessions = sessions;
	s.ah.gid.raw[0] = 0xff;
}

static int post_to_group(uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)memory, 1, 1 };
	struct ibv_send_wr wr = request(&sge);

	wr.wr.ud.remote_qpn = qpn;
	return verbs_ud_post_send(&s.ud, &wr);
}

static void arrive_at(unsigned member)
{
	const struct srdma_wc wc = { .status = SRDMA_WC_SUCCESS };

	ud_send_done(&sessions[member], &wc);
	ud_send_complete(&s.ud);
}

/* The request is complete when all of them have it. */
static void test_copy_for_each_member(void **state)
{
	struct ud_head head;

	(void)state;
	use_group(2);
	memory[0] = 'm';
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	assert_int_equal(asked, 2);
	assert_int_equal(n_posted, 2);
	assert_int_equal(posted.length, UD_HEAD_MAX + 1);
	assert_int_equal(ud_head_read(&head, slots[0], posted.length), 0);
	assert_memory_equal(head.group, s.ah.gid.raw, SRDMA_GID_LEN);
	assert_int_equal(slots[0][UD_HEAD_MAX], 'm');
	assert_int_equal(own, 0);
	arrive_at(1);
	assert_int_equal(count, 0);
	arrive_at(0);
	completed(1, IBV_WC_SUCCESS);
}

/* A later message of a session does not hold the request up. */
static void test_later_messages_of_a_member(void **state)
{
	(void)state;
	use_group(2);
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	arrive_at(0);
	arrive_at(0);
	assert_int_equal(count, 0);
	arrive_at(1);
	completed(1, IBV_WC_SUCCESS);
	arrive_at(1);
	completed(2, IBV_WC_SUCCESS);
}

static void test_member_that_makes_no_progress(void **state)
{
	(void)state;
	use_group(2);
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	arrive_at(0);
	now += 101;
	ud_send_complete(&s.ud);
	completed(1, IBV_WC_SUCCESS);
}

/* It takes a message now and then. */
static void test_member_that_is_slow(void **state)
{
	(void)state;
	use_group(2);
	for (int i = 0; i < 4; i++)
		assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	now += 60;
	arrive_at(0);
	assert_int_equal(count, 0);
	now += 40;
	arrive_at(0);
	assert_int_equal(count, 0);
	now++;
	arrive_at(0);
	completed(4, IBV_WC_SUCCESS);
}

/* The session of the second one is being made, as long as it likes. */
static void test_member_that_is_not_ready(void **state)
{
	static const enum ud_state states[] = { UD_CALLING, UD_ARRIVING,
						UD_KEYING, UD_WAITING };

	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
		begin(state);
		use_group(2);
		sessions[1].state = states[i];
		assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
		assert_int_equal(n_posted, 1);
		assert_int_equal(count, 0);
		arrive_at(0);
		completed(1, IBV_WC_SUCCESS);
		sessions[1].state = UD_UP;
		ud_send_flush(&sessions[1]);
		assert_int_equal(n_posted, 2);
	}
}

static void test_session_of_a_member_ends(void **state)
{
	(void)state;
	use_group(2);
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	arrive_at(0);
	ud_send_forget(&sessions[1]);
	ud_send_complete(&s.ud);
	completed(1, IBV_WC_SUCCESS);
}

static void test_members_are_not_known(void **state)
{
	(void)state;
	use_group(0);
	known = 0;
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	completed(1, IBV_WC_SUCCESS);
	assert_int_equal(drops[UD_DROP_NO_GROUP], 1);
	assert_string_equal(cause, "no answer");
	known = 1;
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	completed(2, IBV_WC_SUCCESS);
	assert_int_equal(drops[UD_DROP_NO_GROUP], 1);
}

static void test_too_many_members(void **state)
{
	(void)state;
	use_group(UD_MEMBERS);
	group.members.left = 3;
	answer = NULL;
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	assert_int_equal(asked, UD_MEMBERS);
	assert_int_equal(drops[UD_DROP_MEMBERS], 3);
	assert_int_equal(drops[UD_DROP_NO_SESSION], UD_MEMBERS - 2);
	assert_int_equal(n_posted, 2);
}

static void test_own_copy(void **state)
{
	(void)state;
	use_group(0);
	group.attached = 1;
	memory[0] = 'o';
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	assert_int_equal(own, 1);
	s.qp.no_loop = 1;
	assert_int_equal(post_to_group(VERBS_GROUP_QPN), 0);
	assert_int_equal(own, 1);
	completed(2, IBV_WC_SUCCESS);
}

static void test_qpn_of_a_group(void **state)
{
	(void)state;
	use_group(2);
	assert_int_equal(post_to_group(VERBS_GROUP_QPN - 1), EINVAL);
	assert_int_equal(n_posted, 0);
}

/* No member gets a part of the message. */
static void test_wrong_key_of_a_message_for_a_group(void **state)
{
	struct ibv_sge sge = { (uintptr_t)memory, 1, 0 };
	struct ibv_send_wr wr = request(&sge);

	(void)state;
	wr.wr.ud.remote_qpn = VERBS_GROUP_QPN;
	for (unsigned n = 0; n <= 2; n += 2) {
		use_group(n);
		group.attached = 1;
		s.qp.ibv.state = IBV_QPS_RTS;
		assert_int_equal(verbs_ud_post_send(&s.ud, &wr), 0);
		assert_int_equal(found.status, IBV_WC_LOC_PROT_ERR);
		assert_int_equal(n_posted + own, 0);
	}
	assert_int_equal(asked, 1);
}

#define TEST(NAME) cmocka_unit_test_setup(NAME, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_completion_waits_for_the_message),
		TEST(test_short_message_is_inline),
		TEST(test_session_that_makes_no_progress),
		TEST(test_session_without_keys),
		TEST(test_full_session_drops),
		TEST(test_messages_wait_for_the_worker),
		TEST(test_no_session_and_no_memory),
		TEST(test_full_leg),
		TEST(test_end_of_the_session),
		TEST(test_long_message),
		TEST(test_batch_with_an_illegal_request),
		TEST(test_copy_for_each_member),
		TEST(test_later_messages_of_a_member),
		TEST(test_member_that_makes_no_progress),
		TEST(test_member_that_is_slow),
		TEST(test_member_that_is_not_ready),
		TEST(test_session_of_a_member_ends),
		TEST(test_members_are_not_known),
		TEST(test_too_many_members),
		TEST(test_own_copy),
		TEST(test_qpn_of_a_group),
		TEST(test_wrong_key_of_a_message_for_a_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
