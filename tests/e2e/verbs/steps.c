/*
 * One end, RC or UD, that does what its standard input says, one word a line, and tells
 * the result on a line of its own. tests/e2e/test_run_refusals.py starts it by
 * `srdma run` and ends workers, agents and peers between the steps.
 *
 *     steps rc|ud
 *     to GID QPN       the peer; RC: the QP goes to RTS     "0", or the name of an errno
 *     send             posts one message                     the same
 *     next             waits for a completion                "send N" or "recv N", a status
 *     event            waits for an asynchronous event       "event N"
 *     quiet            polls for a while                     "quiet", or a completion
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "connect.h"

enum { DEPTH = 8, BYTES = 64, WORD = 128, QUIET = 500, QKEY = 5 };

static char memory[2 * BYTES]; /* the second half receives */
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static uint32_t peer;
static int is_ud;

static void need(const void *made, const char *what)
{
	if (made)
		return;
	printf("%s %s\n", what, strerrorname_np(errno));
	exit(1);
}

static void open_objects(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	need(list && n ? list : NULL, "device");
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	need(ctx, "context");
	pd = ibv_alloc_pd(ctx);
	need(pd, "PD");
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(mr, "MR");
	cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
	need(cq, "CQ");
}

static void open_qp(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = is_ud ? IBV_QPT_UD
							  : IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = QKEY };

	qp = ibv_create_qp(pd, &init);
	need(qp, "QP");
	errno = ibv_modify_qp(
		qp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	need(errno ? NULL : qp, "INIT");
}

static void post_recv(void)
{
	struct ibv_sge sge = { (uintptr_t)memory + BYTES, BYTES, mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	errno = ibv_post_recv(qp, &wr, &bad);
	need(errno ? NULL : qp, "receive");
}

/* --- steps ----------------------------------------------------------------------- */

static void tell(int err)
{
	printf("%s\n", err ? strerrorname_np(err) : "0");
}

static int ud_to_rts(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

	attr.qp_state = IBV_QPS_RTS;
	return err ? err
		   : ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* A UD QP that is in RTS gets another peer. */
static int ud_to(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = *gid, .hop_limit = 1 } };

	if (ah)
		ibv_destroy_ah(ah);
	ah = ibv_create_ah(pd, &attr);
	if (!ah)
		return errno;
	return qp->state == IBV_QPS_INIT ? ud_to_rts() : 0;
}

static void to(const char *address, uint32_t qp_num)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	inet_pton(AF_INET, address, gid.raw + 12);
	peer = qp_num;
	tell(is_ud ? ud_to(&gid) : qp_to_rts(qp, &gid, qp_num));
}

static void post_send(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };

	if (is_ud) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = peer;
		wr.wr.ud.remote_qkey = QKEY;
	}
	tell(ibv_post_send(qp, &wr, &bad));
}

static void next_completion(int polls)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc = { 0 };
	int n = 0;

	for (int i = 0; !n && (!polls || i < polls); i++) {
		n = ibv_poll_cq(cq, 1, &wc);
		nanosleep(&pause, NULL);
	}
	if (!n) {
		printf("quiet\n");
		return;
	}
	printf("%s %d\n", wc.opcode & IBV_WC_RECV ? "recv" : "send", wc.status);
	if (wc.opcode & IBV_WC_RECV && wc.status == IBV_WC_SUCCESS)
		post_recv();
}

static void next_event(void)
{
	struct ibv_async_event e;

	if (ibv_get_async_event(ctx, &e)) {
		tell(errno);
		return;
	}
	printf("event %d\n", e.event_type);
	ibv_ack_async_event(&e);
}

static void step(char *line)
{
	const char *word = strtok(line, " \n"), *address = strtok(NULL, " \n"),
		   *number = strtok(NULL, " \n");

	if (!strcmp(word, "to"))
		to(address, (uint32_t)strtoul(number, NULL, 0));
	else if (!strcmp(word, "send"))
		post_send();
	else if (!strcmp(word, "next"))
		next_completion(0);
	else if (!strcmp(word, "quiet"))
		next_completion(QUIET);
	else if (!strcmp(word, "event"))
		next_event();
}

static int close_objects(void)
{
	int err = ibv_destroy_qp(qp);

	if (ah)
		err |= ibv_destroy_ah(ah);
	err |= ibv_destroy_cq(cq);
	err |= ibv_dereg_mr(mr);
	err |= ibv_dealloc_pd(pd);
	return err | ibv_close_device(ctx);
}

int main(int argc, char **argv)
{
	char line[WORD];

	is_ud = argc > 1 && !strcmp(argv[1], "ud");
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_objects();
	open_qp();
	for (int i = 0; i < DEPTH; i++)
		post_recv();
	printf("%u\n", qp->qp_num);
	while (fgets(line, sizeof(line), stdin))
		step(line);
	return close_objects() != 0;
}
