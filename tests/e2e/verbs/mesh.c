/*
 * One of several processes that connect to each other, all to all, as unmodified
 * verbs programs do. tests/e2e/test_run_mesh.py starts them by `srdma run`.
 *
 *     mesh FOLDER RANK COUNT
 *
 * A process writes the file FOLDER/RANK with its GID, memory and QPNs, reads those
 * of the others, and writes its number with RDMA WRITE into its slot of each
 * other memory. It ends with 0 after all numbers have arrived. It prints the time
 * from its start until all QPs were connected and the WRITEs completed, and the
 * largest size of its memory.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "connect.h"

enum { MOST = 128, LIMIT_S = 240, PAUSE_NS = 5000000, PATH = 4096, DEPTH = 4 };

/* A process tells this to the others. */
struct card {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
	uint32_t qp_num[MOST]; /* by rank of the peer */
};

struct process {
	const char *folder;
	unsigned rank, count;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[MOST];
	/* slot[r] is written by the process r; out is what this one writes. */
	struct {
		_Atomic uint64_t slot[MOST];
		uint64_t out;
	} memory;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const struct process *p, const char *what)
{
	fprintf(stderr, "mesh %u: ", p->rank);
	perror(what);
	exit(1);
}

static void pause_until(const struct process *p, double end, const char *what)
{
	const struct timespec pause = { 0, PAUSE_NS };

	if (now_s() > end) {
		fprintf(stderr, "mesh %u: waited %d s for %s\n", p->rank,
			LIMIT_S, what);
		exit(1);
	}
	nanosleep(&pause, NULL);
}

/* --- cards ----------------------------------------------------------------------- */

static void path_of(const struct process *p, unsigned rank, const char *suffix,
		    char path[PATH])
{
	snprintf(path, PATH, "%s/%u%s", p->folder, rank, suffix);
}

/* Writes a file that others see whole or not at all. */
static void publish(const struct process *p, const char *suffix,
		    const void *data, size_t size)
{
	char path[PATH], draft[PATH];
	FILE *f;

	path_of(p, p->rank, suffix, path);
	path_of(p, p->rank, ".draft", draft);
	f = fopen(draft, "wb");
	if (!f || fwrite(data, size, 1, f) != 1 || fclose(f) ||
	    rename(draft, path))
		fail(p, path);
}

static void await(const struct process *p, unsigned rank, const char *suffix,
		  void *data, size_t size)
{
	const double end = now_s() + LIMIT_S;
	char path[PATH];
	FILE *f;

	path_of(p, rank, suffix, path);
	while (!(f = fopen(path, "rb")))
		pause_until(p, end, path);
	if (fread(data, size, 1, f) != 1)
		fail(p, path);
	fclose(f);
}

/* --- queue pairs ------------------------------------------------------------------- */

static struct ibv_qp *make_qp(const struct process *p)
{
	struct ibv_qp_init_attr init = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp(p->pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					 IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail(p, "a queue pair");
	return qp;
}

static void post_write(const struct process *p, struct ibv_qp *qp,
		       const struct card *peer)
{
	struct ibv_sge sge = { (uintptr_t)&p->memory.out, sizeof(p->memory.out),
			       p->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { peer->addr + p->rank * sizeof(uint64_t),
			     peer->rkey },
	};
	struct ibv_send_wr *bad;

	if (ibv_post_send(qp, &wr, &bad))
		fail(p, "ibv_post_send");
}

static void await_completions(const struct process *p, unsigned number)
{
	const double end = now_s() + LIMIT_S;
	struct ibv_wc wc;
	int got;

	while (number) {
		got = ibv_poll_cq(p->cq, 1, &wc);
		if (got < 0)
			fail(p, "ibv_poll_cq");
		if (!got) {
			pause_until(p, end, "completions");
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "mesh %u: a WRITE: %s\n", p->rank,
				ibv_wc_status_str(wc.status));
			exit(1);
		}
		number--;
	}
}

/* --- the process -------------------------------------------------------------------- */

static void open_device(struct process *p, struct card *card)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	p->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!p->ctx || ibv_query_gid(p->ctx, 1, 0, &card->gid))
		fail(p, "the device");
	ibv_free_device_list(list);
	p->pd = ibv_alloc_pd(p->ctx);
	p->cq = ibv_create_cq(p->ctx, MOST * DEPTH, NULL, NULL, 0);
	if (!p->pd || !p->cq)
		fail(p, "a PD and a CQ");
	p->mr = ibv_reg_mr(p->pd, &p->memory, sizeof(p->memory),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!p->mr)
		fail(p, "a region");
	card->addr = (uintptr_t)p->memory.slot;
	card->rkey = p->mr->rkey;
}

static uint64_t number_of(unsigned rank)
{
	return 0x5eed000000000000 + rank;
}

static void write_to_all(struct process *p)
{
	struct card peer;

	p->memory.out = number_of(p->rank);
	for (unsigned r = 0; r < p->count; r++)
		if (r != p->rank) {
			await(p, r, ".card", &peer, sizeof(peer));
			if (qp_to_rts(p->qp[r], &peer.gid,
				      peer.qp_num[p->rank]))
				fail(p, "RTS");
			post_write(p, p->qp[r], &peer);
		}
	await_completions(p, p->count - 1);
}

static void await_numbers(const struct process *p)
{
	const double end = now_s() + LIMIT_S;

	for (unsigned r = 0; r < p->count; r++)
		while (r != p->rank && p->memory.slot[r] != number_of(r))
			pause_until(p, end, "a number");
}

/* No process ends its QPs before the WRITEs of all have completed. */
static void await_all_done(const struct process *p)
{
	char done = 1;

	publish(p, ".done", &done, sizeof(done));
	for (unsigned r = 0; r < p->count; r++)
		await(p, r, ".done", &done, sizeof(done));
}

/* The figure of getrusage() would contain the memory of the launcher. */
static void print_memory(const struct process *p)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[PATH];

	if (!f)
		fail(p, "/proc/self/status");
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmHWM:", 6))
			printf("memory %s", line + 6);
	fclose(f);
}

int main(int argc, char **argv)
{
	static struct process p;
	static struct card card;
	const double began = now_s();

	p.folder = argc == 4 ? argv[1] : "";
	p.rank = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
	p.count = argc == 4 ? (unsigned)atoi(argv[3]) : 0;
	if (p.count < 2 || p.count > MOST || p.rank >= p.count) {
		fprintf(stderr, "usage: mesh FOLDER RANK COUNT\n");
		return 2;
	}
	open_device(&p, &card);
	for (unsigned r = 0; r < p.count; r++)
		if (r != p.rank)
			card.qp_num[r] = (p.qp[r] = make_qp(&p))->qp_num;
	publish(&p, ".card", &card, sizeof(card));
	write_to_all(&p);
	printf("connected after %.3f s\n", now_s() - began);
	print_memory(&p);
	await_numbers(&p);
	await_all_done(&p);
	for (unsigned r = 0; r < p.count; r++)
		if (p.qp[r] && ibv_destroy_qp(p.qp[r]))
			fail(&p, "ibv_destroy_qp");
	if (ibv_dereg_mr(p.mr) || ibv_destroy_cq(p.cq) ||
	    ibv_dealloc_pd(p.pd) || ibv_close_device(p.ctx))
		fail(&p, "the end");
	return 0;
}
