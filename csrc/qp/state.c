#include "qp/state.h"

#define TO(state) (1u << SRDMA_QP_##state)

struct row {
	uint8_t next;	   /* states that may follow: bits 1 << state */
	uint8_t abilities; /* enum srdma_qp_ability */
};

static const struct row rows[SRDMA_QP_STATES] = {
	[SRDMA_QP_RESET] = { TO(INIT), 0 },
	[SRDMA_QP_INIT] = { TO(RTR) | TO(ERR), 0 },
	[SRDMA_QP_RTR] = { TO(RTS) | TO(ERR),
			   SRDMA_QP_OPENS | SRDMA_QP_WATCHES },
	[SRDMA_QP_RTS] = { TO(ERR),
			   SRDMA_QP_OPENS | SRDMA_QP_SENDS | SRDMA_QP_WATCHES },
	[SRDMA_QP_ERR] = { 0, 0 },
};

int srdma_state_may_move(enum srdma_qp_state from, enum srdma_qp_state to)
{
	return from < SRDMA_QP_STATES && to < SRDMA_QP_STATES &&
	       (rows[from].next >> to & 1);
}

int srdma_state_can(enum srdma_qp_state state, enum srdma_qp_ability ability)
{
	return (rows[state].abilities & ability) != 0;
}
