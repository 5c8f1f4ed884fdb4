/*
 * Environment of QPs: the clock, ports, pools, limits and counters that one
 * relay shares with the folders below it. They see this structure instead of
 * struct srdma_relay. The relay owns it; it outlives all QPs.
 */
#ifndef SRDMA_QP_ENV_H
#define SRDMA_QP_ENV_H

#include <stdint.h>

#include "base/time.h"
#include "memory/mr.h"
#include "port/port.h"
#include "qp/op.h"
#include "wire/stats.h"
#include "base/table.h"
#include "base/timer.h"

struct srdma_path_table;
struct srdma_qp;
struct srdma_reorder_pool;

enum {
	SRDMA_OPS = 4096,	   /* ops of a relay */
	SRDMA_OPS_KEPT = 512,	   /* reserved for packets that arrive */
	SRDMA_FETCH_DEPTH = 64,	   /* ops of a QP in one outgoing list */
	SRDMA_MAX_BURST = 64,	   /* events of a port in one turn */
	SRDMA_ORDERED_WINDOW = 64, /* a wire of this window keeps order */
};

struct srdma_env {
	/* Written by the relay, each turn. */
	uint64_t now;  /* time of the turn, ns */
	uint32_t wall; /* Unix seconds; UINT32_MAX: not known yet */

	/* Constant after the relay's creation. */
	struct srdma_port *host, *wire;
	uint32_t window;	/* request packets taken unacknowledged */
	uint32_t reads;		/* response slots of a QP */
	uint64_t ping, silence; /* liveness limits, ns */
	/* Calls upwards, set by the relay: release all work of a QP that
	 * failed; a path of the QP starts anew (RFC 9002 6.4, RFC 9000 9.4). */
	void (*discard)(struct srdma_qp *qp);
	void (*path_restarted)(struct srdma_qp *qp);

	/* Shared objects, changed by their own functions. */
	struct srdma_op_pool ops;
	struct srdma_reorder_pool *reorder;
	struct srdma_path_table *paths;
	struct srdma_table_memory tables; /* tables that QPs make on demand */
	struct srdma_timers timers;	  /* of QPs */
	uint64_t timer;			  /* next look at paths and legs, ns */
	struct srdma_qp *active_head, *active_tail;
	struct srdma_stats stats;
	struct srdma_mr_table mrs;
};

/* Makes the relay look at its paths and legs at this time at the latest. */
static inline void srdma_env_wake(struct srdma_env *env, uint64_t when)
{
	if (when < env->timer)
		env->timer = when;
}

/* 1: packets arrive in the order in which they left, if they arrive. */
static inline int srdma_env_ordered(const struct srdma_env *env)
{
	return env->wire->window <= SRDMA_ORDERED_WINDOW;
}

/* Payload bytes of a packet that the wire takes, at most mtu. */
static inline uint32_t srdma_env_fit(const struct srdma_env *env, uint32_t mtu)
{
	return env->wire->mtu && env->wire->mtu < mtu ? env->wire->mtu : mtu;
}

#endif
