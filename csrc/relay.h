/*
 * The relay: turns descriptors of local hosts into sealed packets, and verified
 * packets of other workers into DMA (docs/protocol.md 4.6, 5, 6, 7). It is the
 * Privileged Resource Manager of RFC 5042: it alone decides which packet
 * accesses which bytes of a host. Single-threaded. No call blocks. The caller
 * passes the time in ns of a monotonic clock.
 *
 * Section numbers in comments are those of docs/protocol.md.
 */
#ifndef SRDMA_RELAY_H
#define SRDMA_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "memory/capability.h"
#include "session/pdkeys.h"
#include "port/port.h"
#include "session/session.h"
#include "wire/stats.h"

struct srdma_relay;
struct srdma_leg;

enum srdma_qp_state {
	SRDMA_QP_INIT = 1,
	SRDMA_QP_RTR = 2, /* keys are set, no packet has verified yet */
	SRDMA_QP_RTS = 3,
	SRDMA_QP_ERR = 4,
};

/* Limits of 12; limits of a QP may be negotiated below them. */
enum srdma_relay_limits {
	SRDMA_DEFAULT_PING_MS = 5000,
	SRDMA_DEFAULT_SILENCE_MS = 15000,
	SRDMA_MAX_LEGS = 256,
	SRDMA_DEFAULT_QPS = 4096,
	SRDMA_MAX_QPS = 1 << 20,
	SRDMA_MAX_MRS = 4096,	/* per leg */
	SRDMA_MAX_DEPTH = 4096, /* of an SQ or RQ, entries */
	SRDMA_MAX_WINDOW = 1024,
	SRDMA_MAX_READS = 128,
	SRDMA_MIN_RING = 64,
	SRDMA_MAX_RING = 65536,
	SRDMA_MAX_TIMEOUT_MS = 600000,
	SRDMA_MAX_GRANTS = 1024, /* per leg */
	SRDMA_MAX_KEY_CACHE = 65536,
	SRDMA_MAX_SILENCE_MS = 3600000,
};

struct srdma_relay_params {
	/* The relay takes ownership of both ports, also on failure. */
	struct srdma_port *host;
	struct srdma_port *wire;
	int allow_unprotected;
	/* Most payload bytes accepted per packet, 256..4096, lowered to the
	 * limit of the wire. */
	uint32_t mtu;
	/* Most request packets accepted without acknowledgement, lowered to the
	 * number of buffers that the host port has to keep them. */
	uint32_t window;
	uint32_t reads; /* READ/atomic responder slots per QP, 1..128 */
	uint32_t qps;	/* limit; 0: SRDMA_DEFAULT_QPS */
	/* Limit in bytes for tables that QPs allocate on first use; 0: none. */
	uint64_t table_memory;
	/* Capacity of the key cache of key mode pd; 0: traffic keys and memory
	 * keys are derived for each packet. */
	uint32_t key_cache;
	/* Liveness timers (5), ms; 0: 5,000 and 15,000. silence > ping. */
	uint32_t ping_ms, silence_ms;
	/* Limits of an epoch after which the next one is wanted (3.5), at most
	 * SRDMA_REKEY_PACKETS, _BYTES, _NS (session.h); 0: these. */
	uint64_t rekey_packets, rekey_bytes, rekey_ns;
	/* Computes suites and memory keys; NULL: OpenSSL. Borrowed: it outlives
	 * the relay. */
	struct srdma_provider *provider;
	/* Fills out with len random bytes. Returns 0 or -errno. */
	int (*random)(void *ctx, uint8_t *out, size_t len);
	void *random_ctx;
};

/* 0; -EINVAL: a parameter is out of range; -ENOMEM, -EIO. On failure both ports
 * are closed. */
int srdma_relay_create(struct srdma_relay **out,
		       const struct srdma_relay_params *params);
/* Sends CLOSE for all QPs, then frees QPs, legs and both ports. */
void srdma_relay_destroy(struct srdma_relay *r);

/*
 * One turn: polls both ports, executes requests, seals, responds, runs timers.
 * now: ns; budget: most events taken from each port. Returns the number of
 * events and packets handled; 0 if there was nothing to do.
 */
int srdma_relay_run(struct srdma_relay *r, uint64_t now, int budget);
/*
 * Sets the wall clock (Unix seconds) for the expiry of capabilities. Until the
 * first call every capability with an expiry counts as expired.
 */
void srdma_relay_clock(struct srdma_relay *r, uint32_t seconds);
/* Time in ns at which srdma_relay_run() must be called even without an event;
 * UINT64_MAX: none. */
uint64_t srdma_relay_timer(const struct srdma_relay *r);

const struct srdma_stats *srdma_relay_stats(const struct srdma_relay *r);
struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r);
/* Updates the gauges. It visits all QPs, so it is not for the data path. */
void srdma_relay_stats_measure(struct srdma_relay *r);
/* Text of the last error of the functions below, for the control socket. */
const char *srdma_relay_why(const struct srdma_relay *r);

/* --- control messages (10): 0, or -errno with srdma_relay_why() ---------- */

/* OPEN: creates a leg with fresh keys and fills params->token. -EINVAL: ring
 * size; -EDQUOT: SRDMA_MAX_LEGS legs exist; -ENOMEM, -EIO, and errors of the
 * port. */
int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **leg,
			 struct srdma_leg_answer *answer);
/* Id of a leg in control messages, not 0. */
uint32_t srdma_relay_leg_id(const struct srdma_leg *leg);
struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id);
/* The live leg with this 16-byte token, compared in constant time; NULL if
 * there is none. */
struct srdma_leg *srdma_relay_leg_by_token(struct srdma_relay *r,
					   const uint8_t *token);
/* Ends the leg's QPs (CLOSE with reason PEER_HOST_GONE). The leg is freed when
 * its DMA has ended. */
void srdma_relay_leg_close(struct srdma_relay *r, struct srdma_leg *leg);
/*
 * ROTATE: replaces the leg's K_PD if it is at least age_s seconds old and no QP
 * uses the previous one. *serial: serial number of the current K_PD. 0; -EPERM:
 * the leg is one of a trust group; -EIO.
 */
int srdma_relay_leg_rotate(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t age_s, uint32_t *serial);
/* Number of keys of its QPs that are derived from the previous K_PD. */
uint32_t srdma_relay_leg_behind(const struct srdma_leg *leg);

struct srdma_mr_params {
	struct srdma_region_params region;
	uint32_t scope_qpn; /* 0: any QP of the PD */
	/* tree (6.1), with SRDMA_ACCESS_PROOF; else both 0 */
	uint8_t log2_block, depth;
};
/* REG_MR. -EINVAL, -ENOTSUP: a parameter; -EDQUOT: SRDMA_MAX_MRS regions exist;
 * -ENOTCONN: the leg has ended; -ENOMEM, -EIO, and errors of the port. */
int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key);
/*
 * DEREG_MR: accesses with the key are refused from now on. 0: no DMA uses the
 * region; -EINPROGRESS: call srdma_relay_mr_busy() after later turns; -ENOENT:
 * no such region.
 */
int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key);
int srdma_relay_mr_busy(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t key);

/* Parameters of CAP. Bytes are relative to the region's start. */
struct srdma_cap_params {
	uint32_t key;
	uint64_t offset, length;
	uint8_t rights; /* enum srdma_memkey_right, or-ed */
	struct srdma_memkey_bearer bearer;
};
/* CAP: makes a capability; the caller wipes it. -EINVAL, -ERANGE, -EACCES: the
 * range or the rights cannot be granted; -EPERM: the region requires no proofs;
 * -ENOENT: no such region; -EIO. */
int srdma_relay_mr_capability(struct srdma_relay *r, struct srdma_leg *leg,
			      const struct srdma_cap_params *params,
			      struct srdma_capability *cap);

struct srdma_revoke_params {
	uint32_t key;
	uint64_t offset, length; /* 0, 0: the whole region */
};
/*
 * REVOKE: revokes all capabilities for a range of a region (6.3). 0: no DMA
 * that they permitted is in progress; -EINPROGRESS: call
 * srdma_relay_mr_revoking() with *ticket after later turns; -ENOSPC, -EDQUOT:
 * the region or the leg has the largest number of revoked ranges; -EINVAL,
 * -ERANGE: the range is not made of blocks or not inside the region; -EPERM:
 * the region requires no proofs; -ENOENT, -ENOMEM, -EIO.
 */
int srdma_relay_mr_revoke(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_revoke_params *params,
			  uint64_t *ticket);
/* 1: a DMA that began before the revocation is in progress; 0: none is, or the
 * region no longer exists. */
int srdma_relay_mr_revoking(struct srdma_relay *r, struct srdma_leg *leg,
			    const struct srdma_revoke_params *params,
			    uint64_t ticket);

/*
 * INSTALL: stores a token's capability for requests of the leg's QPs under a
 * handle. -EDQUOT: SRDMA_MAX_GRANTS are installed; -ENOMEM, -EIO; errors of
 * srdma_capability_decode().
 */
int srdma_relay_grant_add(struct srdma_relay *r, struct srdma_leg *leg,
			  const uint8_t *token, size_t len, uint32_t *handle);
/* UNINSTALL: requests that still name it fail. -ENOENT: no such handle. */
int srdma_relay_grant_drop(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t handle);

struct srdma_qp_params {
	uint32_t sq, rq;     /* queue depths, 1..4096 */
	uint32_t timeout_ms; /* per request; 0: 30,000 */
	uint32_t mtu;	     /* 0: that of the relay */
};

struct srdma_qp_info { /* values sent to the peer in END (8.2) */
	uint32_t qpn;
	uint8_t eid[SRDMA_EID_LEN];
	uint64_t pn;
	uint32_t mtu, window, reads;
	uint8_t random[32];
};
/* INIT: creates a QP. -EINVAL: a parameter; -ENOSPC: the leg's ring is too
 * small for it; -EDQUOT: the worker has its limit of QPs; -ENOMEM, -EIO. */
int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info);

struct srdma_qp_secret { /* request KEY (10) */
	uint32_t qpn;
	uint8_t secret_len; /* 16 or 32 */
	uint8_t group;	    /* 1: return the group's K_PD, too */
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t peer_qpn;
};
struct srdma_qp_secret_answer {			/* the caller wipes it */
	uint8_t secret[SRDMA_MAX_SECRET];	/* S that the peer sends with */
	uint8_t group_key[SRDMA_GROUP_KEY_LEN]; /* K_PD, or zero */
};
/*
 * KEY, in key mode pd: derives the peer's sending secret from the leg's current
 * K_PD. For a QP with keys the parameters must match its session. -EPERM: the
 * leg is one of a trust group and `group` is 0, or the reverse; -EISCONN: the
 * QP has other keys; -ENOTCONN: the QP is in ERR; -EINVAL, -ENOENT, -EIO.
 */
int srdma_relay_qp_secret(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_qp_secret *params,
			  struct srdma_qp_secret_answer *answer);

struct srdma_qp_keys { /* request KEYS (10); the caller wipes it */
	uint32_t qpn;
	uint8_t role, suite, level, tag_len, mode, secret_len;
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t peer_qpn;
	uint64_t peer_pn;
	uint32_t peer_mtu, peer_window, peer_reads;
	char peer_wire[SRDMA_NAME_LEN];
	uint8_t tx_secret[SRDMA_MAX_SECRET];
	uint8_t rx_secret[SRDMA_MAX_SECRET];	/* mode with PD: zero */
	uint8_t group_key[SRDMA_GROUP_KEY_LEN]; /* zero: no trust group (3.4) */
	uint8_t peer_holder[SRDMA_MEMKEY_HOLDER_LEN]; /* of its identity */
};
/*
 * KEYS: sets the keys of a QP; for role 0 also connects its wire. On failure
 * nothing changes: errors of srdma_relay_qp_secret(); -EPERM also: level none
 * is not allowed; -EBUSY: the leg has the K_PD of another group; -ENOTSUP:
 * suite, level or mode; -ENOMEM, and errors of the wire.
 */
int srdma_relay_qp_keys(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_keys *keys);

struct srdma_qp_rekey { /* request REKEY (10); the caller wipes it */
	uint32_t qpn;
	uint8_t direction; /* enum srdma_direction; 0: query only */
	uint8_t secret_len;
	uint8_t secret[SRDMA_MAX_SECRET]; /* mode with PD, rx: zero */
};
/*
 * REKEY: gives a new secret for a direction of a QP (3.5). -EBUSY: one waits
 * already in this direction (direction 0: in any); -ENOTCONN: the QP is not in
 * RTR or RTS; -EPERM: the secrets of a trust group do not change; -EINVAL,
 * -ENOENT.
 */
int srdma_relay_qp_rekey(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_rekey *params);
/* EXPIRE: the keys of the QP will not be renewed. It goes to ERR, reason
 * KEY_LIMIT. -ENOENT: no such QP. */
int srdma_relay_qp_expire(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn);

/* State of a QP of the leg (enum srdma_qp_state); *reason: why it is in ERR.
 * -ENOENT: no such QP. */
int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason);
/*
 * END: the key exchange knows that the peer is gone. Received data is placed,
 * then the QP goes to ERR. -EINVAL: reason is not PEER_CLOSED, PEER_HOST_GONE
 * or WIRE_LOST; -ENOENT: no such QP.
 */
int srdma_relay_qp_end(struct srdma_relay *r, struct srdma_leg *leg,
		       uint32_t qpn, uint32_t reason);
/* DESTROY. 0: the QP is freed; -EINPROGRESS: its DMA has not ended, call again;
 * -ENOENT: no such QP. */
int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn);

#endif
