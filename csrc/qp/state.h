/*
 * States of a QP and the moves between them: the one table (docs/protocol.md
 * 7). The numbers are those of the control socket.
 *
 * There is no SQD: a QP drains in the sub-state `ending` of RTR and RTS.
 * Sub-states, each with one owner:
 *   RTR, RTS  path validated or not      path/connect.h
 *   RTR, RTS  refusing: NAK waits        responder/responder.h
 *   RTR, RTS  ending: peer ended it      qp/qp.h
 *   ERR       NAK or CLOSE not sent yet  qp/qp.h, srdma_qp_scheduled()
 */
#ifndef SRDMA_QP_STATE_H
#define SRDMA_QP_STATE_H

#include <stdint.h>

enum srdma_qp_state {
	SRDMA_QP_RESET = 0, /* inside srdma_qp_create() only */
	SRDMA_QP_INIT = 1,
	SRDMA_QP_RTR = 2, /* has keys; no packet verified yet */
	SRDMA_QP_RTS = 3,
	SRDMA_QP_ERR = 4,
	SRDMA_QP_STATES,
};

/* Activities that a state permits. */
enum srdma_qp_ability {
	SRDMA_QP_OPENS = 1 << 0,   /* opens packets of the peer */
	SRDMA_QP_SENDS = 1 << 1,   /* sends requests and responses */
	SRDMA_QP_WATCHES = 1 << 2, /* its timers run */
};

/* 1: the table permits the move. */
int srdma_state_may_move(enum srdma_qp_state from, enum srdma_qp_state to);
/* 1: the state has the ability. */
int srdma_state_can(enum srdma_qp_state state, enum srdma_qp_ability ability);

#endif
