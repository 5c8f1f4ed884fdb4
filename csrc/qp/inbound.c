#include "qp/inbound.h"

#include "qp/env.h"
#include "qp/qp_impl.h"

static struct srdma_inbound *inbound_of(const struct srdma_qp *qp)
{
	return &srdma_qp_core(qp)->inbound;
}

struct srdma_op *srdma_inbound_add(struct srdma_qp *qp, enum srdma_op_kind kind)
{
	return srdma_op_add(&inbound_of(qp)->list, qp, kind);
}

int srdma_inbound_issue(struct srdma_qp *qp)
{
	struct srdma_op_list *list = &inbound_of(qp)->list;

	return list->head ? srdma_op_issue(qp, list) : 0;
}

const struct srdma_op *srdma_inbound_head(const struct srdma_qp *qp)
{
	return inbound_of(qp)->list.head;
}

void srdma_inbound_retire(struct srdma_qp *qp)
{
	srdma_op_retire(&inbound_of(qp)->list);
	srdma_inbound_progress(qp);
}

void srdma_inbound_waste(const struct srdma_op *failed)
{
	for (struct srdma_op *op = failed->next; op; op = op->next) {
		if (op->kind != SRDMA_OP_PLACE)
			continue;
		op->kind = SRDMA_OP_WASTE;
		if (op->state == SRDMA_OP_NEW)
			op->state = SRDMA_OP_DONE;
	}
}

void srdma_inbound_drop(struct srdma_qp *qp)
{
	srdma_op_drop(&inbound_of(qp)->list);
}

void srdma_inbound_begin(struct srdma_qp *qp)
{
	struct srdma_inbound *in = inbound_of(qp);

	if (srdma_inbound_busy(qp))
		return;
	srdma_inbound_progress(qp);
	srdma_qp_wake(qp, in->progress + SRDMA_DMA_LIMIT_S * SRDMA_SECOND);
}

void srdma_inbound_set_responses(struct srdma_qp *qp, uint32_t n)
{
	inbound_of(qp)->responses = n;
}

int srdma_inbound_busy(const struct srdma_qp *qp)
{
	const struct srdma_inbound *in = inbound_of(qp);

	return in->list.count || in->responses;
}

void srdma_inbound_progress(struct srdma_qp *qp)
{
	inbound_of(qp)->progress = srdma_qp_env(qp)->now;
}

uint64_t srdma_inbound_since(const struct srdma_qp *qp)
{
	return inbound_of(qp)->progress;
}
