/* The relay's own state, written by the folder relay/ only. */
#ifndef SRDMA_RELAY_RELAY_IMPL_H
#define SRDMA_RELAY_RELAY_IMPL_H

#include "base/hash.h"
#include "crypto/cmac.h"
#include "ledger/ledger.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "relay/entry_impl.h"
#include "relay/leg.h"
#include "relay/relay.h"
#include "responder/reorder.h"

enum {
	SRDMA_MIN_MTU = 256,
	SRDMA_MIN_PN = 1 << 23,
	SRDMA_MAX_KEPT = 2048, /* most packets in all reorder buffers */
};

struct srdma_keep_list {
	struct srdma_kept_node *first, *last;
	/* Node that ADOPT found last, or a node before it; NULL: none. */
	struct srdma_kept_node *found;
	uint64_t serial; /* of the last node added */
};

struct srdma_relay {
	struct srdma_env env; /* what the folders below see */
	struct srdma_relay_params params;
	uint8_t eid[SRDMA_EID_LEN];
	/* Scratch for memory keys. It holds the last key used until the next
	 * use, or until srdma_cmac_forget(). */
	struct srdma_cmac cmac;
	struct srdma_keycache *keys; /* for sessions in key mode pd */
	struct srdma_qp **qps;	     /* buckets, by SRC QPN */
	uint32_t qp_mask;
	uint32_t qp_count;
	struct srdma_leg *legs[SRDMA_MAX_LEGS];
	uint32_t leg_count, leg_serial;
	/* Legs that the port ended, by id: status of SRDMA_EV_DOWN. */
	struct srdma_ended_leg {
		uint32_t id;
		int status;
	} ended[SRDMA_MAX_LEGS];
	struct srdma_reorder_pool
		reorder; /* at most half of the host port's buffers */
	struct srdma_keep_list kept;
	struct srdma_buf *spare; /* for the plaintext of the next packet */
	uint32_t reclaim_at; /* bucket where srdma_relay_reclaim() goes on */
	/* No search before, ns: for local programs, for identities. */
	uint64_t reclaim_next[SRDMA_SIDES];
	char why[640]; /* srdma_relay_why() */
	struct srdma_event events[SRDMA_MAX_BURST];
};

/* --- relay.c --- */
struct srdma_qp *srdma_relay_qp(const struct srdma_relay *r, uint32_t qpn);
static inline struct srdma_qp **srdma_relay_bucket(const struct srdma_relay *r,
						   uint32_t qpn)
{
	return &r->qps[srdma_hash_bucket(qpn, r->qp_mask)];
}
/* All QPs, leg by leg: the first after NULL, NULL after the last. */
struct srdma_qp *srdma_relay_next_qp(const struct srdma_relay *r,
				     const struct srdma_qp *qp);

/* --- receive.c: a datagram of the wire --- */
void srdma_receive_datagram(struct srdma_relay *r, struct srdma_conn *conn,
			    const struct srdma_buf *in);

/* --- pump.c: an active QP that runs --- */
/* Places what arrived, and sends control packets. */
void srdma_pump_urgent(struct srdma_qp *qp);
/* Sends responses and requests, and writes completion records. */
enum srdma_qp_run srdma_pump_send(struct srdma_qp *qp);
/* Releases all work of a QP that needs no DMA to end. */
void srdma_pump_discard(struct srdma_qp *qp);

/* --- expire.c: timers of a QP --- */
/* Runs the timers of a QP. Returns the time of the next call; SRDMA_NEVER: no
 * timer runs. An RTO that becomes shorter meanwhile takes effect when the next
 * packet leaves or the next ack reports something new. */
uint64_t srdma_expire_qp(struct srdma_qp *qp, uint64_t now);
/* 1: the QP waits for its peer, so silence ends it: it has requests or receives, or
 * takes those of a shared queue. */
int srdma_expire_is_waiting(const struct srdma_qp *qp);

/* --- relay_mr_check.c --- */
/* Checks the parameters of REG_MR. 0, or -errno with why. */
int srdma_relay_mr_check(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_mr_params *params);
/* Address of the first byte in requests, and the tree of the memory keys. */
uint64_t srdma_relay_mr_base(const struct srdma_mr_params *params);
struct srdma_memtree srdma_relay_mr_tree(const struct srdma_mr_params *params);

/* --- relay_qp.c --- */
/* The QP, if it belongs to the leg; NULL, with why, if not. */
struct srdma_qp *srdma_relay_own_qp(struct srdma_relay *r,
				    const struct srdma_leg *leg, uint32_t qpn);
/* Requires ERR. 1: no DMA is under way, and the final NAK or CLOSE left, cannot
 * leave, or has waited for too long. */
int srdma_relay_is_removable(const struct srdma_qp *qp);
/* Removes the QP from relay and leg and frees it. */
void srdma_relay_forget(struct srdma_qp *qp);

/* --- relay_keep.c --- */
/* Frees the data that KEEP stored for the QP, unless other QPs have it too. */
void srdma_keep_leave(struct srdma_qp *qp);

/* --- relay_exposed.c --- */
/* Enters the bytes that the region exposes. 0, or with why -EBUSY: peers of another
 * program reach some of them; -ENOMEM. */
int srdma_relay_expose(struct srdma_relay *r, struct srdma_mr *mr);

/* --- relay_ledger.c: the charges return 0, or -EDQUOT with why --- */
int srdma_relay_ledger_create(struct srdma_relay *r);
int srdma_relay_charge(struct srdma_relay *r, struct srdma_account *a,
		       enum srdma_resource resource, uint64_t n);
/* The leg holds the account until srdma_relay_release_leg(). NULL: one without a
 * name. */
int srdma_relay_charge_leg(struct srdma_relay *r, struct srdma_leg *leg,
			   struct srdma_account *a);
void srdma_relay_release_leg(struct srdma_leg *leg);
int srdma_relay_charge_qp(struct srdma_relay *r, struct srdma_account *a,
			  uint32_t entries);
void srdma_relay_release_qp(struct srdma_account *a, uint32_t entries);
int srdma_relay_charge_region(struct srdma_relay *r, struct srdma_account *a,
			      uint64_t length);
void srdma_relay_release_region(struct srdma_account *a, uint64_t length);
/* Frees a region without DMA, and gives it back. */
void srdma_relay_free_mr(struct srdma_mr *mr);
/* A QP with keys for the identity, whose account it holds until
 * srdma_relay_release_identity(). NULL is allowed. */
int srdma_relay_charge_identity(struct srdma_relay *r, const char *name,
				struct srdma_account **out);
void srdma_relay_release_identity(struct srdma_account *a);

/* --- relay_status.c --- */
/* KEYS: charges the QP to its identity from now on. */
void srdma_relay_join_identity(struct srdma_qp *qp, struct srdma_account *a);
/* The QP ends: adds what it has done to its accounts, and leaves its identity. */
void srdma_relay_fold_counts(struct srdma_qp *qp);

/* --- relay_idle.c --- */
/* Frees an idle QP of the side of this account, if there is one that may be
 * reclaimed. 1: a QP was freed. */
int srdma_relay_reclaim(struct srdma_relay *r, const struct srdma_account *a);
/* Time since the QP last worked, ns. */
uint64_t srdma_relay_idle(const struct srdma_qp *qp, uint64_t now);

/* --- relay_control.c --- */
/* len random bytes; 0, or -EIO with why. */
int srdma_relay_random(struct srdma_relay *r, void *out, size_t len);
/* Sets why and returns err. */
int srdma_relay_refuse(struct srdma_relay *r, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
