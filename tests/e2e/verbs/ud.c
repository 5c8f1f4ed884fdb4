/*
 * UD QPs of one program that talk to each other over the wire of the worker
 * (docs/run.md 4.1). tests/e2e/test_run.py starts it by `srdma run`.
 */
#include "ud_end.h"

#include <arpa/inet.h>
#include <poll.h>
#include <time.h>

enum {
	MEMORY = 1 << 16,
	MTU = 4096,
	BURST = 200,
	QUIET = 300, /* polls of 1 ms in which nothing arrives */
};

static union ibv_gid gid;
static struct end ends[2];
static struct ibv_ah *ah; /* to this worker */

static struct ibv_ah_attr to_gid(void)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = gid, .hop_limit = 1 },
	};
}

static int open_device(void **state)
{
	struct ibv_ah_attr attr;

	if (setup(state) || ibv_query_gid(ctx, 1, 0, &gid))
		return -1;
	attr = to_gid();
	ah = ibv_create_ah(pd, &attr);
	return ah ? 0 : -1;
}

static int close_device(void **state)
{
	if (ibv_dealloc_pd(pd) != EBUSY || ibv_destroy_ah(ah))
		return -1;
	return teardown(state);
}

/* --- two ends -------------------------------------------------------------------- */

static struct ibv_qp *make_deep_qp(struct ibv_cq *cq, uint32_t sends,
				   uint32_t receives)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { sends, receives, 4, 4, 0 },
					 .qp_type = IBV_QPT_UD };

	return ibv_create_qp(pd, &init);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	return make_deep_qp(cq, DEPTH, DEPTH);
}

static void open_end(struct end *e)
{
	open_memory(e, MEMORY);
	e->qp = make_qp(e->cq);
	assert_non_null(e->qp);
	to_rts(e->qp);
}

static int open_ends(void **state)
{
	(void)state;
	open_end(&ends[0]);
	open_end(&ends[1]);
	return 0;
}

static int close_ends(void **state)
{
	(void)state;
	close_end(&ends[0]);
	close_end(&ends[1]);
	return 0;
}

static struct ibv_sge part(const struct end *e, uint32_t at, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)e->memory + at, length,
				 e->mr->lkey };
}

static void post_recv(const struct end *e, uint64_t id, uint32_t length)
{
	struct ibv_sge sge = part(e, MEMORY / 2, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

/* A request of the first end to the other one. */
static struct ibv_send_wr request(struct ibv_sge *sge)
{
	return (struct ibv_send_wr){
		.wr_id = 7,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { ah, ends[1].qp->qp_num, QKEY },
	};
}

static int post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(ends[0].qp, wr, &bad);

	assert_ptr_equal(bad, err ? wr : NULL);
	return err;
}

/* Both ends make progress. Returns the completion of one of them. */
static struct ibv_wc await(struct end *e)
{
	struct end *other = e == &ends[0] ? &ends[1] : &ends[0];
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(e->cq, 1, &wc);
		assert_int_equal(ibv_poll_cq(other->cq, 0, NULL), 0);
	} while (!n);
	assert_int_equal(n, 1);
	return wc;
}

static void send_succeeds(struct ibv_send_wr *wr)
{
	struct ibv_wc wc;

	assert_int_equal(post(wr), 0);
	wc = await(&ends[0]);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr->wr_id);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
	assert_int_equal(wc.qp_num, ends[0].qp->qp_num);
}

static void nothing_arrives(struct end *e)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc;

	for (int i = 0; i < QUIET; i++) {
		assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 0);
		nanosleep(&pause, NULL);
	}
}

static struct ibv_wc arrives(uint64_t id, uint32_t payload)
{
	const struct ibv_wc wc = await(&ends[1]);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.byte_len, GRH + payload);
	assert_int_equal(wc.src_qp, ends[0].qp->qp_num);
	assert_int_equal(wc.qp_num, ends[1].qp->qp_num);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	return wc;
}

/* --- messages -------------------------------------------------------------------- */

static void test_message_and_answer(void **state)
{
	const char *received = ends[1].memory + MEMORY / 2;
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&sge);
	struct ibv_grh grh;
	struct ibv_ah *back;
	struct ibv_wc wc;

	(void)state;
	strcpy(ends[0].memory, "hello");
	post_recv(&ends[1], 1, 100);
	send_succeeds(&wr);
	wc = arrives(1, 5);
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_memory_equal(received + GRH, "hello", 5);
	memcpy(&grh, received, GRH);
	assert_memory_equal(&grh.sgid, &gid, sizeof(gid));
	assert_memory_equal(&grh.dgid, &gid, sizeof(gid));
	assert_int_equal(ntohl(grh.version_tclass_flow) >> 28, 6);

	back = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
	assert_non_null(back);
	post_recv(&ends[0], 2, MEMORY / 2);
	sge = part(&ends[1], 0, MTU);
	wr.wr.ud.ah = back;
	wr.wr.ud.remote_qpn = wc.src_qp;
	assert_int_equal(
		ibv_post_send(ends[1].qp, &wr, &(struct ibv_send_wr *){ NULL }),
		0);
	wc = await(&ends[0]);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.byte_len, GRH + MTU);
	assert_int_equal(wc.src_qp, ends[1].qp->qp_num);
	assert_int_equal(await(&ends[1]).opcode, IBV_WC_SEND);
	assert_int_equal(ibv_destroy_ah(back), 0);
}

static void test_parts_inline_and_immediate_data(void **state)
{
	const char *received = ends[1].memory + MEMORY / 2;
	char text[] = "inline";
	struct ibv_sge parts[] = { part(&ends[0], 0, 3), part(&ends[0], 8, 0),
				   part(&ends[0], 3, 4) };
	struct ibv_sge inlined = { (uintptr_t)text, 6, 0 };
	struct ibv_send_wr wr = request(parts);
	struct ibv_wc wc;

	(void)state;
	strcpy(ends[0].memory, "scatter");
	post_recv(&ends[1], 1, 100);
	post_recv(&ends[1], 2, 100);
	wr.num_sge = 3;
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htonl(0x1234);
	send_succeeds(&wr);
	wc = arrives(1, 7);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), 0x1234);
	assert_memory_equal(received + GRH, "scatter", 7);

	wr = request(&inlined);
	wr.send_flags |= IBV_SEND_INLINE;
	send_succeeds(&wr);
	arrives(2, 6);
	assert_memory_equal(received + GRH, "inline", 6);
}

/* Number of messages that arrive at the second end until it is quiet. */
static unsigned count_arrivals(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc;
	unsigned n = 0;

	post_recv(&ends[1], 1, 100);
	for (int quiet = 0; quiet < QUIET; quiet++) {
		if (ibv_poll_cq(ends[1].cq, 1, &wc)) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			post_recv(&ends[1], 1, 100);
			n++;
			quiet = 0;
		}
		assert_int_equal(ibv_poll_cq(ends[0].cq, 1, &wc), 0);
		nanosleep(&pause, NULL);
	}
	return n;
}

/* More messages than an end may have under way, with all receives posted late: 128
 * wait at the receiver, and at most as many on their way. The others are dropped, and
 * their sender does not wait. */
static void test_receives_that_come_late(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 1);
	struct ibv_send_wr wr = request(&sge);

	(void)state;
	for (int i = 0; i < 400; i++)
		send_succeeds(&wr);
	assert_in_range(count_arrivals(), 128, 256);
}

/* Posts n requests at once. */
static void post_burst(struct ibv_qp *from, const struct ibv_qp *to, int n)
{
	struct ibv_sge sge = part(&ends[0], 0, MTU);
	struct ibv_send_wr wr = request(&sge), *bad;

	wr.wr.ud.remote_qpn = to->qp_num;
	for (int i = 0; i < n; i++)
		assert_int_equal(ibv_post_send(from, &wr, &bad), 0);
}

/* All messages of the burst arrive, in their order. */
static void burst_arrives(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc;

	for (int sent = 0, arrived = 0; sent < n || arrived < n;) {
		if (!ibv_poll_cq(cq, 1, &wc))
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND)
			sent++;
		else
			assert_int_equal(wc.wr_id, arrived++);
	}
}

/* More messages at once than the library has slots for them at the receiver, and than
 * the worker takes from the sender, before there is a session. Then others with it. */
static void test_burst_into_posted_receives(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 4 * BURST, NULL, NULL, 0);
	struct end receiver = ends[1];
	struct ibv_qp *sender = make_deep_qp(cq, BURST, 1);

	(void)state;
	receiver.qp = make_deep_qp(cq, 1, BURST);
	to_rts(sender);
	to_rts(receiver.qp);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < BURST; i++)
			post_recv(&receiver, i, GRH + MTU);
		post_burst(sender, receiver.qp, BURST);
		burst_arrives(cq, BURST);
	}
	assert_int_equal(ibv_destroy_qp(sender), 0);
	assert_int_equal(ibv_destroy_qp(receiver.qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* --- what is dropped --------------------------------------------------------------- */

static void test_other_qkey_is_dropped(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&sge);
	struct ibv_qp_attr attr = { .qkey = 99 };

	(void)state;
	post_recv(&ends[1], 1, 100);
	wr.wr.ud.remote_qkey = 2;
	send_succeeds(&wr);
	nothing_arrives(&ends[1]);
	/* The upper bit stands for the Q_Key of the sender. */
	wr.wr.ud.remote_qkey = 0x80000000;
	send_succeeds(&wr);
	arrives(1, 5);
	assert_int_equal(ibv_modify_qp(ends[1].qp, &attr, IBV_QP_QKEY), 0);
	post_recv(&ends[1], 2, 100);
	send_succeeds(&wr);
	nothing_arrives(&ends[1]);
	wr.wr.ud.remote_qkey = 99;
	send_succeeds(&wr);
	arrives(2, 5);
}

static void test_short_receive_is_not_used(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&sge);

	(void)state;
	post_recv(&ends[1], 1, GRH + 4);
	send_succeeds(&wr);
	nothing_arrives(&ends[1]);
	sge.length = 4;
	send_succeeds(&wr);
	arrives(1, 4);
}

/* The others are not delayed: no UD QP has this number. */
static void test_absent_peer(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr absent = request(&sge), wr = request(&sge);

	(void)state;
	post_recv(&ends[1], 1, 100);
	post_recv(&ends[1], 2, 100);
	send_succeeds(&wr);
	arrives(1, 5);
	absent.wr.ud.remote_qpn ^= 1;
	assert_int_equal(post(&absent), 0);
	wr.wr_id = 8;
	assert_int_equal(post(&wr), 0);
	arrives(2, 5);
	assert_int_equal(await(&ends[0]).wr_id, 7);
	assert_int_equal(await(&ends[0]).wr_id, 8);
	send_succeeds(&absent); /* at once: the last attempt failed just now */
}

/* The peer resets its UD QP, which keeps its QPN: a session with it is made again. */
static void test_peer_that_begins_again(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&sge);
	const uint32_t qp_num = ends[1].qp->qp_num;

	(void)state;
	post_recv(&ends[1], 1, 100);
	send_succeeds(&wr);
	arrives(1, 5);
	to(ends[1].qp, IBV_QPS_RESET, 0);
	to_rts(ends[1].qp);
	post_recv(&ends[1], 2, 100);
	assert_int_equal(ends[1].qp->qp_num, qp_num);
	send_succeeds(&wr);
	arrives(2, 5);
}

/* Sends a message by a QP that ends at once, before there is a session. 1: it arrives. */
static int last_message_arrives(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_qp *qp = make_qp(ends[0].cq);
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&sge), *bad;
	struct ibv_wc wc;
	int n = 0;

	assert_non_null(qp);
	to_rts(qp);
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	for (int i = 0; i < QUIET && !n; i++) {
		n = ibv_poll_cq(ends[1].cq, 1, &wc);
		nanosleep(&pause, NULL);
	}
	assert_true(!n || wc.byte_len == GRH + 5);
	return n;
}

/* The end waits for 1 s, which may be too short on a busy machine. */
static void test_last_message_arrives(void **state)
{
	(void)state;
	post_recv(&ends[1], 1, 100);
	while (!last_message_arrives())
		;
}

/* --- errors ------------------------------------------------------------------------ */

static void test_refused_requests(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 449);
	struct ibv_send_wr wr;

	(void)state;
#define REFUSE(FIELD, VALUE)                                                   \
	do {                                                                   \
		wr = request(&sge);                                            \
		wr.FIELD = VALUE;                                              \
		assert_int_equal(post(&wr), EINVAL);                           \
	} while (0)
	REFUSE(opcode, IBV_WR_RDMA_WRITE);
	REFUSE(num_sge, 5);
	REFUSE(num_sge, -1);
	REFUSE(wr.ud.ah, NULL);
	REFUSE(wr.ud.remote_qpn, 0);
	REFUSE(wr.ud.remote_qpn, 0x1000000);
	REFUSE(send_flags, IBV_SEND_INLINE);
}

static void fails(struct end *e, enum ibv_wc_status status, uint64_t id)
{
	const struct ibv_wc wc = await(e);

	assert_int_equal(wc.status, status);
	assert_int_equal(wc.wr_id, id);
}

/* A request that fails moves the QP to error: the rest is flushed. */
static void send_fails(struct ibv_sge sge, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = request(&sge);
	struct ibv_sge good = part(&ends[0], 0, 1);

	post_recv(&ends[0], 1, 100);
	assert_int_equal(post(&wr), 0);
	fails(&ends[0], status, 7);
	fails(&ends[0], IBV_WC_WR_FLUSH_ERR, 1);
	post_recv(&ends[0], 2, 100);
	fails(&ends[0], IBV_WC_WR_FLUSH_ERR, 2);
	wr = request(&good);
	assert_int_equal(post(&wr), 0);
	fails(&ends[0], IBV_WC_WR_FLUSH_ERR, 7);
}

static void test_long_message(void **state)
{
	(void)state;
	send_fails(part(&ends[0], 0, MTU + 1), IBV_WC_LOC_LEN_ERR);
}

static void test_bad_key_of_a_message(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 5);

	(void)state;
	sge.lkey ^= 1;
	send_fails(sge, IBV_WC_LOC_PROT_ERR);
}

static void test_message_beyond_its_region(void **state)
{
	(void)state;
	send_fails(part(&ends[0], MEMORY - 4, 5), IBV_WC_LOC_PROT_ERR);
}

static void test_bad_key_of_a_receive(void **state)
{
	struct ibv_sge sge = part(&ends[1], MEMORY / 2, 100);
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	struct ibv_sge from = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&from);

	(void)state;
	sge.lkey ^= 1;
	assert_int_equal(ibv_post_recv(ends[1].qp, &recv, &bad), 0);
	post_recv(&ends[1], 2, 100);
	send_succeeds(&wr);
	fails(&ends[1], IBV_WC_LOC_PROT_ERR, 1);
	fails(&ends[1], IBV_WC_WR_FLUSH_ERR, 2);
}

static void test_full_queues(void **state)
{
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 5 };
	struct ibv_recv_wr *bad;
	struct ibv_send_wr wr = request(&sge);

	(void)state;
	assert_int_equal(ibv_post_recv(ends[0].qp, &recv, &bad), EINVAL);
	recv.num_sge = 1;
	for (int i = 0; i < DEPTH; i++)
		post_recv(&ends[0], 1, 100);
	assert_int_equal(ibv_post_recv(ends[0].qp, &recv, &bad), ENOMEM);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(post(&wr), 0);
	assert_int_equal(post(&wr), ENOMEM);
}

static void test_depths(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_qp *qp = make_deep_qp(cq, 4096, 65536);

	(void)state;
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	errno = 0;
	assert_null(make_deep_qp(cq, 4097, 1));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(make_deep_qp(cq, 1, 65537));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void refuse_ah(struct ibv_ah_attr attr, int err)
{
	errno = 0;
	assert_null(ibv_create_ah(pd, &attr));
	assert_int_equal(errno, err);
}

static void test_refused_addresses(void **state)
{
	struct ibv_wc wc = { 0 };
	struct ibv_grh grh = { 0 };
	struct ibv_ah_attr attr;

	(void)state;
#define REFUSE_AH(ERR, FIELD, VALUE)                                           \
	do {                                                                   \
		attr = to_gid();                                               \
		attr.FIELD = VALUE;                                            \
		refuse_ah(attr, ERR);                                          \
	} while (0)
	REFUSE_AH(EINVAL, is_global, 0);
	REFUSE_AH(EINVAL, port_num, 2);
	REFUSE_AH(EINVAL, grh.sgid_index, 1);
	REFUSE_AH(EACCES, grh.dgid.raw[0], 1);		      /* no [[peer]] */
	assert_null(ibv_create_ah_from_wc(pd, &wc, &grh, 1)); /* no GRH */
	wc.wc_flags = IBV_WC_GRH;
	assert_int_equal(ibv_init_ah_from_wc(ctx, 2, &wc, &grh, &attr), -1);
}

static void test_refused_transitions(void **state)
{
	struct ibv_qp *qp = make_qp(ends[0].cq);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_sge sge = part(&ends[0], 0, 5);
	struct ibv_send_wr wr = request(&sge), *bad;

	(void)state;
	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
		EINVAL); /* no Q_Key */
	assert_int_equal(ibv_post_send(qp, &wr, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* --- limits ---------------------------------------------------------------------------- */

enum { PDS = 3, PEERS = 66, CALLERS = 34, AGAIN = 1000 };

static struct ibv_pd *pds[PDS];
static struct end peers[PEERS];

/* A PD has not enough records for all peers. */
static void open_peers(void)
{
	for (int i = 0; i < PDS; i++) {
		pds[i] = ibv_alloc_pd(ctx);
		assert_non_null(pds[i]);
	}
	for (int i = 0; i < PEERS; i++) {
		struct ibv_pd *own = pd;

		pd = pds[i % PDS];
		open_end(&peers[i]);
		pd = own;
	}
}

static void close_peers(void)
{
	for (int i = 0; i < PEERS; i++)
		close_end(&peers[i]);
	for (int i = 0; i < PDS; i++)
		assert_int_equal(ibv_dealloc_pd(pds[i]), 0);
}

static void send_to(const struct end *from, const struct end *to)
{
	struct ibv_sge sge = part(from, 0, 5);
	struct ibv_send_wr wr = request(&sge), *bad;

	wr.wr.ud.remote_qpn = to->qp->qp_num;
	wr.send_flags = 0;
	assert_int_equal(ibv_post_send(from->qp, &wr, &bad), 0);
}

/* A message of an end arrives at another one. It is sent again at times: one that is
 * sent just when the peer ends the session is lost. */
static void passes(const struct end *from, const struct end *to)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc = { 0 };

	post_recv(to, 1, 100);
	for (int i = 0; wc.src_qp != from->qp->qp_num; i++) {
		if (i % AGAIN == 0)
			send_to(from, to);
		if (!ibv_poll_cq(to->cq, 1, &wc))
			nanosleep(&pause, NULL);
		else if (wc.src_qp != from->qp->qp_num)
			post_recv(to, 1, 100); /* it got a former message */
	}
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* A UD QP has 64 sessions, 32 of them begun by peers of a GID: further ones replace
 * those that were used least recently, which are made again then. */
static void test_more_peers_than_sessions(void **state)
{
	(void)state;
	open_peers();
	for (int i = 0; i < PEERS; i++)
		passes(&ends[0], &peers[i]);
	passes(&ends[0], &peers[0]);
	for (int i = 0; i < CALLERS; i++)
		passes(&peers[i], &ends[1]);
	passes(&peers[0], &ends[1]);
	close_peers();
}

/* --- completion channels ----------------------------------------------------------- */

enum { TRIES = 30, LISTEN_MS = 20 };

static struct ibv_comp_channel *open_channel(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);

	assert_non_null(channel);
	return channel;
}

static struct ibv_cq *make_cq(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, channel, 0);

	assert_non_null(cq);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	return cq;
}

/* UCX ends if the channel of a new UD QP, to which no peer has sent, is readable. */
static void test_channel_of_a_new_qp_is_not_readable(void **state)
{
	struct ibv_pd *own = pd;

	(void)state;
	pd = ibv_alloc_pd(ctx);
	assert_non_null(pd);
	for (int i = 0; i < TRIES; i++) {
		struct ibv_comp_channel *channel = open_channel();
		struct ibv_cq *cq = make_cq(channel);
		struct ibv_qp *qp = make_qp(cq);
		struct pollfd p = { .fd = channel->fd, .events = POLLIN };

		assert_non_null(qp);
		to_rts(qp);
		assert_int_equal(poll(&p, 1, LISTEN_MS), 0);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		assert_int_equal(ibv_destroy_cq(cq), 0);
		assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	}
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	pd = own;
}

/* The session is made while the program waits for its message. */
static void test_event_of_the_first_message(void **state)
{
	struct ibv_comp_channel *channel = open_channel();
	struct end e = ends[1];
	struct ibv_cq *found;
	struct ibv_wc wc;
	void *context;

	(void)state;
	e.cq = make_cq(channel);
	e.qp = make_qp(e.cq);
	assert_non_null(e.qp);
	to_rts(e.qp);
	post_recv(&e, 1, 100);
	send_to(&ends[0], &e);
	assert_int_equal(ibv_get_cq_event(channel, &found, &context), 0);
	assert_ptr_equal(found, e.cq);
	ibv_ack_cq_events(found, 1);
	assert_int_equal(ibv_poll_cq(e.cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_qp(e.qp), 0);
	assert_int_equal(ibv_destroy_cq(e.cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* --- an SRQ ------------------------------------------------------------------------ */

struct shared {
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
};

/* Two UD QPs, whose completions are those of ends[1]. */
static void open_shared(struct shared *s)
{
	struct ibv_srq_init_attr attr = { .attr = { DEPTH, 2, 0 } };
	struct ibv_qp_init_attr init = { .send_cq = ends[1].cq,
					 .recv_cq = ends[1].cq,
					 .cap = { .max_send_wr = 1 },
					 .qp_type = IBV_QPT_UD };

	s->srq = ibv_create_srq(pd, &attr);
	assert_non_null(s->srq);
	init.srq = s->srq;
	for (int i = 0; i < 2; i++) {
		s->qp[i] = ibv_create_qp(pd, &init);
		assert_non_null(s->qp[i]);
		to_rts(s->qp[i]);
	}
}

static void close_shared(struct shared *s)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_srq(s->srq), EBUSY);
		assert_int_equal(ibv_destroy_qp(s->qp[i]), 0);
	}
	assert_int_equal(ibv_destroy_srq(s->srq), 0);
}

static int post_shared(const struct shared *s, uint64_t id, int sges)
{
	struct ibv_sge list[] = { part(&ends[1], 0, 50),
				  part(&ends[1], MEMORY / 2, 50),
				  part(&ends[1], 0, 0) };

	return post_to_srq(s->srq, id, list, sges);
}

/* A message of 16 bytes to a QP of the SRQ. */
static void send_shared(const struct ibv_qp *qp)
{
	struct ibv_sge sge = part(&ends[0], 0, 16);
	struct ibv_send_wr wr = request(&sge);

	wr.wr.ud.remote_qpn = qp->qp_num;
	send_succeeds(&wr);
}

static void arrives_shared(const struct ibv_qp *qp, uint64_t id)
{
	const struct ibv_wc wc = await(&ends[1]);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.qp_num, qp->qp_num);
	assert_int_equal(wc.byte_len, GRH + 16);
	/* It is scattered behind the GRH. */
	assert_memory_equal(ends[1].memory + GRH, "0123456789", 10);
	assert_memory_equal(ends[1].memory + MEMORY / 2, "abcdef", 6);
}

static void test_shared_receives(void **state)
{
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	struct ibv_recv_wr *bad, own = { 0 };
	struct shared s;

	(void)state;
	strcpy(ends[0].memory, "0123456789abcdef");
	open_shared(&s);
	assert_int_equal(ibv_post_recv(s.qp[0], &own, &bad), EINVAL);
	assert_int_equal(post_shared(&s, 9, 3), EINVAL);
	for (uint64_t id = 1; id <= DEPTH; id++)
		assert_int_equal(post_shared(&s, id, 2), 0);
	assert_int_equal(post_shared(&s, 9, 2), ENOMEM);
	assert_int_equal(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
	for (uint64_t id = 1; id <= DEPTH; id++) {
		send_shared(s.qp[id % 2]);
		arrives_shared(s.qp[id % 2], id);
	}
	expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	/* A message waits for a receive. */
	send_shared(s.qp[0]);
	nothing_arrives(&ends[1]);
	assert_int_equal(post_shared(&s, 77, 2), 0);
	arrives_shared(s.qp[0], 77);
	close_shared(&s);
}

/* The receives are for the other QP then, also if messages waited for them. */
static void test_error_of_a_qp_with_an_srq(void **state)
{
	struct shared s;

	(void)state;
	strcpy(ends[0].memory, "0123456789abcdef");
	open_shared(&s);
	send_shared(s.qp[0]);
	nothing_arrives(&ends[1]);
	to(s.qp[0], IBV_QPS_ERR, 0);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, s.qp[0]);
	assert_int_equal(post_shared(&s, 1, 2), 0);
	nothing_arrives(&ends[1]);
	send_shared(s.qp[1]);
	arrives_shared(s.qp[1], 1);
	to(s.qp[0], IBV_QPS_RESET, 0);
	to_rts(s.qp[0]);
	assert_int_equal(post_shared(&s, 2, 2), 0);
	send_shared(s.qp[0]);
	arrives_shared(s.qp[0], 2);
	close_shared(&s);
}

/* The first QP of an SRQ decides where its receives are. */
static void test_other_qps_of_an_srq(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };
	struct ibv_qp_init_attr init = { .send_cq = ends[1].cq,
					 .recv_cq = ends[1].cq };
	struct ibv_srq_init_attr attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_qp *qp;
	struct shared s;

	(void)state;
	open_shared(&s);
	init.srq = s.srq;
	for (int i = 0; i < 2; i++) {
		init.qp_type = types[i];
		errno = 0;
		assert_null(ibv_create_qp(pd, &init));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	close_shared(&s);
	init.srq = ibv_create_srq(pd, &attr);
	assert_non_null(init.srq);
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	init.qp_type = IBV_QPT_UD;
	errno = 0;
	assert_null(ibv_create_qp(pd, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(init.srq), 0);
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, open_ends, close_ends)

/* An argument is a pattern for the names of the tests to run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_channel_of_a_new_qp_is_not_readable),
		TEST(test_event_of_the_first_message),
		TEST(test_message_and_answer),
		TEST(test_parts_inline_and_immediate_data),
		TEST(test_receives_that_come_late),
		TEST(test_burst_into_posted_receives),
		TEST(test_other_qkey_is_dropped),
		TEST(test_short_receive_is_not_used),
		TEST(test_absent_peer),
		TEST(test_peer_that_begins_again),
		TEST(test_last_message_arrives),
		TEST(test_refused_requests),
		TEST(test_long_message),
		TEST(test_bad_key_of_a_message),
		TEST(test_message_beyond_its_region),
		TEST(test_bad_key_of_a_receive),
		TEST(test_full_queues),
		TEST(test_depths),
		TEST(test_refused_addresses),
		TEST(test_refused_transitions),
		TEST(test_more_peers_than_sessions),
		TEST(test_shared_receives),
		TEST(test_error_of_a_qp_with_an_srq),
		TEST(test_other_qps_of_an_srq),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, open_device, close_device);
}
