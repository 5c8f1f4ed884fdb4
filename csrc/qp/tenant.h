/*
 * A tenant: the QPs of one remote identity, as KEYS names it, and what they
 * hold and use of the worker together (docs/protocol.md 5.6; RFC 5042 R6.4.3.1-1).
 * One identity with many QPs gets no more than one with few.
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
	/* Cost of a packet and of 1 KiB of payload. Measured: a packet of 4 KiB
	 * costs about three times as much CPU time as one without payload. */
	SRDMA_TENANT_PACKET = 2,
	SRDMA_TENANT_KIB = 1,
	/* Cost of what a tenant may send in one turn while others work too,
	 * however little these do: that of 8 full packets. Over UDP they delay
	 * the others by about 40 us, less than the queue of 60 us to which
	 * their congestion windows do not react (docs/protocol.md 5.5). */
	SRDMA_TENANT_SENDS = 8 * (SRDMA_TENANT_PACKET +
				  SRDMA_TENANT_KIB * SRDMA_MAX_PAYLOAD / 1024),
};

struct srdma_tenant {
	struct srdma_tenant *next;
	uint8_t identity[SRDMA_MEMKEY_HOLDER_LEN];
	uint32_t qps;
	struct srdma_share_group reorder; /* packets in reorder buffers */
	uint64_t turn;			  /* the last turn in which it worked */
	uint32_t urgent, sent;		  /* cost of its packets in that turn */
};

/* The tenants of a relay, and what they do in the present turn. All zero: none. */
struct srdma_tenant_table {
	struct srdma_tenant *bucket[SRDMA_TENANT_BUCKETS];
	uint64_t turn;	/* its number */
	uint32_t seen;	/* tenants that worked in it */
	uint32_t most;	/* most urgent work of one of them */
	uint64_t until; /* end of the second after several worked, ns */
};

/* The tenant with this identity, made if there is none, with one more QP. NULL:
 * no memory. */
struct srdma_tenant *
srdma_tenant_join(struct srdma_tenant_table *t,
		  const uint8_t identity[SRDMA_MEMKEY_HOLDER_LEN]);
/* A QP leaves; the last one frees the tenant. NULL is allowed. */
void srdma_tenant_leave(struct srdma_tenant_table *t,
			struct srdma_tenant *tenant);

/* A turn begins. */
void srdma_tenant_begin(struct srdma_tenant_table *t, uint64_t now);
/* A packet with this payload, bytes, that does not wait for others: it was
 * received, or is a control packet. */
void srdma_tenant_urgent(struct srdma_tenant_table *t,
			 struct srdma_tenant *tenant, uint32_t payload);
/* A request or response with this payload, bytes, was sent. */
void srdma_tenant_sent(struct srdma_tenant_table *t,
		       struct srdma_tenant *tenant, uint32_t payload);
/* 1: others work too, and the tenant used up its part of this turn. */
int srdma_tenant_is_spent(const struct srdma_tenant_table *t,
			  const struct srdma_tenant *tenant, uint64_t now);

#endif
