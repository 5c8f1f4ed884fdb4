#include "host/wr_queue.h"

#include <stddef.h>

#include "wire/wire.h"

uint64_t srdma_wr_queue_add(struct srdma_wr_queue *q,
			    const struct srdma_desc *wr)
{
	struct srdma_wr_entry *e = &q->entries[q->tail % q->depth];

	e->wr_id = wr->id;
	e->opcode = (uint8_t)srdma_desc_wc_opcode(wr->opcode);
	e->signaled = wr->opcode == SRDMA_DESC_RECV ||
		      (wr->flags & SRDMA_DESC_SIGNALED);
	return q->tail++;
}

/* 1 if all signaled entries before number have completed. The NIC completes
 * entries in order. */
static int in_order(const struct srdma_wr_queue *q, uint64_t number)
{
	for (uint64_t n = q->head; n < number; n++)
		if (q->entries[n % q->depth].signaled)
			return 0;
	return 1;
}

const struct srdma_wr_entry *srdma_wr_queue_retire(struct srdma_wr_queue *q,
						   uint64_t number)
{
	if (number < q->head || number >= q->tail || !in_order(q, number))
		return NULL;
	q->head = number + 1;
	return &q->entries[number % q->depth];
}

void srdma_wr_queue_drop(struct srdma_wr_queue *q)
{
	q->head = q->tail;
	q->failing = 0;
}
