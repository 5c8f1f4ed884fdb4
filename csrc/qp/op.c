#include "qp/op.h"

#include <errno.h>
#include <stdlib.h>

#include "qp/cq.h"
#include "qp/env.h"
#include "qp/qp_impl.h"
#include "qp/sgl.h"

enum {
	SHARE = 8,   /* a list may hold 1/SHARE of the free ones */
	RESERVE = 8, /* 1/RESERVE is kept for lists with few */
};

int srdma_op_pool_create(struct srdma_op_pool *pool, uint32_t n)
{
	pool->all = calloc(n, sizeof(*pool->all));
	if (!pool->all)
		return -ENOMEM;
	pool->free = NULL;
	for (uint32_t i = 0; i < n; i++) {
		pool->all[i].next = pool->free;
		pool->free = &pool->all[i];
	}
	pool->left = pool->total = n;
	return 0;
}

void srdma_op_pool_destroy(struct srdma_op_pool *pool)
{
	free(pool->all);
	pool->all = pool->free = NULL;
}

/* 1: it is charged to the peer's identity. A turn bounds those that arrive. */
static int leaves(unsigned kind)
{
	return kind < SRDMA_OP_PLACE;
}

void srdma_op_pool_abandon(struct srdma_op_pool *pool)
{
	for (uint32_t i = 0; i < pool->total; i++) {
		struct srdma_op *op = &pool->all[i];

		if (op->state == SRDMA_OP_ISSUED && leaves(op->kind))
			srdma_account_give(srdma_qp_identity(op->qp),
					   SRDMA_RES_OPS, 1);
	}
}

int srdma_op_is_free(const struct srdma_qp *qp,
		     const struct srdma_op_list *list)
{
	return srdma_qp_env(qp)->ops.left &&
	       (list->prepaid ||
		srdma_account_room(srdma_qp_identity(qp), SRDMA_RES_OPS));
}

void srdma_op_prepay(struct srdma_op_list *list, struct srdma_qp *qp,
		     uint32_t n)
{
	struct srdma_account *a = srdma_qp_identity(qp);
	const uint32_t more = n > list->prepaid + 1 ? n - list->prepaid : 0;
	const uint64_t room = more ? srdma_account_room(a, SRDMA_RES_OPS) : 0;

	n = more < room ? more : (uint32_t)room;
	if (n && !srdma_account_take(a, SRDMA_RES_OPS, n))
		list->prepaid += n;
}

void srdma_op_settle(struct srdma_op_list *list, struct srdma_qp *qp)
{
	if (list->prepaid)
		srdma_account_give(srdma_qp_identity(qp), SRDMA_RES_OPS,
				   list->prepaid);
	list->prepaid = 0;
}

/* 0, or -EDQUOT: the quota of the identity refuses one more outgoing op. */
static int charge(struct srdma_op_list *list, struct srdma_qp *qp)
{
	if (!list->prepaid)
		return srdma_account_take(srdma_qp_identity(qp), SRDMA_RES_OPS,
					  1);
	list->prepaid--;
	return 0;
}

static struct srdma_op *take(struct srdma_op_list *list, struct srdma_qp *qp,
			     enum srdma_op_kind kind)
{
	struct srdma_op_pool *pool = &srdma_qp_env(qp)->ops;
	struct srdma_op *op = pool->free;

	if (!op || (leaves(kind) && charge(list, qp)))
		return NULL;
	pool->free = op->next;
	pool->left--;
	*op = (struct srdma_op){ .qp = qp, .kind = (uint8_t)kind };
	return op;
}

/* Inserts an op after another one of the list; after NULL: at the head. */
static void insert(struct srdma_op_list *list, struct srdma_op *after,
		   struct srdma_op *op)
{
	struct srdma_op **at = after ? &after->next : &list->head;

	op->next = *at;
	*at = op;
	if (!op->next)
		list->tail = op;
	list->count++;
}

struct srdma_op *srdma_op_add(struct srdma_op_list *list, struct srdma_qp *qp,
			      enum srdma_op_kind kind)
{
	struct srdma_op *op = take(list, qp, kind);

	if (op)
		insert(list, list->tail, op);
	return op;
}

struct srdma_op *srdma_op_add_resend(struct srdma_op_list *list,
				     struct srdma_qp *qp)
{
	struct srdma_op *op = take(list, qp, SRDMA_OP_FETCH);
	struct srdma_op *after = NULL;

	for (struct srdma_op *i = list->head; i && i->resend; i = i->next)
		after = i;
	if (op)
		insert(list, after, op);
	return op;
}

uint32_t srdma_op_outgoing(const struct srdma_env *env)
{
	const int bufs = env->host->ops->buf_free(env->host) - SRDMA_MAX_BURST;
	const int ops = (int)env->ops.left - SRDMA_OPS_KEPT;
	const int left = bufs < ops ? bufs : ops;

	return left > 0 ? (uint32_t)left : 0;
}

/* The same without the reserve. */
static uint32_t outgoing_open(const struct srdma_env *env)
{
	const uint32_t left = srdma_op_outgoing(env);
	const uint32_t reserve = env->outgoing / RESERVE;

	return left > reserve ? left - reserve : 0;
}

int srdma_op_share(const struct srdma_qp *qp, const struct srdma_op_list *list)
{
	const struct srdma_qp_core *core = srdma_qp_core(qp);
	const uint32_t open = outgoing_open(core->env);

	if (list->count < SRDMA_OPS_LEAST)
		return srdma_op_outgoing(core->env) > 0;
	return list->count * SHARE < open &&
	       srdma_account_used(core->identity, SRDMA_RES_OPS) -
			       list->prepaid <
		       open;
}

int srdma_op_scarce(const struct srdma_env *env)
{
	return srdma_op_outgoing(env) < env->outgoing / 2;
}

static void give_buffer(struct srdma_op *op)
{
	if (op->buf)
		op->buf->port->ops->buf_put(op->buf);
	op->buf = NULL;
}

void srdma_op_give_buffers(struct srdma_op_list *list)
{
	for (struct srdma_op *op = list->head; op; op = op->next) {
		if (!op->buf || op->state == SRDMA_OP_ISSUED || op->reason)
			continue;
		give_buffer(op);
		op->state = SRDMA_OP_NEW;
		op->begun = op->ended = 0;
	}
}

/* Returns the op to the pool, not its charge. */
static void release(struct srdma_op *op)
{
	struct srdma_op_pool *pool = &srdma_qp_env(op->qp)->ops;

	give_buffer(op);
	op->next = pool->free;
	pool->free = op;
	pool->left++;
}

static void give_back(struct srdma_op *op)
{
	if (leaves(op->kind))
		srdma_account_give(srdma_qp_identity(op->qp), SRDMA_RES_OPS, 1);
	release(op);
}

static struct srdma_op *take_head(struct srdma_op_list *list)
{
	struct srdma_op *op = list->head;

	list->head = op->next;
	if (!list->head)
		list->tail = NULL;
	list->count--;
	return op;
}

void srdma_op_retire(struct srdma_op_list *list)
{
	give_back(take_head(list));
}

void srdma_op_sent(struct srdma_op_list *list)
{
	release(take_head(list));
	list->prepaid++;
}

/* 1: the address was named by the local host's descriptor, not by the peer. */
static int is_local(const struct srdma_op *op)
{
	return !op->right || op->right == SRDMA_ACCESS_LOCAL_WRITE;
}

/* PROOF_WRONG if the peer's access was revoked since its authorization (6.3). */
static enum srdma_reason revoked(const struct srdma_op *op,
				 const struct srdma_mr *mr)
{
	return is_local(op) || srdma_mr_current(mr, op->allowed, op->addr,
						op->len)
		       ? SRDMA_REASON_NONE
		       : SRDMA_REASON_PROOF_WRONG;
}

static int transfer(const struct srdma_env *env, const struct srdma_op *op,
		    const struct srdma_dma *dma)
{
	const struct srdma_port_ops *ops = env->host->ops;

	if (op->atomic.kind)
		return ops->atomic(dma, &op->atomic);
	return op->kind >= SRDMA_OP_PLACE ? ops->write(dma) : ops->read(dma);
}

static uint8_t dma_failed(const struct srdma_op *op)
{
	return is_local(op) ? SRDMA_REASON_LOCAL_DMA : SRDMA_REASON_TARGET_DMA;
}

/* 1: a part of the SGL is still to be started. */
static int has_more(const struct srdma_op *op)
{
	return op->sgl && op->begun < op->len && !op->reason &&
	       op->kind != SRDMA_OP_WASTE;
}

/* The state of an op with an SGL, after a DMA was started or has ended. */
static void settle(struct srdma_op *op)
{
	if (op->begun != op->ended)
		op->state = SRDMA_OP_ISSUED;
	else
		op->state = has_more(op) ? SRDMA_OP_NEW : SRDMA_OP_DONE;
}

/* A DMA of len bytes has ended. */
static void end(struct srdma_qp_core *core, struct srdma_op *op,
		struct srdma_mr *mr, uint32_t len, int status)
{
	struct srdma_stats *stats = &core->env->stats;

	mr->dmas--;
	core->dmas--;
	if (status)
		op->reason = dma_failed(op);
	else if (op->kind >= SRDMA_OP_PLACE)
		stats->dma_written_bytes += len;
	else
		stats->dma_read_bytes += len;
}

/* The part of the SGL for the payload from `from` on that lies in one SGE. */
static struct srdma_sge part_at(const struct srdma_op *op, uint32_t from)
{
	return srdma_sgl_part(op->sgl, srdma_op_start(op) + from,
			      op->len - from);
}

/* Makes the next part of the SGL the memory of the op. Returns its length. */
static uint32_t aim(struct srdma_op *op)
{
	const struct srdma_sge part = part_at(op, op->begun);

	op->addr = part.addr;
	op->key = part.lkey;
	op->begun += part.length;
	return part.length;
}

/* The oldest part of the SGL under way ends, whose region has its key until then. */
static void end_part(struct srdma_op *op, int status)
{
	struct srdma_qp_core *core = srdma_qp_core(op->qp);
	const struct srdma_sge part = part_at(op, op->ended);

	op->ended += part.length;
	end(core, op, srdma_mr_find(&core->env->mrs, part.lkey), part.length,
	    status);
	settle(op);
}

/* A DMA of the op has ended. */
static void done(struct srdma_op *op, int status)
{
	if (op->sgl) {
		end_part(op, status);
		return;
	}
	end(srdma_qp_core(op->qp), op, op->mr, op->len, status);
	op->mr = NULL;
	op->state = SRDMA_OP_DONE;
}

/* A DMA was not started, for a reason, or 0: later. at: op->begun before. */
static void not_started(struct srdma_op *op, uint32_t at, uint8_t reason)
{
	op->mr = NULL;
	op->begun = at;
	op->reason = reason;
	op->state = reason ? SRDMA_OP_DONE : SRDMA_OP_NEW;
	if (op->sgl)
		settle(op);
	if (reason)
		srdma_qp_activate(op->qp);
}

/* Authorizes and starts one DMA. The region is looked up here, by its key: it
 * may have been deregistered since the request was accepted. 0 or -EAGAIN. */
static int start(struct srdma_qp_core *core, struct srdma_op *op)
{
	struct srdma_env *env = core->env;
	const uint32_t at = op->begun;
	const uint32_t len = op->sgl ? aim(op) : op->len;
	const struct srdma_span span = { op->right, op->key, op->addr, len };
	struct srdma_mr *mr;
	struct srdma_dma dma;
	enum srdma_reason why = srdma_qp_access(op->qp, &span, &mr);
	int err;

	if (!why)
		why = revoked(op, mr);
	if (why) {
		not_started(op, at,
			    is_local(op) ? SRDMA_REASON_LOCAL_KEY : why);
		return 0;
	}
	dma = (struct srdma_dma){
		mr->region, op->addr - mr->base + mr->region->base,
		len,	    op->buf,
		at,	    (uint64_t)(uintptr_t)op
	};
	op->state = SRDMA_OP_ISSUED;
	op->mr = op->sgl ? NULL : mr;
	op->serial = ++env->mrs.serial;
	mr->dmas++;
	core->dmas++;
	err = transfer(env, op, &dma);
	if (err > 0)
		done(op, 0);
	if (err >= 0)
		return 0;
	mr->dmas--;
	core->dmas--;
	not_started(op, at, err == -EAGAIN ? 0 : dma_failed(op));
	return err == -EAGAIN ? err : 0;
}

/* 1: a DMA of the op is to be started, or it needs none. */
static int is_startable(const struct srdma_op *op)
{
	return op->state == SRDMA_OP_NEW ||
	       (op->state == SRDMA_OP_ISSUED && has_more(op));
}

/* 1: the op gave its buffer back. */
static int lacks_buffer(const struct srdma_op *op)
{
	return op->len && !op->buf && !op->data;
}

/* The head of a list may use the reserve. 0 or -EAGAIN. */
static int take_buffer(const struct srdma_env *env,
		       const struct srdma_op_list *list, struct srdma_op *op)
{
	if (op == list->head ? srdma_op_outgoing(env) : outgoing_open(env))
		op->buf = env->host->ops->buf_get(env->host);
	return op->buf ? 0 : -EAGAIN;
}

int srdma_op_issue(struct srdma_qp *qp, struct srdma_op_list *list)
{
	struct srdma_qp_core *core = srdma_qp_core(qp);
	int err = 0;

	if (core->cq->down)
		return 0;
	for (struct srdma_op *op = list->head; op && !err; op = op->next) {
		if (!is_startable(op))
			continue;
		if (lacks_buffer(op))
			err = take_buffer(core->env, list, op);
		else if (!op->buf || !op->len)
			op->state = SRDMA_OP_DONE;
		if (op->state == SRDMA_OP_DONE || err)
			continue;
		do
			err = start(core, op);
		while (!err && op->sgl && is_startable(op));
	}
	return err;
}

void srdma_op_done(struct srdma_op *op, int status)
{
	done(op, status);
	srdma_qp_activate(op->qp);
}

int srdma_op_busy(const struct srdma_op_pool *pool, const struct srdma_mr *mr,
		  uint64_t serial, uint64_t addr, uint64_t len)
{
	for (uint32_t i = 0; mr->dmas && i < pool->total; i++) {
		const struct srdma_op *op = &pool->all[i];

		if (op->mr == mr && !is_local(op) && op->serial < serial &&
		    op->addr < addr + len && addr < op->addr + op->len)
			return 1;
	}
	return 0;
}

struct srdma_op *srdma_op_last_issued(const struct srdma_op_list *list)
{
	struct srdma_op *last = NULL;

	for (struct srdma_op *op = list->head; op; op = op->next)
		if (op->state == SRDMA_OP_ISSUED)
			last = op;
	return last;
}

void srdma_op_cut(struct srdma_op_list *list, struct srdma_op *last)
{
	struct srdma_op *op = last ? last->next : list->head;

	*(last ? &last->next : &list->head) = NULL;
	list->tail = last;
	while (op) {
		struct srdma_op *next = op->next;

		list->count--;
		give_back(op);
		op = next;
	}
}

void srdma_op_drop(struct srdma_op_list *list)
{
	struct srdma_op **at = &list->head;
	struct srdma_op *op;

	list->tail = NULL;
	while ((op = *at) != NULL) {
		if (op->state == SRDMA_OP_ISSUED) {
			list->tail = op;
			at = &op->next;
			continue;
		}
		*at = op->next;
		list->count--;
		give_back(op);
	}
}
