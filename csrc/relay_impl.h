/* The relay's own state, shared by its files only. */
#ifndef SRDMA_RELAY_IMPL_H
#define SRDMA_RELAY_IMPL_H

#include "leg.h"
#include "link.h"
#include "memory/mr.h"
#include "op.h"
#include "qp.h"
#include "relay.h"
#include "base/table.h"

enum {
	SRDMA_MIN_MTU = 256,
	SRDMA_MIN_PN = 1 << 23,
	SRDMA_OPS = 4096,
	SRDMA_OPS_KEPT = 512,	/* for what arrives: own requests leave them */
	SRDMA_FETCH_DEPTH = 64, /* packets of a QP being fetched */
	SRDMA_MAX_BURST = 64,
	SRDMA_MAX_KEPT = 2048,
	SRDMA_ORDERED_WINDOW = 64, /* a wire's; on others order may change */
};

static const uint64_t SRDMA_NEVER = UINT64_MAX;
#define SRDMA_SECOND UINT64_C(1000000000)

struct srdma_relay {
	struct srdma_port *host, *wire;
	struct srdma_relay_params params;
	uint8_t eid[SRDMA_EID_LEN];
	uint64_t now;
	uint64_t timer;		    /* what is not one QP's */
	struct srdma_timers timers; /* the QPs' */
	uint64_t ping, silence;	    /* ns */
	uint32_t wall;		    /* Unix seconds; UINT32_MAX: not told */
	/* For memory keys, scratch: the last one stays there until the next,
	 * or until that for which it was is gone. */
	struct srdma_cmac cmac;
	struct srdma_keycache *keys; /* of sessions in a mode with PD */
	struct srdma_qp **qps;	     /* buckets, by SRC QPN */
	uint32_t qp_mask;
	uint32_t qp_count;
	struct srdma_table_memory tables; /* of QPs */
	struct srdma_mr_table mrs;
	struct srdma_leg *legs[SRDMA_MAX_LEGS];
	uint32_t leg_count, leg_serial;
	struct srdma_link *links;
	struct srdma_link *look; /* there the next search begins; NULL: links */
	struct srdma_link_list strangers; /* newest first */
	uint32_t stranger_count;
	uint32_t dials; /* of this turn */
	struct srdma_op_pool ops;
	struct srdma_beyond_pool beyond; /* half of the host's buffers */
	struct srdma_qp *active_head, *active_tail;
	struct srdma_buf *spare; /* plaintext of the next packet goes here */
	struct srdma_stats stats;
	char why[192];
	struct srdma_event events[SRDMA_MAX_BURST];
};

/* Put the QP on the list of those that have something to do. */
void srdma_relay_activate(struct srdma_qp *qp);
/* Make sure that the relay looks at its clocks at this time: those of links and
 * legs, or those of the QP (srdma_qp_expire()). */
void srdma_relay_wake_at(struct srdma_relay *r, uint64_t when);
void srdma_relay_wake_qp(struct srdma_qp *qp, uint64_t when);
struct srdma_qp *srdma_relay_qp(struct srdma_relay *r, uint32_t qpn);
static inline struct srdma_qp **srdma_relay_bucket(const struct srdma_relay *r,
						   uint32_t qpn)
{
	return &r->qps[qpn & r->qp_mask];
}

/* That of the leg; NULL, with why. */
struct srdma_qp *srdma_relay_own_qp(struct srdma_relay *r,
				    const struct srdma_leg *leg, uint32_t qpn);
/* All QPs, leg by leg: the first behind NULL, NULL behind the last. */
struct srdma_qp *srdma_relay_next_qp(const struct srdma_relay *r,
				     const struct srdma_qp *qp);
/* Unlink the QP from relay and leg and free it. */
void srdma_relay_forget(struct srdma_qp *qp);
/* The payload of a packet that the wire takes, mtu at most. */
static inline uint32_t srdma_relay_fit(const struct srdma_relay *r,
				       uint32_t mtu)
{
	return r->wire->mtu && r->wire->mtu < mtu ? r->wire->mtu : mtu;
}

/* 1: packets come in the order in which they left, if they come. */
static inline int srdma_relay_ordered(const struct srdma_relay *r)
{
	return r->wire->window <= SRDMA_ORDERED_WINDOW;
}

/* len random bytes; 0, or -EIO with why. */
int srdma_relay_random(struct srdma_relay *r, void *out, size_t len);
/* Set why and return err. */
int srdma_relay_refuse(struct srdma_relay *r, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
