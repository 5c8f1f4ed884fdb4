/*
 * The relay: descriptors of the own hosts become sealed packets, verified
 * packets of other workers become DMA (docs/protocol.md 4.6, 5, 6, 7). It
 * is RFC 5042's Privileged Resource Manager: nobody else decides which
 * packet touches which byte of a host. One thread; no call blocks; time is
 * an argument (nanoseconds of any monotonic clock).
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
	SRDMA_QP_RTR = 2, /* keys are here, nothing verified yet */
	SRDMA_QP_RTS = 3,
	SRDMA_QP_ERR = 4,
};

/* Limits of 12; a QP's are negotiated below them. */
enum srdma_relay_limits {
	SRDMA_DEFAULT_PING_MS = 5000,
	SRDMA_DEFAULT_SILENCE_MS = 15000,
	SRDMA_MAX_LEGS = 256,
	SRDMA_DEFAULT_QPS = 4096,
	SRDMA_MAX_QPS = 1 << 20,
	SRDMA_MAX_MRS = 4096,	/* per leg */
	SRDMA_MAX_DEPTH = 4096, /* of an SQ or RQ */
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
	struct srdma_port *host; /* the relay's from now on, also on failure */
	struct srdma_port *wire;
	int allow_unprotected;
	uint32_t mtu;	 /* payload bytes taken per packet, 256..4096,
			       as far as the wire takes them */
	uint32_t window; /* request packets taken unacknowledged, as far as
			       the host port has buffers to keep them */
	uint32_t reads;	 /* answer slots per QP */
	uint32_t qps;	 /* at most; 0: SRDMA_DEFAULT_QPS */
	/* Bytes of what QPs make when they first need it; 0: no limit. */
	uint64_t table_memory;
	/* Keyed contexts kept for key mode pd; 0: none, nor keys of memory. */
	uint32_t key_cache;
	/* Liveness (5): 0: 5,000 and 15,000; silence is longer than ping. */
	uint32_t ping_ms, silence_ms;
	/* Of an epoch, until another one is wanted (3.5): not more than
	 * SRDMA_REKEY_PACKETS, _BYTES, _NS (session.h); 0: these. */
	uint64_t rekey_packets, rekey_bytes, rekey_ns;
	/* Of suites and of memory keys, NULL: OpenSSL. The caller's; it
	 * outlives the relay. */
	struct srdma_provider *provider;
	/* Fill len random bytes. 0 or -errno. */
	int (*random)(void *ctx, uint8_t *out, size_t len);
	void *random_ctx;
};

int srdma_relay_create(struct srdma_relay **out,
		       const struct srdma_relay_params *params);
/* Ends all QPs (CLOSE to their peers), legs and both ports. */
void srdma_relay_destroy(struct srdma_relay *r);

/*
 * One turn: poll both ports, execute, seal, answer, expire. budget is the
 * most events taken from each port. Returns the events and packets handled,
 * 0 when there was nothing to do.
 */
int srdma_relay_run(struct srdma_relay *r, uint64_t now, int budget);
/*
 * The wall clock, Unix seconds, against which capabilities expire. The relay
 * has no other; until the first call every expiry has passed.
 */
void srdma_relay_clock(struct srdma_relay *r, uint32_t seconds);
/* When run must be called again although nothing happened; UINT64_MAX: not. */
uint64_t srdma_relay_timer(const struct srdma_relay *r);

const struct srdma_stats *srdma_relay_stats(const struct srdma_relay *r);
struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r);
/* Bring the gauges up to date. It visits all QPs: not for the data path. */
void srdma_relay_stats_measure(struct srdma_relay *r);
/* Text of the last refusal of the calls below, for the control socket. */
const char *srdma_relay_why(const struct srdma_relay *r);

/* --- control (10): 0, or -errno with srdma_relay_why() ---------------- */

int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **leg,
			 struct srdma_leg_answer *answer);
/* Id for the messages; token is params->token, filled by leg_open. */
uint32_t srdma_relay_leg_id(const struct srdma_leg *leg);
struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id);
/* NULL unless the 16 bytes are a live leg's token (constant time). */
struct srdma_leg *srdma_relay_leg_by_token(struct srdma_relay *r,
					   const uint8_t *token);
/* Ends its QPs (CLOSE, reason PEER_HOST_GONE) and frees it when DMA ended. */
void srdma_relay_leg_close(struct srdma_relay *r, struct srdma_leg *leg);
/*
 * ROTATE: another K_PD for the leg, if its own is at least age_s seconds old and
 * no QP uses the one before; the serial number of the one that it has then. 0;
 * -EPERM: a trust group's; -EIO.
 */
int srdma_relay_leg_rotate(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t age_s, uint32_t *serial);
/* How many keys of its QPs hang on the K_PD before that one. */
uint32_t srdma_relay_leg_behind(const struct srdma_leg *leg);

struct srdma_mr_params {
	struct srdma_region_params region;
	uint32_t scope_qpn; /* 0: any QP of the PD */
	/* of its tree (6.1), with SRDMA_ACCESS_PROOF; else both 0 */
	uint8_t log2_block, depth;
};
/* -EINVAL, -ENOTSUP: what is asked for; -EDQUOT: SRDMA_MAX_MRS; -ENOTCONN: the
 * host is gone; -ENOMEM, -EIO, and what the port says. */
int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key);
/*
 * Refuses the key from now on. 0: no DMA names it any more; -EINPROGRESS:
 * ask srdma_relay_mr_busy() after later turns; -ENOENT.
 */
int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key);
int srdma_relay_mr_busy(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t key);

/* What CAP asks for; bytes relative to the region's start. */
struct srdma_cap_params {
	uint32_t key;
	uint64_t offset, length;
	uint8_t rights; /* enum srdma_memkey_right */
	struct srdma_memkey_bearer bearer;
};
/* Make a capability, which the caller wipes. -EINVAL, -ERANGE, -EACCES: the
 * range or the rights cannot be granted; -EPERM: the region demands no proof;
 * -ENOENT, -EIO. */
int srdma_relay_mr_capability(struct srdma_relay *r, struct srdma_leg *leg,
			      const struct srdma_cap_params *params,
			      struct srdma_capability *cap);

struct srdma_revoke_params {
	uint32_t key;
	uint64_t offset, length; /* 0, 0: the whole region */
};
/*
 * Void all capabilities for a range of a region (6.3), from now on and for
 * ever. 0: no DMA that one of them allowed is under way; -EINPROGRESS: ask
 * srdma_relay_mr_revoking() with *ticket after later turns. -ENOSPC, -EDQUOT: the
 * region, or the leg, has as many revoked ranges as it can; -EINVAL, -ERANGE:
 * not made of blocks, or outside; -EPERM: the region demands no proofs;
 * -ENOENT, -ENOMEM, -EIO.
 */
int srdma_relay_mr_revoke(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_revoke_params *params,
			  uint64_t *ticket);
/* 1: DMA from before the revocation is under way; 0: none, or no region. */
int srdma_relay_mr_revoking(struct srdma_relay *r, struct srdma_leg *leg,
			    const struct srdma_revoke_params *params,
			    uint64_t ticket);

/*
 * Keep a token's capability for the requests of the leg's QPs, under a handle.
 * -EDQUOT: SRDMA_MAX_GRANTS are kept; what srdma_capability_decode() says.
 */
int srdma_relay_grant_add(struct srdma_relay *r, struct srdma_leg *leg,
			  const uint8_t *token, size_t len, uint32_t *handle);
/* Requests that still name it fail. -ENOENT. */
int srdma_relay_grant_drop(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t handle);

struct srdma_qp_params {
	uint32_t sq, rq;     /* depths, 1..4096 */
	uint32_t timeout_ms; /* per request; 0: 30,000 */
	uint32_t mtu;	     /* 0: the relay's */
};

struct srdma_qp_info { /* what END of 8.2 tells the peer */
	uint32_t qpn;
	uint8_t eid[SRDMA_EID_LEN];
	uint64_t pn;
	uint32_t mtu, window, reads;
	uint8_t random[32];
};
int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info);

struct srdma_qp_secret { /* KEY of 10 */
	uint32_t qpn;
	uint8_t secret_len; /* 16 or 32 */
	uint8_t group;	    /* 1: the group's K_PD is wanted too */
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t peer_qpn;
};
struct srdma_qp_secret_answer {			/* the caller wipes it */
	uint8_t secret[SRDMA_MAX_SECRET];	/* of the direction to here */
	uint8_t group_key[SRDMA_GROUP_KEY_LEN]; /* K_PD, or zero */
};
/*
 * Key mode pd: what the peer shall seal with, by the K_PD that the leg has now.
 * A QP that has its keys gives the S of its own session. -EPERM: the leg was
 * opened for a trust group and its key is not asked for, or the reverse;
 * -EISCONN: the QP has other keys already; -ENOTCONN: it failed; -EINVAL,
 * -ENOENT, -EIO.
 */
int srdma_relay_qp_secret(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_qp_secret *params,
			  struct srdma_qp_secret_answer *answer);

struct srdma_qp_keys { /* KEYS of 10; the caller wipes it */
	uint32_t qpn;
	uint8_t role, suite, level, tag_len, mode, secret_len;
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t peer_qpn;
	uint64_t peer_pn;
	uint32_t peer_mtu, peer_window, peer_reads;
	char peer_wire[SRDMA_NAME_LEN];
	uint8_t tx_secret[SRDMA_MAX_SECRET];
	uint8_t rx_secret[SRDMA_MAX_SECRET];	      /* mode with PD: zero */
	uint8_t group_key[SRDMA_GROUP_KEY_LEN];	      /* zero: none (3.4) */
	uint8_t peer_holder[SRDMA_MEMKEY_HOLDER_LEN]; /* its identity (6.1) */
};
/*
 * Give a QP its keys, and as role 0 connect its wire. On failure all is as it
 * was: what srdma_relay_qp_secret() says; -EPERM also: level none is not
 * allowed; -EBUSY: the leg has the K_PD of another group; -ENOTSUP: suite,
 * level or mode; -ENOMEM, and what the wire says.
 */
int srdma_relay_qp_keys(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_keys *keys);

struct srdma_qp_rekey { /* REKEY of 10; the caller wipes it */
	uint32_t qpn;
	uint8_t direction; /* enum srdma_direction; 0: only asks */
	uint8_t secret_len;
	uint8_t secret[SRDMA_MAX_SECRET]; /* mode with PD, rx: zero */
};
/*
 * A new secret for a direction of a QP (3.5). -EBUSY: one waits already;
 * -ENOTCONN: the QP is not in RTR or RTS; -EPERM: a trust group's S stays;
 * -EINVAL, -ENOENT. Direction 0: -EBUSY while one waits in any.
 */
int srdma_relay_qp_rekey(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_rekey *params);
/* EXPIRE: its keys will not be renewed, it goes to ERR (KEY_LIMIT). -ENOENT. */
int srdma_relay_qp_expire(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn);

/* State of a QP of the leg, and why it is ERR. -ENOENT: no such QP. */
int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason);
/*
 * END: the key exchange knows that there is no peer any more. What arrived is
 * placed, then the QP goes to ERR. -EINVAL: the reason is not PEER_CLOSED,
 * PEER_HOST_GONE or WIRE_LOST; -ENOENT.
 */
int srdma_relay_qp_end(struct srdma_relay *r, struct srdma_leg *leg,
		       uint32_t qpn, uint32_t reason);
/* 0: gone; -EINPROGRESS: its DMA has not ended, call again; -ENOENT. */
int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn);

#endif
