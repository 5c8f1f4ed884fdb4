/*
 * The functions ibv_wr_*(): a batch of requests is built one by one, and posted by
 * ibv_wr_complete(), all or none (ibv_wr_post(3)). The functions return no error:
 * the first one is that of ibv_wr_complete(). The QP is locked for other threads
 * from ibv_wr_start() on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

enum {
	FEW = 8, /* requests in a new batch */
	FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
};

struct work {
	struct ibv_send_wr wr;
	struct ibv_sge copy; /* names `data` */
	union {
		struct ibv_sge sges[SRDMA_SGE_MAX];
		uint8_t data[SRDMA_INLINE_MAX];
	};
};

struct verbs_batch {
	pthread_mutex_t lock;
	int open; /* 1: after ibv_wr_start() */
	int err;  /* the first one of the batch */
	uint32_t n, room, most;
	uint32_t sges; /* that a request of the QP may have */
	struct work *works;
};

static struct verbs_batch *batch_of(struct ibv_qp_ex *ex)
{
	return ((struct verbs_qp *)ex)->batch;
}

static void fail(struct verbs_batch *b, int err)
{
	if (!b->err)
		b->err = err;
}

/* --- a batch ----------------------------------------------------------------------- */

static void start(struct ibv_qp_ex *ex)
{
	struct verbs_batch *b = batch_of(ex);
	const int again = pthread_mutex_lock(&b->lock); /* by this thread */

	b->open = 1;
	b->n = 0;
	b->err = again ? EINVAL : 0;
}

static int end(struct verbs_batch *b)
{
	if (!b->open)
		return EINVAL;
	b->open = 0;
	pthread_mutex_unlock(&b->lock);
	return 0;
}

static int is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* 0, or the errno for which the worker or libsrdma would refuse the request. */
static int check(const struct ibv_send_wr *wr)
{
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (wr->opcode == IBV_WR_ATOMIC_WRITE &&
	    wr->wr.rdma.remote_addr % SRDMA_ATOMIC_LEN)
		return EINVAL;
	if (wr->opcode == IBV_WR_ATOMIC_WRITE || is_atomic(wr))
		return length == SRDMA_ATOMIC_LEN ? 0 : EINVAL;
	return length > SRDMA_MESSAGE_MAX ? EMSGSIZE : 0;
}

/* The requests may have moved since they were made: names their parts now. */
static int finish(struct verbs_batch *b, uint32_t i)
{
	struct work *w = &b->works[i];
	const int is_inline = w->wr.send_flags & IBV_SEND_INLINE;

	w->copy.addr = (uintptr_t)w->data;
	w->wr.sg_list = is_inline ? &w->copy : w->sges;
	w->wr.next = i + 1 < b->n ? &b->works[i + 1].wr : NULL;
	return check(&w->wr);
}

static int complete(struct ibv_qp_ex *ex)
{
	struct verbs_batch *b = batch_of(ex);
	int err = b->open ? b->err : EINVAL;

	for (uint32_t i = 0; i < b->n && !err; i++)
		err = finish(b, i);
	if (b->n && !err)
		err = verbs_post_all((struct verbs_qp *)ex, &b->works[0].wr,
				     b->n);
	end(b);
	return err;
}

static void abandon(struct ibv_qp_ex *ex)
{
	end(batch_of(ex));
}

/* --- requests ----------------------------------------------------------------------- */

static int grow(struct verbs_batch *b)
{
	const uint32_t room = 2 * b->room < b->most ? 2 * b->room : b->most;
	struct work *works;

	if (room == b->n)
		return ENOMEM;
	works = realloc(b->works, room * sizeof(*works));
	if (!works)
		return ENOMEM;
	b->works = works;
	b->room = room;
	return 0;
}

/* Adds a request. If there is no room, it replaces the last one of a batch that
 * will not be posted. */
static struct ibv_send_wr *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct verbs_batch *b = batch_of(ex);
	const int err = b->n == b->room ? grow(b) : 0;
	struct work *w;

	if (err)
		fail(b, err);
	if (!verbs_transport_has(((struct verbs_qp *)ex)->transport, opcode))
		fail(b, EINVAL);
	b->n += !err;
	w = &b->works[b->n - 1];
	w->wr = (struct ibv_send_wr){ .wr_id = ex->wr_id,
				      .opcode = opcode,
				      .send_flags = ex->wr_flags & FLAGS };
	return &w->wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	add(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	add(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm_data;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *ex,
				    enum ibv_wr_opcode opcode, uint32_t rkey,
				    uint64_t remote_addr)
{
	struct ibv_send_wr *wr = add(ex, opcode);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
	return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey,
			 uint64_t remote_addr)
{
	add_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey,
			  uint64_t remote_addr)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey,
			      uint64_t remote_addr, __be32 imm_data)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr)->imm_data =
		imm_data;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey,
			      uint64_t remote_addr, uint64_t compare,
			      uint64_t swap)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_ATOMIC_CMP_AND_SWP);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = compare;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey,
				uint64_t remote_addr, uint64_t value)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_ATOMIC_FETCH_AND_ADD);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = value;
}

/* --- their data ------------------------------------------------------------------------ */

/* The request that a setter is for. NULL: there is none. */
static struct work *last(struct verbs_batch *b)
{
	if (b->n)
		return &b->works[b->n - 1];
	fail(b, EINVAL);
	return NULL;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge,
			    const struct ibv_sge *sg_list)
{
	struct verbs_batch *b = batch_of(ex);
	struct work *w = last(b);

	if (!w)
		return;
	if (num_sge > b->sges) {
		fail(b, EINVAL);
		return;
	}
	memcpy(w->sges, sg_list, num_sge * sizeof(*sg_list));
	w->wr.num_sge = (int)num_sge;
	w->wr.send_flags &= ~(unsigned)IBV_SEND_INLINE;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	const struct ibv_sge sge = { .addr = addr,
				     .length = length,
				     .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct verbs_batch *b = batch_of(ex);
	struct work *w = last(b);
	size_t length = 0;

	if (!w)
		return;
	for (size_t i = 0; i < num_buf; i++) {
		if (buf_list[i].length > sizeof(w->data) - length) {
			fail(b, EINVAL);
			return;
		}
		if (buf_list[i].length)
			memcpy(w->data + length, buf_list[i].addr,
			       buf_list[i].length);
		length += buf_list[i].length;
	}
	if (is_atomic(&w->wr) || w->wr.opcode == IBV_WR_RDMA_READ)
		fail(b, EINVAL); /* its data come from the peer */
	w->copy.length = (uint32_t)length;
	w->wr.num_sge = 1;
	w->wr.send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey,
			    uint64_t remote_addr, const void *atomic_wr)
{
	const struct ibv_data_buf value = {
		.addr = (void *)(uintptr_t)atomic_wr,
		.length = SRDMA_ATOMIC_LEN,
	};

	add_rdma(ex, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);
	wr_set_inline_data_list(ex, 1, &value);
}

/* --- what srdma does not have ------------------------------------------------------------ */

static void refuse(struct ibv_qp_ex *ex)
{
	fail(batch_of(ex), EOPNOTSUPP);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	(void)mw;
	(void)rkey;
	(void)info;
	refuse(ex);
}

/* of ibv_wr_local_inv(), ibv_wr_send_inv() and ibv_wr_set_xrc_srqn() */
static void refuse_number(struct ibv_qp_ex *ex, uint32_t number)
{
	(void)number;
	refuse(ex);
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz,
			uint16_t mss)
{
	(void)hdr;
	(void)hdr_sz;
	(void)mss;
	refuse(ex);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah,
			   uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct work *w;

	if (ex->qp_base.qp_type != IBV_QPT_UD) {
		refuse(ex);
		return;
	}
	w = last(batch_of(ex));
	if (!w)
		return;
	w->wr.wr.ud.ah = ah;
	w->wr.wr.ud.remote_qpn = remote_qpn;
	w->wr.wr.ud.remote_qkey = remote_qkey;
}

/* --- life -------------------------------------------------------------------------------- */

static void set_functions(struct ibv_qp_ex *ex)
{
	ex->wr_start = start;
	ex->wr_complete = complete;
	ex->wr_abort = abandon;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = refuse_number;
	ex->wr_send_inv = refuse_number;
	ex->wr_set_xrc_srqn = refuse_number;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_atomic_write = wr_atomic_write;
}

int verbs_batch_create(struct verbs_qp *qp)
{
	struct verbs_batch *b = calloc(1, sizeof(*b));

	if (!b)
		return ENOMEM;
	b->most = qp->sq;
	b->room = b->most < FEW ? b->most : FEW;
	b->sges = qp->cap.max_send_sge ? qp->cap.max_send_sge : 1;
	b->works = calloc(b->room, sizeof(*b->works));
	if (!b->works) {
		free(b);
		return ENOMEM;
	}
	verbs_check_lock_init(&b->lock);
	set_functions(&qp->ex);
	qp->batch = b;
	return 0;
}

void verbs_batch_free(struct verbs_batch *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->works);
	free(b);
}
