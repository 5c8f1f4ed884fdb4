/*
 * A queue pair (QP) as its parts see it: identity, state, last error, and what
 * is scheduled to be sent. The parts - requester, responder, path - lie in one
 * block of memory with it (layout.c); each is written by its own folder only.
 */
#ifndef SRDMA_QP_QP_H
#define SRDMA_QP_QP_H

#include <stddef.h>
#include <stdint.h>

#include "memory/memkey.h"
#include "qp/state.h"
#include "wire/reason.h"
#include "wire/wire.h"
#include "wire/position.h"

struct srdma_account;
struct srdma_account_counts;
struct srdma_captable;
struct srdma_cq;
struct srdma_env;
struct srdma_leg;
struct srdma_mr;
struct srdma_pdkeys;
struct srdma_qp;
struct srdma_session;
struct srdma_tenant;
struct srdma_timer;

/* --- layout.c: one block of memory -------------------------------------- */

struct srdma_qp_make {
	struct srdma_env *env;
	const struct srdma_leg *leg; /* identity: whose regions it may use */
	struct srdma_cq *cq;	     /* these three are the leg's */
	struct srdma_pdkeys *pdkeys;
	const struct srdma_captable *captable;
	uint32_t qpn;	  /* SRC QPN */
	uint32_t sq, rq;  /* depths */
	uint64_t timeout; /* of a request, ns */
};
/* Creates a QP in state INIT. 0 or -ENOMEM. */
int srdma_qp_create(struct srdma_qp **out, const struct srdma_qp_make *make);
/* Requires that no op of the QP is ISSUED and that it has left its paths. */
void srdma_qp_free(struct srdma_qp *qp);
/* The QP of an expired timer of env->timers. */
struct srdma_qp *srdma_qp_of_timer(struct srdma_timer *timer);
/* Fetches the block into the cache. */
void srdma_qp_prefetch(const struct srdma_qp *qp);

/* --- qp.c: facts --------------------------------------------------------- */

struct srdma_env *srdma_qp_env(const struct srdma_qp *qp);
uint32_t srdma_qp_number(const struct srdma_qp *qp); /* SRC QPN */
const struct srdma_leg *srdma_qp_leg(const struct srdma_qp *qp);
/* Account of the peer's identity (ledger.h); NULL before KEYS. */
struct srdma_account *srdma_qp_identity(const struct srdma_qp *qp);
/* KEYS: the QP is charged to this account from now on. */
void srdma_qp_set_identity(struct srdma_qp *qp, struct srdma_account *identity);
/* The counters of the QP, to count in. */
struct srdma_account_counts *srdma_qp_counts(const struct srdma_qp *qp);
/* NULL before KEYS. */
struct srdma_session *srdma_qp_session(const struct srdma_qp *qp);
struct srdma_tenant *srdma_qp_tenant(const struct srdma_qp *qp);
/* KEYS: the QP joins the tenant of its peer's identity, in place of one that it
 * joined before. 0 or -ENOMEM. */
int srdma_qp_join(struct srdma_qp *qp, const uint8_t *identity);

struct srdma_qp_keyed {
	uint8_t role;				 /* 0: connects the path */
	uint8_t level;				 /* enum srdma_level */
	uint8_t mode;				 /* enum srdma_mode */
	uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN]; /* the peer's identity (6.1) */
};
/* All zero before KEYS. */
const struct srdma_qp_keyed *srdma_qp_keyed(const struct srdma_qp *qp);
/* KEYS: gives the QP its session, which the QP then owns. NULL: takes the
 * session away without freeing it. */
void srdma_qp_set_session(struct srdma_qp *qp, struct srdma_session *session);
/* KEYS succeeded: moves the QP to RTR. */
void srdma_qp_set_keyed(struct srdma_qp *qp,
			const struct srdma_qp_keyed *keyed);

/* Bytes of a region of the QP's leg. */
struct srdma_span {
	uint32_t right; /* one flag of enum srdma_access; 0: local read */
	uint32_t key;
	uint64_t addr;
	uint32_t len;
};
/* srdma_mr_check() for an access on this QP, with the same results. */
enum srdma_reason srdma_qp_access(struct srdma_qp *qp,
				  const struct srdma_span *span,
				  struct srdma_mr **mr);

/* --- qp.c: state and end ------------------------------------------------- */

enum srdma_qp_state srdma_qp_state(const struct srdma_qp *qp);
/* 1: its state has the ability. */
int srdma_qp_can(const struct srdma_qp *qp, enum srdma_qp_ability ability);
/* The only function that changes the state. 0, or -EINVAL and no change: the
 * table of states (state.c) does not permit the move. */
int srdma_qp_move(struct srdma_qp *qp, enum srdma_qp_state to);

#define SRDMA_OLDEST UINT64_MAX	      /* the oldest request not executed */
#define SRDMA_NONE   (UINT64_MAX - 1) /* no request: all of them are flushed */

/*
 * Moves the QP to ERR, once, and releases the work of all parts. id: the own
 * request that failed for this reason, or SRDMA_OLDEST or SRDMA_NONE. tell: 1
 * to send CLOSE.
 */
void srdma_qp_fail(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id,
		   int tell);
/* Moves the QP to ERR and schedules a NAK of the peer's request at the position.
 */
void srdma_qp_nak(struct srdma_qp *qp, enum srdma_reason reason,
		  struct srdma_position at);
/* The peer ended the QP: it goes to ERR when the payloads that arrived before
 * are placed. */
void srdma_qp_end(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id);
int srdma_qp_is_ending(const struct srdma_qp *qp);
/* All payloads are placed: moves the QP to ERR, as srdma_qp_end() announced. */
void srdma_qp_end_now(struct srdma_qp *qp);
/* In ERR: reason and id that were given to srdma_qp_fail(). */
uint32_t srdma_qp_reason(const struct srdma_qp *qp);
uint64_t srdma_qp_failed_id(const struct srdma_qp *qp);

/* Requests that the peer's end leaves without execution complete `grace` ns later;
 * 0: at once. */
void srdma_qp_set_grace(struct srdma_qp *qp, uint64_t grace);
/* In ERR: the time when they complete, ns; 0: there was no grace. */
uint64_t srdma_qp_grace_end(const struct srdma_qp *qp);
/* 1: that time is to come. */
int srdma_qp_is_in_grace(const struct srdma_qp *qp);

/* No completion records from now on: the leg or the QP is being removed. */
void srdma_qp_silence(struct srdma_qp *qp);
int srdma_qp_is_silent(const struct srdma_qp *qp);
/* Writes a completion record with QPN, status and vendor_err for the reason. 0
 * or -EAGAIN: the completion queue is full. */
int srdma_qp_record(struct srdma_qp *qp, struct srdma_record *rec,
		    uint32_t reason);
/* Writes the QP_EVENT record if it is due. 0 or -EAGAIN. */
int srdma_qp_record_event(struct srdma_qp *qp);
/* 1: the record is due, and maybe others before it. */
int srdma_qp_event_is_due(const struct srdma_qp *qp);
/* Number of DMAs under way. */
uint32_t srdma_qp_dmas(const struct srdma_qp *qp);

/* --- qp.c: control packets that are scheduled ---------------------------- */

/* The most urgent one first. */
enum srdma_say {
	SRDMA_SAY_NAK = 1 << 0,
	SRDMA_SAY_CLOSE = 1 << 1,
	SRDMA_SAY_OPEN = 1 << 2,
	SRDMA_SAY_PING = 1 << 3,
	SRDMA_SAY_ACK = 1 << 4,
	SRDMA_SAY_PROBE = 1 << 5, /* a PING to the candidate path */
};

/* Schedules a control packet. Besides, only the functions that end a QP and
 * srdma_qp_repeat_last() schedule. The caller activates the QP unless it runs and
 * srdma_respond_control() is still to be called in that run. */
void srdma_qp_schedule(struct srdma_qp *qp, enum srdma_say what);
/* A control packet left: it is no longer scheduled, nor is an ACK, as every
 * control packet on the QP's path acknowledges. */
void srdma_qp_said(struct srdma_qp *qp, enum srdma_say what);
/* Scheduled packets: bits of enum srdma_say. */
uint8_t srdma_qp_scheduled(const struct srdma_qp *qp);

/* Content of the final NAK and CLOSE. */
struct srdma_qp_last {
	uint8_t sent; /* in ERR: which of both, bits of enum srdma_say */
	uint8_t nak_reason, close_reason;
	struct srdma_position nak_at;
	uint64_t when; /* time when one of them left last, ns */
};
const struct srdma_qp_last *srdma_qp_last(const struct srdma_qp *qp);
/* In ERR: schedules the final NAK and CLOSE once more. */
void srdma_qp_repeat_last(struct srdma_qp *qp);
/* No packet can be sealed any more: unschedules NAK and CLOSE. */
void srdma_qp_mute(struct srdma_qp *qp);

/* --- qp.c: when it runs -------------------------------------------------- */

/* Puts the QP on the list of active QPs, which run in this or the next turn. If it
 * runs already, srdma_qp_ran() does so. */
void srdma_qp_activate(struct srdma_qp *qp);
/* 1: the QP has a tenant, and srdma_tenant_is_spent(). */
int srdma_qp_is_spent(const struct srdma_qp *qp);
/* How a QP ended its run. */
enum srdma_qp_run {
	SRDMA_QP_RAN,	/* it runs again when it is activated */
	SRDMA_QP_AGAIN, /* it runs again in this or the next turn */
	/* It could not send, as its tenant used up its part: in the next turn it
	 * runs before those that could. */
	SRDMA_QP_LATE,
};

/* Empties the list of active QPs. Returns its first QP; NULL: it was empty. */
struct srdma_qp *srdma_qp_take_active(struct srdma_env *env);
/* A QP of the list taken runs until srdma_qp_ran(). Returns the next QP of that
 * list; NULL: it was the last. */
struct srdma_qp *srdma_qp_run(struct srdma_qp *qp);
/* 1: the QP was activated since srdma_qp_run(). */
int srdma_qp_runs_again(const struct srdma_qp *qp);
/* Ends the run. Returns the same as srdma_qp_run(). */
struct srdma_qp *srdma_qp_ran(struct srdma_qp *qp, enum srdma_qp_run how);
/* A turn begins: puts the QPs that are LATE in front of the list of active ones. */
void srdma_qp_resume(struct srdma_env *env);
/* The QP's timers are checked at `when`, ns, at the latest. */
void srdma_qp_wake(struct srdma_qp *qp, uint64_t when);
/* Removes the QP from the active list and the timers, before it is freed. */
void srdma_qp_retire(struct srdma_qp *qp);
/* Start of the peer's silence, ns: a packet of the peer verified, or a
 * descriptor was posted to an idle QP. */
uint64_t srdma_qp_heard(const struct srdma_qp *qp);
void srdma_qp_set_heard(struct srdma_qp *qp);

/* --- qp_rekey.c: epochs (3.5) -------------------------------------------- */

/* Before a packet is sealed: begins the next epoch if it is due and permitted.
 * If it is not permitted yet, sets flag A on *p, once per rto. acked: highest
 * packet number that the peer acknowledged. 0 or -EIO. */
int srdma_qp_rekey_seal(struct srdma_qp *qp, struct srdma_packet *p,
			uint64_t acked, uint64_t rto);
/* The peer acknowledged a higher packet number than before. */
void srdma_qp_rekey_acked(struct srdma_qp *qp, uint64_t highest);
/* A packet verified: counts the epochs of the peer. */
void srdma_qp_rekey_verified(struct srdma_qp *qp, const struct srdma_packet *p);
/* A new secret to send with was given: PING until the peer acknowledged a
 * packet of its epoch. */
void srdma_qp_rekey_begin(struct srdma_qp *qp);
int srdma_qp_rekeying(const struct srdma_qp *qp);
/* Wipes the receive key of the previous epoch if the peer's epoch began at
 * least age ns ago. A QP in ERR loses all receive keys: it takes no packet any
 * more and does not repeat its CLOSE. */
void srdma_qp_rekey_settle(struct srdma_qp *qp, uint64_t age);

/* KEY derived a secret from the leg's current K_PD, which is kept until
 * release. */
void srdma_qp_pd_hold(struct srdma_qp *qp);
void srdma_qp_pd_release(struct srdma_qp *qp);
/* Serial of the K_PD held, else of the leg's current one. */
uint32_t srdma_qp_pd_serial(const struct srdma_qp *qp);

#endif
