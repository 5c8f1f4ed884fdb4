/*
 * A tenant: the QPs of one remote identity, as KEYS names it, and what they
 * hold and use of the worker together (docs/protocol.md 5.6). One identity with
 * many QPs gets no more than one with few.
 */
#ifndef SRDMA_QP_TENANT_H
#define SRDMA_QP_TENANT_H

#include <stdint.h>

#include "base/share.h"
#include "base/time.h"
#include "memory/memkey.h"
#include "wire/wire.h"

struct srdma_env;
struct srdma_qp;

enum {
	SRDMA_TENANT_BUCKETS = 256,
	/* Cost of what a tenant may send in one pass while others send too: one
	 * burst of 64 full packets. */
	SRDMA_TENANT_QUANTUM = 64 * (1 + SRDMA_MAX_PAYLOAD / 1024),
};

struct srdma_tenant {
	struct srdma_tenant *next;
	uint8_t identity[SRDMA_MEMKEY_HOLDER_LEN];
	uint32_t qps;
	uint32_t leaving;		  /* ops in lists of outgoing ones */
	struct srdma_share_group reorder; /* packets in reorder buffers */
	uint64_t pass;			  /* the last pass in which it sent */
	uint32_t spent; /* cost of what it sent in that pass */
};

/* The tenants of a relay, and the pass over its active QPs. All zero: none. */
struct srdma_tenant_table {
	struct srdma_tenant *bucket[SRDMA_TENANT_BUCKETS];
	uint64_t pass;	/* its number */
	uint32_t seen;	/* tenants that sent in it */
	uint64_t until; /* several tenants sent within the last second, ns */
};

/* The tenant with this identity, made if there is none, with one more QP. NULL:
 * no memory. */
struct srdma_tenant *
srdma_tenant_join(struct srdma_tenant_table *t,
		  const uint8_t identity[SRDMA_MEMKEY_HOLDER_LEN]);
/* A QP leaves; the last one frees the tenant. NULL is allowed. */
void srdma_tenant_leave(struct srdma_tenant_table *t,
			struct srdma_tenant *tenant);

/* A pass over the active QPs begins. */
void srdma_tenant_begin(struct srdma_tenant_table *t, uint64_t now);
/* The tenant sent a packet with this payload, bytes. */
void srdma_tenant_spend(struct srdma_tenant_table *t,
			struct srdma_tenant *tenant, uint32_t payload);
/* 1: others send too, and the tenant used up its part of this pass. */
int srdma_tenant_is_spent(const struct srdma_tenant_table *t,
			  const struct srdma_tenant *tenant, uint64_t now);

#endif
