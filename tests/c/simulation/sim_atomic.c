/*
 * Simulation: atomics (docs/protocol.md 5). The first words of the areas that
 * peers access are counters, shared by all QPs. Atomics take effect in the
 * order in which their DMA begins; the original value is known from then on.
 */
#include <string.h>

#include "support/inside.h"
#include "simulation/sim_host.h"
#include "simulation/sim_memory.h"

uint8_t *sim_atomic_choose(struct sim *w, struct sim_leg *to, uint32_t area,
			   struct sim_wr *wr)
{
	uint8_t *at = to->mem + to->area[area].at +
		      SRDMA_ATOMIC_LEN * sim_random(w, SIM_COUNTERS);
	uint64_t now;

	memcpy(&now, to->shadow + sim_memory_index(to, at), sizeof(now));
	if (wr->op == SRDMA_DESC_COMPARE_SWAP)
		wr->compare = sim_one_in(w, 2) ? now : sim_random(w, 4);
	if (sim_one_in(w, 2))
		wr->word = sim_random(w, 4);
	return at;
}

/* Finds the request that a packet of this QP belongs to, or NULL. */
static struct sim_wr *find(struct sim *w, const struct sim_leg *leg,
			   const struct srdma_op *op, struct sim_qp **qp)
{
	for (int i = 0; i <= SIM_QPS; i++) {
		struct sim_end *e = &w->qp[i].end[leg->side];
		struct sim_queue *sq = &w->qp[i].end[!leg->side].sq;
		uint32_t n = (uint32_t)op->request_id;

		if (!w->qp[i].live || e->leg != leg ||
		    e->info.qpn != srdma_qp_number(op->qp))
			continue;
		*qp = &w->qp[i];
		return n - sq->head < sq->tail - sq->head ? sim_host_wr(sq, n)
							  : NULL;
	}
	return NULL;
}

/* Executes the atomic on the shadow. Returns the original value. */
static uint64_t apply(struct sim_leg *leg, uint32_t at,
		      const struct srdma_op *op)
{
	uint64_t old, new;

	memcpy(&old, leg->shadow + at, sizeof(old));
	new = op->atomic.kind == SRDMA_ATOMIC_FETCH_ADD
		      ? old + op->atomic.swap_add
		      : (old == op->atomic.compare ? op->atomic.swap_add : old);
	memcpy(leg->shadow + at, &new, sizeof(new));
	return old;
}

/*
 * Returns 1 if the request was flushed at the requester. Its packet may still
 * be executed.
 */
static int is_flushed(const struct sim_queue *sq, const struct srdma_op *op)
{
	return sq->failed && op->request_id < sq->head &&
	       op->request_id >= sq->failed_at;
}

void sim_atomic_dma(struct sim *w, struct sim_leg *leg,
		    const struct srdma_op *op)
{
	uint32_t at = (uint32_t)(op->addr - (uintptr_t)leg->mem);
	struct sim_qp *qp = NULL;
	struct sim_wr *wr;
	uint64_t found;

	if (!sim_memory_pure(leg, leg->mem + at))
		return; /* area of a hostile peer */
	wr = find(w, leg, op, &qp);
	found = apply(leg, at, op);
	if (qp && (qp->evil || is_flushed(&qp->end[!leg->side].sq, op)))
		return;
	SIM_CHECK(w, wr && wr->counter == leg->mem + at,
		  "an atomic without a request");
	SIM_CHECK(w, !wr->executed, "an atomic is executed twice");
	SIM_CHECK(w,
		  (op->atomic.kind == SRDMA_ATOMIC_FETCH_ADD) ==
				  (wr->op == SRDMA_DESC_FETCH_ADD) &&
			  op->atomic.swap_add == wr->word &&
			  op->atomic.compare == wr->compare,
		  "the atomic differs from its request");
	wr->executed = 1;
	if (wr->local) /* NULL if the requester is gone */
		sim_memory_answer(qp->end[!leg->side].leg, wr->local, found);
}
