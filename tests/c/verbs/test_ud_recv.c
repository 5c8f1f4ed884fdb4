/* The receive queue of a UD QP (verbs/ud_recv.c), with a worker of the test. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "ud_fakes.h"

enum { QKEY = 5, RECVS = 2, PAYLOAD = 10, MEMORY = 100 };

static uint8_t memory[MEMORY];
static uint32_t offered; /* bits: slots of the worker */
static const uint8_t group[SRDMA_GID_LEN] = { 0xff, 7 };
static int attached; /* 1: to the group */
static int srq_done;

void verbs_srq_done(struct verbs_srq *srq)
{
	(void)srq;
	srq_done++;
}

int ud_group_attached(const struct verbs_qp *qp,
		      const uint8_t gid[SRDMA_GID_LEN])
{
	(void)qp;
	assert_memory_equal(gid, group, SRDMA_GID_LEN);
	return attached;
}

int srdma_post_recv(struct srdma_qp *qp, struct srdma_recv_wr *wr,
		    struct srdma_recv_wr **bad_wr)
{
	(void)qp;
	(void)bad_wr;
	if (refusal)
		return refusal;
	assert_ptr_equal(wr->addr, slots[wr->wr_id]);
	assert_false(offered & 1u << wr->wr_id);
	offered |= 1u << wr->wr_id;
	return 0;
}

/* --- a queue ---------------------------------------------------------------------- */

struct subject {
	struct verbs_root root;
	struct verbs_qp qp;
	struct srdma_qp worker;
	struct verbs_ud ud;
	struct ud_session session;
};

static struct subject s;

static int begin(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	memset(memory, 0, sizeof(memory));
	offered = 0;
	srq_done = 0;
	attached = 1;
	reset_fakes();
	s.ud = (struct verbs_ud){
		.qp = &s.qp, .root = &s.root, .ready = 1, .recvs = &s.ud.own
	};
	assert_int_equal(verbs_recvs_create(&s.ud.own, RECVS, 1), 0);
	s.ud.arrivals.room = UD_RECVS;
	s.qp.qp = &s.worker;
	s.qp.ud = &s.ud;
	s.qp.attr.qkey = QKEY;
	s.qp.ibv.state = IBV_QPS_RTS;
	s.session = (struct ud_session){
		.ud = &s.ud, .state = UD_UP, .peer = 9, .gid = { 1 }
	};
	return 0;
}

static int end(void **state)
{
	(void)state;
	verbs_recvs_destroy(&s.ud.own);
	return 0;
}

static void arrive(uint32_t slot, uint32_t qkey, uint32_t len)
{
	const struct srdma_wc wc = { .wr_id = slot,
				     .opcode = SRDMA_WC_RECV,
				     .byte_len = len };

	ud_head_write(slots[slot], &(struct ud_head){ .qkey = qkey });
	slots[slot][UD_HEAD] = (uint8_t)('a' + slot);
	ud_recv_arrived(&s.ud, &s.session, &wc);
}

static int post(uint64_t id, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, lkey };
	const struct ibv_recv_wr wr = { .wr_id = id,
					.sg_list = &sge,
					.num_sge = 1 };

	return verbs_ud_post_recv(&s.ud, &wr);
}

/* --- tests -------------------------------------------------------------------------- */

static void test_message_waits_for_a_receive(void **state)
{
	(void)state;
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 0);
	assert_int_equal(offered, 0);
	assert_int_equal(post(3, MEMORY, 1), 0);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 1);
	assert_int_equal(found.wr_id, 3);
	assert_int_equal(found.byte_len, UD_GRH + PAYLOAD);
	assert_int_equal(found.src_qp, 9);
	assert_int_equal(memory[8], 1); /* the source GID */
	assert_int_equal(memory[UD_GRH], 'a');
	assert_int_equal(offered, 1);
	assert_int_equal(s.session.used, ud_now());
}

static void test_illegal_messages_are_dropped(void **state)
{
	(void)state;
	assert_int_equal(post(3, MEMORY, 1), 0);
	arrive(0, QKEY, UD_HEAD - 1);
	assert_int_equal(drops[UD_DROP_BAD], 1);
	arrive(1, QKEY + 1, UD_HEAD + PAYLOAD);
	assert_int_equal(drops[UD_DROP_QKEY], 1);
	s.ud.ready = 0;
	arrive(2, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 0);
	assert_int_equal(offered, 7);
}

/* Slots have room for the head of a message for a group. */
static void test_message_beyond_the_mtu(void **state)
{
	(void)state;
	arrive(0, QKEY, UD_HEAD + UD_MTU + 1);
	assert_int_equal(drops[UD_DROP_BAD], 1);
	assert_int_equal(s.ud.arrivals.count, 0);
	arrive(1, QKEY, UD_HEAD + UD_MTU);
	assert_int_equal(s.ud.arrivals.count, 1);
	assert_int_equal(drops[UD_DROP_BAD], 1);
}

static void test_receive_that_is_flushed_comes_back(void **state)
{
	const struct srdma_wc wc = { .wr_id = 2,
				     .status = SRDMA_WC_WR_FLUSH_ERR,
				     .opcode = SRDMA_WC_RECV };

	(void)state;
	ud_recv_arrived(&s.ud, &s.session, &wc);
	assert_int_equal(offered, 4);
	assert_int_equal(s.ud.arrivals.count, 0);
}

/* The peer is not known to be the right one before the keys are confirmed. */
static void test_nothing_is_delivered_before_the_keys(void **state)
{
	(void)state;
	s.session.state = UD_KEYING;
	assert_int_equal(post(3, MEMORY, 1), 0);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 0);
	s.session.state = UD_UP;
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 1);
}

/* The agent has confirmed the keys. The peer does not know it yet. */
static void test_session_whose_peer_is_not_ready(void **state)
{
	(void)state;
	s.session.state = UD_WAITING;
	assert_int_equal(post(3, MEMORY, 1), 0);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	arrive(1, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 1);
	ud_recv_forget(&s.session);
	s.session.state = UD_FAILED;
	assert_int_equal(post(3, MEMORY, 1), 0);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 2);
}

/* A message of another session, in slot 5. */
static void arrive_early(struct ud_session *other)
{
	const struct srdma_wc early = { .wr_id = 5,
					.opcode = SRDMA_WC_RECV,
					.byte_len = UD_HEAD + PAYLOAD };

	ud_head_write(slots[5], &(struct ud_head){ .qkey = QKEY });
	ud_recv_arrived(&s.ud, other, &early);
}

/* A peer that delays its keys holds no messages of other peers. */
static void test_session_without_keys_is_passed(void **state)
{
	struct ud_session other = { .ud = &s.ud, .state = UD_KEYING };

	(void)state;
	arrive_early(&other);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	assert_int_equal(post(3, MEMORY, 1), 0);
	assert_int_equal(post(4, MEMORY, 1), 0);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 1);
	assert_int_equal(memory[UD_GRH], 'a');
	assert_int_equal(s.ud.arrivals.count, 1);
	other.state = UD_UP;
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 2);
}

/* Peers that do not confirm the keys leave half of the slots to the others. */
static void test_places_of_sessions_without_keys(void **state)
{
	struct ud_session other = { .ud = &s.ud, .state = UD_KEYING };

	(void)state;
	for (int i = 0; i < UD_RECVS_EARLY; i++)
		arrive_early(&other);
	assert_int_equal(drops[UD_DROP_EARLY], 0);
	arrive_early(&other);
	assert_int_equal(drops[UD_DROP_EARLY], 1);
	assert_int_equal(offered, 1 << 5);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	assert_int_equal(s.ud.arrivals.count, UD_RECVS_EARLY + 1);
	assert_int_equal(post(3, MEMORY, 1), 0);
	ud_recv_deliver(&s.ud);
	assert_int_equal(memory[UD_GRH], 'a');
}

/* The QP of a failed session may live on while the worker does not answer. */
static void test_message_of_a_failed_session(void **state)
{
	(void)state;
	s.session.state = UD_FAILED;
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	assert_int_equal(s.ud.arrivals.count, 0);
	assert_int_equal(offered, 1);
}

static void test_end_of_a_session_without_keys(void **state)
{
	(void)state;
	s.session.state = UD_KEYING;
	assert_int_equal(post(3, MEMORY, 1), 0);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_forget(&s.session);
	s.session.state = UD_UP;
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 0);
	assert_int_equal(offered, 1);
}

static void test_end_of_a_session_with_keys(void **state)
{
	(void)state;
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	arrive(1, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_forget(&s.session);
	s.session.state = UD_FAILED;
	assert_int_equal(post(3, MEMORY, 1), 0);
	assert_int_equal(post(4, MEMORY, 1), 0);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 2);
	assert_int_equal(found.wr_id, 4);
	assert_int_equal(memory[UD_GRH], 'b');
}

static void test_short_receive_stays(void **state)
{
	(void)state;
	assert_int_equal(post(3, UD_GRH + PAYLOAD - 1, 1), 0);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	arrive(1, QKEY, UD_HEAD + PAYLOAD - 1);
	ud_recv_deliver(&s.ud);
	assert_int_equal(drops[UD_DROP_SHORT], 1);
	assert_int_equal(count, 1);
	assert_int_equal(memory[UD_GRH], 'b');
}

static void test_wrong_key_of_a_receive(void **state)
{
	(void)state;
	assert_int_equal(post(3, MEMORY, 0), 0);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(found.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(errors, 1);
}

static void test_worker_that_takes_no_slot(void **state)
{
	(void)state;
	refusal = -ENOTCONN;
	arrive(0, QKEY, UD_HEAD - 1);
	assert_int_equal(errors, 1);
	s.worker.status = SRDMA_QP_STATUS_ERROR; /* its end is known */
	arrive(0, QKEY, UD_HEAD - 1);
	assert_int_equal(errors, 1);
}

/* Slots that the leg has no room for wait until it has. */
static void test_full_leg(void **state)
{
	(void)state;
	refusal = -EAGAIN;
	arrive(0, QKEY, UD_HEAD - 1);
	arrive(1, QKEY, UD_HEAD - 1);
	ud_recv_deliver(&s.ud);
	assert_int_equal(errors, 0);
	assert_int_equal(offered, 0);
	refusal = 0;
	s.worker.status = SRDMA_QP_STATUS_ERROR;
	ud_recv_deliver(&s.ud);
	assert_int_equal(offered, 0);
	s.worker.status = SRDMA_QP_STATUS_INIT;
	ud_recv_deliver(&s.ud);
	assert_int_equal(offered, 3);
	ud_recv_deliver(&s.ud); /* each one once */
}

static void test_worker_that_takes_no_late_slot(void **state)
{
	(void)state;
	refusal = -EAGAIN;
	arrive(0, QKEY, UD_HEAD - 1);
	refusal = -ENOTCONN;
	ud_recv_deliver(&s.ud);
	assert_int_equal(errors, 1);
	ud_recv_deliver(&s.ud);
	assert_int_equal(errors, 1);
}

static void test_full_queue(void **state)
{
	(void)state;
	for (int i = 0; i < RECVS; i++)
		assert_int_equal(post(1, MEMORY, 1), 0);
	assert_int_equal(post(1, MEMORY, 1), ENOMEM);
	ud_recv_flush(&s.ud);
	assert_int_equal(count, RECVS);
	assert_int_equal(found.status, IBV_WC_WR_FLUSH_ERR);
}

/* Receives of an SRQ are not flushed, and a QP in error takes none. */
static void test_receives_of_an_srq(void **state)
{
	struct ibv_sge sge = { (uintptr_t)memory, MEMORY, 1 };
	const struct ibv_recv_wr wr = { .wr_id = 6,
					.sg_list = &sge,
					.num_sge = 1 };
	struct verbs_recvs shared;
	struct verbs_srq srq = { .recvs = &shared };

	(void)state;
	assert_int_equal(verbs_recvs_create(&shared, 1, 1), 0);
	assert_int_equal(verbs_recvs_put(&shared, &wr), 0);
	assert_int_equal(verbs_recvs_put(&shared, &wr), ENOMEM);
	s.qp.ibv.srq = &srq.ibv;
	s.ud.recvs = &shared;
	ud_recv_flush(&s.ud);
	ud_recv_clear(&s.ud);
	assert_int_equal(shared.ring.count, 1);
	arrive(0, QKEY, UD_HEAD + PAYLOAD);
	s.ud.ready = 0;
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 0);
	s.ud.ready = 1;
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 1);
	assert_int_equal(found.wr_id, 6);
	assert_int_equal(srq_done, 1);
	assert_int_equal(shared.ring.count, 0);
	verbs_recvs_destroy(&shared);
}

/* --- groups ------------------------------------------------------------------------- */

static void arrive_for_group(uint32_t slot, uint32_t len)
{
	const struct srdma_wc wc = { .wr_id = slot,
				     .opcode = SRDMA_WC_RECV,
				     .byte_len = len };

	ud_head_write(slots[slot], &(struct ud_head){ QKEY, group });
	slots[slot][UD_HEAD_MAX] = 'g';
	ud_recv_arrived(&s.ud, &s.session, &wc);
}

/* The GRH has the sender's GID and that of the group. */
static void test_message_for_a_group(void **state)
{
	(void)state;
	assert_int_equal(post(3, MEMORY, 1), 0);
	arrive_for_group(0, UD_HEAD_MAX + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 1);
	assert_int_equal(found.byte_len, UD_GRH + PAYLOAD);
	assert_int_equal(found.src_qp, 9);
	assert_int_equal(memory[8], 1);
	assert_memory_equal(memory + 24, group, sizeof(group));
	assert_int_equal(memory[UD_GRH], 'g');
}

static void test_message_for_a_group_of_others(void **state)
{
	(void)state;
	attached = 0;
	assert_int_equal(post(3, MEMORY, 1), 0);
	arrive_for_group(0, UD_HEAD_MAX + PAYLOAD);
	ud_recv_deliver(&s.ud);
	assert_int_equal(count, 0);
	assert_int_equal(drops[UD_DROP_GROUP], 1);
	assert_int_equal(offered, 1);
	arrive_for_group(1, UD_HEAD_MAX - 1);
	assert_int_equal(drops[UD_DROP_BAD], 1);
}

static void send_own(uint32_t qkey)
{
	static const uint8_t payload[PAYLOAD] = "own";
	const struct ud_head head = { qkey, group };
	const struct ud_own own = { payload, PAYLOAD, 7, 1 };

	ud_recv_own(&s.ud, &head, &own);
}

static void test_own_message_for_a_group(void **state)
{
	(void)state;
	memset(s.root.attr.gid, 4, sizeof(s.root.attr.gid));
	s.qp.ibv.qp_num = 5;
	send_own(QKEY); /* there is no receive */
	assert_int_equal(count, 0);
	assert_int_equal(post(3, MEMORY, 1), 0);
	assert_int_equal(post(4, MEMORY, 1), 0);
	send_own(QKEY + 1);
	s.ud.ready = 0;
	send_own(QKEY);
	assert_int_equal(count, 0);
	s.ud.ready = 1;
	send_own(QKEY);
	assert_int_equal(count, 1);
	assert_int_equal(found.wr_id, 3);
	assert_int_equal(found.src_qp, 5);
	assert_int_equal(found.imm_data, htonl(7));
	assert_int_equal(memory[8], 4);
	assert_memory_equal(memory + 24, group, sizeof(group));
	assert_string_equal((char *)memory + UD_GRH, "own");
	assert_int_equal(offered, 0); /* it had no slot */
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_message_waits_for_a_receive),
		TEST(test_illegal_messages_are_dropped),
		TEST(test_message_beyond_the_mtu),
		TEST(test_receive_that_is_flushed_comes_back),
		TEST(test_nothing_is_delivered_before_the_keys),
		TEST(test_session_whose_peer_is_not_ready),
		TEST(test_session_without_keys_is_passed),
		TEST(test_places_of_sessions_without_keys),
		TEST(test_message_of_a_failed_session),
		TEST(test_end_of_a_session_without_keys),
		TEST(test_end_of_a_session_with_keys),
		TEST(test_short_receive_stays),
		TEST(test_wrong_key_of_a_receive),
		TEST(test_worker_that_takes_no_slot),
		TEST(test_full_leg),
		TEST(test_worker_that_takes_no_late_slot),
		TEST(test_full_queue),
		TEST(test_receives_of_an_srq),
		TEST(test_message_for_a_group),
		TEST(test_message_for_a_group_of_others),
		TEST(test_own_message_for_a_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
