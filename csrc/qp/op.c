#include "qp/op.h"

#include <errno.h>
#include <stdlib.h>

#include "qp/cq.h"
#include "qp/env.h"
#include "qp/qp_impl.h"

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

/* 1: it is charged to the account of the peer's identity. Packets that arrive
 * are not charged: a turn bounds them. */
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

int srdma_op_is_free(const struct srdma_qp *qp)
{
	return srdma_qp_env(qp)->ops.left &&
	       srdma_account_room(srdma_qp_identity(qp), SRDMA_RES_OPS);
}

static struct srdma_op *take(struct srdma_qp *qp, enum srdma_op_kind kind)
{
	struct srdma_op_pool *pool = &srdma_qp_env(qp)->ops;
	struct srdma_op *op = pool->free;

	if (!op || (leaves(kind) && srdma_account_take(srdma_qp_identity(qp),
						       SRDMA_RES_OPS, 1)))
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
	struct srdma_op *op = take(qp, kind);

	if (op)
		insert(list, list->tail, op);
	return op;
}

struct srdma_op *srdma_op_add_resend(struct srdma_op_list *list,
				     struct srdma_qp *qp)
{
	struct srdma_op *op = take(qp, SRDMA_OP_FETCH);
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
	       srdma_account_used(core->identity, SRDMA_RES_OPS) < open;
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
	}
}

static void give_back(struct srdma_op *op)
{
	struct srdma_op_pool *pool = &srdma_qp_env(op->qp)->ops;

	give_buffer(op);
	if (leaves(op->kind))
		srdma_account_give(srdma_qp_identity(op->qp), SRDMA_RES_OPS, 1);
	op->next = pool->free;
	pool->free = op;
	pool->left++;
}

void srdma_op_retire(struct srdma_op_list *list)
{
	struct srdma_op *op = list->head;

	list->head = op->next;
	if (!list->head)
		list->tail = NULL;
	list->count--;
	give_back(op);
}

/* 1: the address was named by the local host's descriptor, not by the peer. */
static int is_local(const struct srdma_op *op)
{
	return !op->right || op->right == SRDMA_ACCESS_LOCAL_WRITE;
}

static void fail(struct srdma_op *op, enum srdma_reason reason)
{
	op->state = SRDMA_OP_DONE;
	op->reason = (uint8_t)reason;
}

/* PROOF_WRONG if the peer's access was revoked after its authorization (6.3),
 * else NONE. */
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

/* Authorizes and starts one DMA. The region is looked up here, by its key: it
 * may have been deregistered since the request was accepted. 0 or -EAGAIN. */
static int start(struct srdma_qp_core *core, struct srdma_op *op)
{
	struct srdma_env *env = core->env;
	struct srdma_mr_want want = {
		core->leg,	    core->qpn, op->key, op->right,
		core->keyed.holder, op->addr,  op->len,
	};
	struct srdma_mr *mr;
	struct srdma_dma dma;
	enum srdma_reason why = srdma_mr_check(&env->mrs, &want, &mr);
	int err;

	if (!why)
		why = revoked(op, mr);
	if (why) {
		fail(op, is_local(op) ? SRDMA_REASON_LOCAL_KEY : why);
		return 0;
	}
	dma =
		(struct srdma_dma){ mr->region, op->addr,
				    op->len,	op->buf,
				    0,		(uint64_t)(uintptr_t)op };
	op->state = SRDMA_OP_ISSUED;
	op->mr = mr;
	op->serial = ++env->mrs.serial;
	mr->dmas++;
	core->dmas++;
	err = transfer(env, op, &dma);
	if (err == 0)
		return 0;
	if (err == -EAGAIN) {
		op->state = SRDMA_OP_NEW;
		op->mr = NULL;
		mr->dmas--;
		core->dmas--;
		return err;
	}
	srdma_op_done(op, err < 0 ? err : 0);
	return 0;
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
		if (op->state != SRDMA_OP_NEW)
			continue;
		if (lacks_buffer(op))
			err = take_buffer(core->env, list, op);
		else if (!op->buf || !op->len)
			op->state = SRDMA_OP_DONE;
		if (!err && op->state == SRDMA_OP_NEW)
			err = start(core, op);
	}
	return err;
}

void srdma_op_done(struct srdma_op *op, int status)
{
	struct srdma_qp_core *core = srdma_qp_core(op->qp);
	struct srdma_stats *stats = &core->env->stats;

	op->state = SRDMA_OP_DONE;
	op->mr->dmas--;
	op->mr = NULL;
	core->dmas--;
	if (status)
		fail(op, is_local(op) ? SRDMA_REASON_LOCAL_DMA
				      : SRDMA_REASON_TARGET_DMA);
	else if (op->kind >= SRDMA_OP_PLACE)
		stats->dma_written_bytes += op->len;
	else
		stats->dma_read_bytes += op->len;
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
