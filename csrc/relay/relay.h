/*
 * The relay: descriptors of the local hosts become sealed packets, verified
 * packets of other workers become DMA (docs/protocol.md 4.6, 5, 6, 7). It is
 * the Privileged Resource Manager of RFC 5042: nothing else decides which
 * packet touches which byte of a host. One thread; no call blocks; time is an
 * argument (nanoseconds of any monotonic clock).
 */
#ifndef SRDMA_RELAY_RELAY_H
#define SRDMA_RELAY_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "relay/params.h"
#include "wire/stats.h"

struct srdma_leg;
struct srdma_ledger;
struct srdma_relay;

struct srdma_relay_params {
	/* The relay destroys both ports, also if its creation fails. */
	struct srdma_port *host;
	struct srdma_port *wire;
	int allow_unprotected;
	uint32_t mtu;	 /* payload bytes taken per packet, 256..4096; less
			    if the wire takes less */
	uint32_t window; /* request packets taken unacknowledged; less if the
			    host port lacks buffers to keep them */
	uint32_t reads;	 /* response slots of a QP */
	uint32_t qps;	 /* at most; 0: SRDMA_DEFAULT_QPS */
	int minima;	 /* of the ledger */
	/* Number of worker processes, and the index of this one: QPNs modulo
	 * processes are process. processes 0: one process. */
	uint32_t processes, process;
	/* Bytes for tables that QPs make on demand; 0: no limit. */
	uint64_t table_memory;
	/* Number of keyed contexts cached for key mode pd; 0: neither these nor
	 * memory keys are cached. */
	uint32_t key_cache;
	/* Liveness (5); 0: 5,000 and 15,000. silence is longer than ping. */
	uint32_t ping_ms, silence_ms;
	/* Limits of an epoch (3.5), at most SRDMA_REKEY_PACKETS, _BYTES and _NS
	 * (session.h); 0: these limits. */
	uint64_t rekey_packets, rekey_bytes, rekey_ns;
	/* Implementation of suites and memory keys; NULL: OpenSSL. The caller
	 * keeps ownership; it must outlive the relay. */
	struct srdma_provider *provider;
	/* Fills in len random bytes. 0 or -errno. */
	int (*random)(void *ctx, uint8_t *out, size_t len);
	void *random_ctx;
};

/* 0, -EINVAL, -ENOMEM, or -EIO: no random numbers. */
int srdma_relay_create(struct srdma_relay **out,
		       const struct srdma_relay_params *params);
/* Ends all QPs (CLOSE to their peers), legs and both ports. */
void srdma_relay_destroy(struct srdma_relay *r);

/*
 * One turn: poll both ports, execute, seal, respond, expire. budget: most
 * events taken from each port. Returns the events and packets handled; 0: there
 * was nothing to do.
 */
int srdma_relay_run(struct srdma_relay *r, uint64_t now, int budget);
/* The time of the last run, ns. */
uint64_t srdma_relay_now(const struct srdma_relay *r);
/*
 * The wall clock, Unix seconds, against which capabilities expire. The relay
 * reads no clock; before the first call all capabilities have expired.
 */
void srdma_relay_clock(struct srdma_relay *r, uint32_t seconds);
/* Time of the next srdma_relay_run() if no event happens; UINT64_MAX: none is
 * needed. */
uint64_t srdma_relay_timer(const struct srdma_relay *r);

/* Rises when a QP changed its state. It does so before it is freed, and when its
 * leg ends. */
uint64_t srdma_relay_changes(const struct srdma_relay *r);

/* The counters; srdma_relay_stats_edit() for those that the caller counts. */
const struct srdma_stats *srdma_relay_stats(const struct srdma_relay *r);
struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r);
/* Updates the gauges. Visits all QPs, so it does not belong in the data path. */
void srdma_relay_stats_measure(struct srdma_relay *r);
/* The ledger of the worker process, which the relay owns. */
struct srdma_ledger *srdma_relay_ledger(const struct srdma_relay *r);
/* Text of the last refusal of the calls below, for the control socket. */
const char *srdma_relay_why(const struct srdma_relay *r);

/* --- control (docs/local-interface.md 3) ------------------------------- */

/* The calls return 0, or -errno with a text in srdma_relay_why(). -EINPROGRESS
 * has none. */

int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **leg,
			 struct srdma_leg_answer *answer);
/* Id of the leg in control messages. Modulo SRDMA_MAX_LEGS, no other leg that
 * was not freed has the same. Its token is in params->token after
 * srdma_relay_leg_open(). */
uint32_t srdma_relay_leg_id(const struct srdma_leg *leg);
/* 1 once the leg's host has connected. */
int srdma_relay_leg_was_up(const struct srdma_leg *leg);
/* Why the port ended a leg: -errno, as long as no later leg has its place; 0. */
int srdma_relay_leg_ended(const struct srdma_relay *r, uint32_t id);
/* The live leg with this id; NULL. */
struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id);
/* The live leg with this token of 16 bytes, compared in constant time; NULL. */
struct srdma_leg *srdma_relay_leg_by_token(struct srdma_relay *r,
					   const uint8_t *token);
/* The live leg that has this QP; NULL. */
struct srdma_leg *srdma_relay_leg_of_qp(struct srdma_relay *r, uint32_t qpn);
/* Fails the leg's QPs (CLOSE with PEER_HOST_GONE). Later turns free the leg, when
 * its DMA has ended. */
void srdma_relay_leg_close(struct srdma_leg *leg);
/*
 * ROTATE: replaces the leg's K_PD if it is at least age_s seconds old and no key
 * of a QP depends on the previous one. Sets *serial to that of the current K_PD.
 * 0, also if it was not replaced; -EPERM: the leg is of a trust group; -EIO.
 */
int srdma_relay_leg_rotate(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t age_s, uint32_t *serial);
/* Number of keys of the leg's QPs that depend on the previous K_PD. */
uint32_t srdma_relay_leg_behind(const struct srdma_leg *leg);

/* REG_MR. -EINVAL, -ENOTSUP: illegal parameters; -EDQUOT: SRDMA_MAX_MRS; -ENOTCONN: the
 * host is gone; -ENOMEM, -EIO, and errors of the port. */
int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key);
/*
 * 0: the region of REG_MR can be used. -EINPROGRESS: the port examines its
 * memory; call it after later turns. Another -errno of the port: the region is
 * deregistered. -ENOENT.
 */
int srdma_relay_mr_opening(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t key);
/*
 * DEREG_MR: refuses the key from now on. 0: no DMA uses the region any more;
 * -EINPROGRESS: call srdma_relay_mr_busy() after later turns; -ENOENT.
 */
int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key);
/* 1: DMA still uses a deregistered region. 0: the region is freed. */
int srdma_relay_mr_busy(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t key);

/*
 * REPLACE: deregisters a region, and then gives its key to the region `other` of the
 * leg. -EINPROGRESS: a DMA names one of both, whose keys are refused, call again after
 * later turns; -ENOENT: one of both does not exist, or not any more; -EINVAL: they are
 * the same, or one demands proofs.
 */
int srdma_relay_mr_replace(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t key, uint32_t other);
/*
 * WITHDRAW: ends all remote rights of a region (6.5). 0: no DMA of a peer uses
 * it; -EINPROGRESS: call srdma_relay_mr_withdrawing() with *ticket after later
 * turns; -ENOENT.
 */
int srdma_relay_mr_withdraw(struct srdma_relay *r, struct srdma_leg *leg,
			    uint32_t key, uint64_t *ticket);
/* 1: DMA of a peer from before the withdrawal is under way; 0: none is, or there
 * is no such region. */
int srdma_relay_mr_withdrawing(struct srdma_relay *r, struct srdma_leg *leg,
			       uint32_t key, uint64_t ticket);

/* CAP: makes a capability, which the caller wipes. -EINVAL, -ERANGE, -EACCES: the
 * range or the rights cannot be granted; -EPERM: the region demands no proof;
 * -ENOENT, -EIO. */
int srdma_relay_mr_capability(struct srdma_relay *r, struct srdma_leg *leg,
			      const struct srdma_cap_params *params,
			      struct srdma_capability *cap);

/*
 * REVOKE: voids all present capabilities for a range of a region (6.3). 0: no DMA
 * that one of them authorized is under way; -EINPROGRESS: call
 * srdma_relay_mr_revoking() with *ticket after later turns. -ENOSPC, -EDQUOT:
 * the region, or the leg, has its limit of revoked ranges; -EINVAL: the range
 * does not consist of blocks; -ERANGE: it is outside of the region; -EPERM: the
 * region demands no proofs;
 * -ENOENT, -ENOMEM, -EIO.
 */
int srdma_relay_mr_revoke(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_revoke_params *params,
			  uint64_t *ticket);
/* 1: DMA from before the revocation is under way; 0: none is, or there is no such
 * region. */
int srdma_relay_mr_revoking(struct srdma_relay *r, struct srdma_leg *leg,
			    const struct srdma_revoke_params *params,
			    uint64_t ticket);

/*
 * INSTALL: keeps a token's capability for the requests of the leg's QPs, under
 * a handle. -EDQUOT: SRDMA_CAPTABLE_MAX are installed; errors of
 * srdma_capability_decode().
 */
int srdma_relay_install(struct srdma_relay *r, struct srdma_leg *leg,
			const uint8_t *token, size_t len, uint32_t *handle);
/* UNINSTALL: requests that still name the handle fail. -ENOENT. */
int srdma_relay_uninstall(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t handle);

/* INIT: creates a QP. -EINVAL: illegal parameters; -ENOSPC: the ring of the leg
 * is too small for its records; -EDQUOT: the relay's limit of QPs; -ENOMEM, -EIO.
 */
int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info);

/*
 * KEY, for key mode pd: the secret that the peer shall seal with, derived from
 * the leg's current K_PD. For a QP that has its keys, only the flow of its own
 * session may be named. -EPERM: the leg was opened for a trust group and `group` is 0, or
 * the reverse; -EISCONN: the QP has other keys already; -ENOTCONN: it failed;
 * -EINVAL, -ENOENT, -EIO.
 */
int srdma_relay_qp_secret(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_qp_secret *params,
			  struct srdma_qp_secret_answer *answer);

/*
 * KEYS: gives a QP its keys, and as role 0 connects its path. On failure
 * nothing changes: errors of srdma_relay_qp_secret(); -EPERM also: level none
 * is not allowed; -EBUSY: the leg has the K_PD of another group; -ENOTSUP:
 * suite, level or mode; -ENOMEM, and errors of the wire.
 */
int srdma_relay_qp_keys(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_keys *keys);

/*
 * REKEY: a new secret for a direction of a QP (3.5). -EBUSY: one waits already;
 * -ENOTCONN: the QP is not in RTR or RTS; -EPERM: secrets of a trust group are
 * not replaced; -EINVAL, -ENOENT. SRDMA_REKEY_QUERY changes nothing: -EBUSY
 * while a secret waits in any direction. SRDMA_REKEY_WITHDRAW takes back the
 * secret that waits in RX: -ENODATA if none waits.
 */
int srdma_relay_qp_rekey(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_rekey *params);
/*
 * PROVE: makes the proof of this end with the renewal key (8.6), or compares the
 * peer's. -EBADMSG: the peer's proof differs; -ENOTCONN: the QP is not in RTR or
 * RTS; -EPERM: level none; -EINVAL, -ENOENT, -ENOMEM, -EIO.
 */
int srdma_relay_qp_prove(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_prove *params,
			 struct srdma_qp_prove_answer *answer);
/*
 * KEEP: stores data of the agent for QPs of one leg, in place of the data that
 * they had. QPs that ended are left out. -ENOTCONN: a QP has no keys, or all
 * QPs ended; -EPERM: level none; -EINVAL: sizes, a QP that is named twice, or
 * QPs of several legs; -ENOMEM. On failure nothing changes.
 */
int srdma_relay_keep(struct srdma_relay *r, const struct srdma_keep *params);
/* ADOPT: the data of the KEEP with the lowest serial above `after`, and its QPs
 * in RTR or RTS, of which there is at least one. -ENOENT: there is none. */
int srdma_relay_adopt(struct srdma_relay *r, uint64_t after,
		      struct srdma_kept *out);
/* MODIFY. -EINVAL: a field, right or time that is not legal; -ENOENT. */
int srdma_relay_qp_modify(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_qp_change *change);
/* EXPIRE: the QP's keys will not be renewed, so it goes to ERR (KEY_LIMIT).
 * -ENOENT. */
int srdma_relay_qp_expire(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn);
/* SHARE: the QP takes its receives from the queue of the holder, another QP of the
 * leg. -ENOENT; -EINVAL: one of them may not, local-interface.md 3.6. */
int srdma_relay_qp_share(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t holder);

/* LIFE: as EXPIRE, but after `seconds`, and only if no later call replaced this
 * one. It has no effect in ERR. -EINVAL: not 1..SRDMA_MAX_LIFE_S; -ENOTCONN: the
 * QP has no keys; -ENOENT. */
int srdma_relay_qp_life(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t qpn, uint32_t seconds);

/*
 * QPS: examines some QPs from *cursor on, which is 0 at first, and moves it.
 * *leg is the leg of the first of them, which *out describes; NULL: there was
 * none, and others may follow. 0, or -ENOENT: there are no more.
 */
int srdma_relay_qp_next(struct srdma_relay *r, uint64_t *cursor,
			struct srdma_qp_report *out, struct srdma_leg **leg);
/* USAGE: what the QPs of an account have done, ended ones included. */
void srdma_relay_counts(struct srdma_relay *r, struct srdma_account *a,
			struct srdma_account_counts *out);

/* Returns the state of a QP of the leg, enum srdma_qp_state; in ERR *reason is
 * its reason, else 0. -ENOENT: no such QP. */
int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason);
/*
 * END: the key exchange reports that the peer is gone. Payloads that arrived are
 * placed, then the QP goes to ERR. -EINVAL: the reason is not PEER_CLOSED,
 * PEER_HOST_GONE or WIRE_LOST; -ENOENT.
 */
int srdma_relay_qp_end(struct srdma_relay *r, struct srdma_leg *leg,
		       uint32_t qpn, uint32_t reason);
/* DESTROY: fails the QP without further completion records, then frees it. 0: it
 * is freed; -EINPROGRESS: its DMA has not ended, or its CLOSE has not left: call
 * again after later turns; -ENOENT. */
int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn);
/* RESET: as DESTROY, but the QP is not freed. posted: descriptors of the leg that
 * are taken before the end of the QP, modulo 2^32. -EINVAL: it is further ahead of those
 * that were taken than 2 * SRDMA_MAX_RING, and the QP goes on. */
int srdma_relay_qp_reset(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t posted);
/*
 * REINIT: frees a QP that was reset and makes another one with its QPN. *records:
 * completion records written on the leg, modulo 2^32. -EINVAL: it was not reset;
 * -ENOENT; errors of srdma_relay_qp_init(), after which the QP is freed.
 */
int srdma_relay_qp_reinit(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn, const struct srdma_qp_params *params,
			  struct srdma_qp_info *info, uint32_t *records);

#endif
