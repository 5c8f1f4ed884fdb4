#include "op.h"

#include <errno.h>
#include <stdlib.h>

#include "mutant.h"
#include "relay_impl.h"

enum { SHARE = 8 }; /* a list may hold 1/SHARE of what it leaves */

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

static struct srdma_op_list *list_of(struct srdma_qp *qp, uint8_t kind)
{
	if (kind == SRDMA_OP_FETCH)
		return &qp->fetch;
	return kind == SRDMA_OP_ANSWER ? &qp->answer : &qp->place;
}

static struct srdma_op *take(struct srdma_qp *qp, enum srdma_op_kind kind)
{
	struct srdma_op_pool *pool = &qp->relay->ops;
	struct srdma_op *op = pool->free;

	if (!op)
		return NULL;
	pool->free = op->next;
	pool->left--;
	*op = (struct srdma_op){ .qp = qp, .kind = (uint8_t)kind };
	return op;
}

/* Behind an op of the list; NULL: at its head. */
static void insert(struct srdma_op_list *list, struct srdma_op *behind,
		   struct srdma_op *op)
{
	struct srdma_op **at = behind ? &behind->next : &list->head;

	op->next = *at;
	*at = op;
	if (!op->next)
		list->tail = op;
	list->count++;
}

struct srdma_op *srdma_op_add(struct srdma_qp *qp, enum srdma_op_kind kind)
{
	struct srdma_op_list *list = list_of(qp, (uint8_t)kind);
	struct srdma_op *op = take(qp, kind);

	if (op)
		insert(list, list->tail, op);
	return op;
}

struct srdma_op *srdma_op_add_resend(struct srdma_qp *qp)
{
	struct srdma_op *op = take(qp, SRDMA_OP_FETCH);
	struct srdma_op *behind = NULL;

	for (struct srdma_op *i = qp->fetch.head; i && i->resend; i = i->next)
		behind = i;
	if (op)
		insert(&qp->fetch, behind, op);
	return op;
}

int srdma_op_share(const struct srdma_qp *qp, const struct srdma_op_list *list)
{
	const struct srdma_relay *r = qp->relay;
	int bufs = r->host->ops->buf_free(r->host) - SRDMA_MAX_BURST;
	int ops = (int)r->ops.left - SRDMA_OPS_KEPT;
	int left = bufs < ops ? bufs : ops;

	return (int)list->count * SHARE < left;
}

static void give_back(struct srdma_op *op)
{
	struct srdma_op_pool *pool = &op->qp->relay->ops;

	if (op->buf)
		op->buf->port->ops->buf_put(op->buf);
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

static int is_local(const struct srdma_op *op)
{
	return !op->right || op->right == SRDMA_ACCESS_LOCAL_WRITE;
}

static void fail(struct srdma_op *op, enum srdma_reason reason)
{
	op->state = SRDMA_OP_DONE;
	op->reason = (uint8_t)reason;
}

/* Why a peer's access that was allowed is not allowed any more (6.3). */
static enum srdma_reason revoked(const struct srdma_op *op,
				 const struct srdma_mr *mr)
{
	return is_local(op) || srdma_mr_current(mr, op->allowed, op->addr,
						op->len)
		       ? SRDMA_REASON_NONE
		       : SRDMA_REASON_PROOF_WRONG;
}

static int transfer(const struct srdma_op *op, const struct srdma_dma *dma)
{
	const struct srdma_port_ops *ops = op->qp->relay->host->ops;

	if (op->atomic.kind)
		return ops->atomic(dma, &op->atomic);
	return op->kind >= SRDMA_OP_PLACE ? ops->write(dma) : ops->read(dma);
}

/* Authorize and start one DMA. 0, or -EAGAIN. */
static int start(struct srdma_qp *qp, struct srdma_op *op)
{
	struct srdma_relay *r = qp->relay;
	struct srdma_mr_want want = { qp->leg,	 qp->qpn,  op->key,
				      op->right, op->addr, op->len };
	struct srdma_mr *mr;
	struct srdma_dma dma;
	enum srdma_reason why = srdma_mr_check(&r->mrs, &want, &mr);
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
	op->serial = ++r->mrs.serial;
	mr->dmas++;
	qp->dmas++;
	err = transfer(op, &dma);
	if (err == 0)
		return 0;
	if (err == -EAGAIN) {
		op->state = SRDMA_OP_NEW;
		op->mr = NULL;
		mr->dmas--;
		qp->dmas--;
		return err;
	}
	srdma_op_done(op, err < 0 ? err : 0);
	return 0;
}

int srdma_op_issue(struct srdma_qp *qp, struct srdma_op_list *list)
{
	int err = 0;

	if (qp->leg->down)
		return 0;
	for (struct srdma_op *op = list->head; op && !err; op = op->next) {
		if (op->state == SRDMA_OP_NEW && (!op->buf || !op->len))
			op->state = SRDMA_OP_DONE;
		if (op->state == SRDMA_OP_NEW)
			err = start(qp, op);
	}
	return err;
}

void srdma_op_done(struct srdma_op *op, int status)
{
	struct srdma_qp *qp = op->qp;
	struct srdma_stats *stats = &qp->relay->stats;

	op->state = SRDMA_OP_DONE;
	op->mr->dmas--;
	op->mr = NULL;
	qp->dmas--;
	if (status)
		fail(op, is_local(op) ? SRDMA_REASON_LOCAL_DMA
				      : SRDMA_REASON_TARGET_DMA);
	else if (op->kind >= SRDMA_OP_PLACE)
		stats->dma_written_bytes += op->len;
	else
		stats->dma_read_bytes += op->len;
	srdma_relay_activate(qp);
}

int srdma_op_busy(const struct srdma_op_pool *pool, const struct srdma_mr *mr,
		  uint64_t serial, uint64_t addr, uint64_t len)
{
	if (SRDMA_MUTANT(REVOKED_EARLY))
		return 0;
	for (uint32_t i = 0; mr->dmas && i < pool->total; i++) {
		const struct srdma_op *op = &pool->all[i];

		if (op->mr == mr && !is_local(op) && op->serial < serial &&
		    op->addr < addr + len && addr < op->addr + op->len)
			return 1;
	}
	return 0;
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
