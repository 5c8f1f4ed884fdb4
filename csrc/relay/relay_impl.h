/* The relay's own state, written by the folder relay/ only. */
#ifndef SRDMA_RELAY_RELAY_IMPL_H
#define SRDMA_RELAY_RELAY_IMPL_H

#include "crypto/cmac.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "relay/entry_impl.h"
#include "relay/leg.h"
#include "relay/relay.h"
#include "responder/reorder.h"

enum {
	SRDMA_MIN_MTU = 256,
	SRDMA_MIN_PN = 1 << 23,
	SRDMA_MAX_KEPT = 2048, /* packets in all reorder buffers */
};

struct srdma_relay {
	struct srdma_env env; /* what the folders below see */
	struct srdma_relay_params params;
	uint8_t eid[SRDMA_EID_LEN];
	/* Scratch for memory keys: it keeps its last key until the next, or
	 * until srdma_cmac_forget(). */
	struct srdma_cmac cmac;
	struct srdma_keycache *keys; /* of sessions in a mode with PD */
	struct srdma_qp **qps;	     /* buckets, by SRC QPN */
	uint32_t qp_mask;
	uint32_t qp_count;
	struct srdma_leg *legs[SRDMA_MAX_LEGS];
	uint32_t leg_count, leg_serial;
	struct srdma_reorder_pool reorder; /* half of the host's buffers */
	struct srdma_buf *spare; /* for the plaintext of the next packet */
	char why[192];
	struct srdma_event events[SRDMA_MAX_BURST];
};

/* --- relay.c --- */
struct srdma_qp *srdma_relay_qp(const struct srdma_relay *r, uint32_t qpn);
static inline struct srdma_qp **srdma_relay_bucket(const struct srdma_relay *r,
						   uint32_t qpn)
{
	return &r->qps[qpn & r->qp_mask];
}
/* All QPs, leg by leg: the first after NULL, NULL after the last. */
struct srdma_qp *srdma_relay_next_qp(const struct srdma_relay *r,
				     const struct srdma_qp *qp);

/* --- receive.c: a datagram of the wire --- */
void srdma_receive_datagram(struct srdma_relay *r, struct srdma_conn *conn,
			    const struct srdma_buf *in);

/* --- pump.c: a QP that has something to do --- */
void srdma_pump(struct srdma_qp *qp);
/* Releases all work of a QP that needs no DMA to end. */
void srdma_pump_discard(struct srdma_qp *qp);

/* --- expire.c: timers of a QP --- */
/* When something of this QP may expire next; SRDMA_NEVER: nothing. Its timer is
 * not later, except for an RTO that got shorter meanwhile: that counts from the
 * next packet that leaves or ack that moves something. */
uint64_t srdma_expire_qp(struct srdma_qp *qp, uint64_t now);

/* --- relay_qp.c --- */
/* The QP of that leg; NULL, with why. */
struct srdma_qp *srdma_relay_own_qp(struct srdma_relay *r,
				    const struct srdma_leg *leg, uint32_t qpn);
/* 1: in ERR, no DMA under way, and NAK or CLOSE left or has waited for too
 * long. */
int srdma_relay_is_removable(const struct srdma_qp *qp);
/* Removes the QP from relay and leg and frees it. */
void srdma_relay_forget(struct srdma_qp *qp);

/* --- relay_control.c --- */
/* len random bytes; 0, or -EIO with why. */
int srdma_relay_random(struct srdma_relay *r, void *out, size_t len);
/* Sets why and returns err. */
int srdma_relay_refuse(struct srdma_relay *r, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
