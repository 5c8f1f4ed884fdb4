/*
 * Environment of QPs: the clock, ports, pools, limits and counters that one
 * relay shares with the folders below it. The folders see this structure
 * instead of struct srdma_relay. The relay owns it; it outlives all QPs.
 */
#ifndef SRDMA_QP_ENV_H
#define SRDMA_QP_ENV_H

#include <stddef.h>
#include <stdint.h>

#include "base/time.h"
#include "memory/mr.h"
#include "port/port.h"
#include "qp/op.h"
#include "qp/tenant.h"
#include "wire/stats.h"
#include "base/table.h"
#include "base/timer.h"

struct srdma_ledger;
struct srdma_path_table;
struct srdma_qp;
struct srdma_reorder_pool;

enum {
	SRDMA_OPS = 4096,	   /* ops of a relay */
	SRDMA_OPS_KEPT = 512,	   /* reserved for packets that arrive */
	SRDMA_OPS_LEAST = 2,	   /* ops that each outgoing list may have */
	SRDMA_FETCH_DEPTH = 64,	   /* ops of a QP in one outgoing list */
	SRDMA_MAX_BURST = 64,	   /* events of a port in one turn */
	SRDMA_ORDERED_WINDOW = 64, /* widest window of an ordered wire */
	SRDMA_SILENCES = 4,	   /* most times `silence` with stalls */
};

struct srdma_env {
	uint64_t now;	  /* time of the turn, ns; set by srdma_relay_run() */
	uint64_t resumed; /* the end of the last stall, ns */
	/* Unix seconds, set by srdma_relay_clock(); UINT32_MAX: not set yet */
	uint32_t wall;

	/* Constant after the relay's creation. */
	struct srdma_port *host, *wire;
	uint32_t window;	/* packets a peer may have unacknowledged */
	uint32_t reads;		/* response slots of a QP */
	uint64_t ping, silence; /* liveness limits, ns */
	uint32_t outgoing;	/* ops with buffers for packets that leave */
	/* Calls up the layers. discard: releases all work of a QP that failed.
	 * path_restarted: the QP sends on a new path, so its congestion
	 * windows are reset (RFC 9000 9.4). */
	void (*discard)(struct srdma_qp *qp);
	void (*path_restarted)(struct srdma_qp *qp);
	/* Fills in len random bytes. 0 or -errno. */
	int (*random)(void *ctx, uint8_t *out, size_t len);
	void *random_ctx;

	/* Shared objects, changed by their own functions. */
	struct srdma_ledger *ledger;
	struct srdma_op_pool ops;
	struct srdma_reorder_pool *reorder;
	struct srdma_tenant_table tenants;
	struct srdma_path_table *paths;
	struct srdma_table_memory tables; /* tables that QPs make on demand */
	struct srdma_timers timers;	  /* of QPs */
	uint64_t timer;			  /* next check of paths and legs, ns */
	struct srdma_qp *active_head, *active_tail;
	struct srdma_qp *late_head, *late_tail; /* SRDMA_QP_LATE */
	uint64_t changes;			/* srdma_relay_changes() */
	struct srdma_stats stats;
	struct srdma_mr_table mrs;
};

/* Makes the relay check its paths and legs at `when`, ns, at the latest. */
static inline void srdma_env_wake(struct srdma_env *env, uint64_t when)
{
	if (when < env->timer)
		env->timer = when;
}

/* The time at which a peer is given up that is silent since then, ns (docs/protocol.md
 * 5, Liveness). After a stall it has its PINGs again. */
static inline uint64_t srdma_env_silent(const struct srdma_env *env,
					uint64_t since)
{
	return srdma_time_later(
		since + env->silence,
		srdma_time_earlier(env->resumed + env->silence - env->ping,
				   since + SRDMA_SILENCES * env->silence));
}

/* 1: the wire may lose packets, but does not reorder them. */
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
