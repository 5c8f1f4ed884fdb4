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

struct srdma_relay;
struct srdma_leg;

struct srdma_relay_params {
	struct srdma_port *host; /* the relay takes both, also on failure */
	struct srdma_port *wire;
	int allow_unprotected;
	uint32_t mtu;	 /* payload bytes taken per packet, 256..4096; less
			    if the wire takes less */
	uint32_t window; /* request packets taken unacknowledged; less if the
			    host port lacks buffers to keep them */
	uint32_t reads;	 /* response slots of a QP */
	uint32_t qps;	 /* at most; 0: SRDMA_DEFAULT_QPS */
	/* Bytes for tables that QPs make on demand; 0: no limit. */
	uint64_t table_memory;
	/* Keyed contexts kept for key mode pd; 0: none, and no memory keys. */
	uint32_t key_cache;
	/* Liveness (5); 0: 5,000 and 15,000. silence is longer than ping. */
	uint32_t ping_ms, silence_ms;
	/* Limits of an epoch (3.5), at most SRDMA_REKEY_PACKETS, _BYTES, _NS
	 * (session.h); 0: these. */
	uint64_t rekey_packets, rekey_bytes, rekey_ns;
	/* Of suites and memory keys; NULL: OpenSSL. It stays the caller's and
	 * outlives the relay. */
	struct srdma_provider *provider;
	/* Fills in len random bytes. 0 or -errno. */
	int (*random)(void *ctx, uint8_t *out, size_t len);
	void *random_ctx;
};

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
/*
 * The wall clock, Unix seconds, against which capabilities expire. The relay
 * reads no clock; before the first call all capabilities have expired.
 */
void srdma_relay_clock(struct srdma_relay *r, uint32_t seconds);
/* When run must be called although nothing happens; UINT64_MAX: never. */
uint64_t srdma_relay_timer(const struct srdma_relay *r);

const struct srdma_stats *srdma_relay_stats(const struct srdma_relay *r);
struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r);
/* Updates the gauges. It visits all QPs: not for the data path. */
void srdma_relay_stats_measure(struct srdma_relay *r);
/* Text of the last refusal of the calls below, for the control socket. */
const char *srdma_relay_why(const struct srdma_relay *r);

/* --- control (10): 0, or -errno with srdma_relay_why() ---------------- */

int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **leg,
			 struct srdma_leg_answer *answer);
/* Id for messages; the token is params->token, filled in by leg_open. */
uint32_t srdma_relay_leg_id(const struct srdma_leg *leg);
struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id);
/* NULL unless the 16 bytes are a live leg's token (constant time). */
struct srdma_leg *srdma_relay_leg_by_token(struct srdma_relay *r,
					   const uint8_t *token);
/* Ends its QPs (CLOSE, PEER_HOST_GONE) and frees it when its DMA ended. */
void srdma_relay_leg_close(struct srdma_relay *r, struct srdma_leg *leg);
/*
 * ROTATE: makes another K_PD for the leg if its own is at least age_s seconds
 * old and no QP uses the one before. *serial: of its K_PD then. 0; -EPERM: a
 * trust group's leg; -EIO.
 */
int srdma_relay_leg_rotate(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t age_s, uint32_t *serial);
/* Keys of its QPs that depend on the K_PD before that one. */
uint32_t srdma_relay_leg_behind(const struct srdma_leg *leg);

/* -EINVAL, -ENOTSUP: illegal parameters; -EDQUOT: SRDMA_MAX_MRS; -ENOTCONN: the
 * host is gone; -ENOMEM, -EIO, and errors of the port. */
int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key);
/*
 * Refuses the key from now on. 0: no DMA names it any more; -EINPROGRESS: ask
 * srdma_relay_mr_busy() after later turns; -ENOENT.
 */
int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key);
int srdma_relay_mr_busy(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t key);

/* Makes a capability, which the caller wipes. -EINVAL, -ERANGE, -EACCES: the
 * range or the rights cannot be granted; -EPERM: the region demands no proof;
 * -ENOENT, -EIO. */
int srdma_relay_mr_capability(struct srdma_relay *r, struct srdma_leg *leg,
			      const struct srdma_cap_params *params,
			      struct srdma_capability *cap);

/*
 * Voids all capabilities for a range of a region (6.3), for ever. 0: no DMA
 * that one of them allowed is under way; -EINPROGRESS: ask
 * srdma_relay_mr_revoking() with *ticket after later turns. -ENOSPC, -EDQUOT:
 * the region, or the leg, has its limit of revoked ranges; -EINVAL, -ERANGE:
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
 * INSTALL: keeps a token's capability for the requests of the leg's QPs, under
 * a handle. -EDQUOT: SRDMA_CAPTABLE_MAX are installed; errors of
 * srdma_capability_decode().
 */
int srdma_relay_install(struct srdma_relay *r, struct srdma_leg *leg,
			const uint8_t *token, size_t len, uint32_t *handle);
/* UNINSTALL: requests that still name the handle fail. -ENOENT. */
int srdma_relay_uninstall(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t handle);

int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info);

/*
 * KEY, for key mode pd: the secret that the peer shall seal with, derived from
 * the leg's present K_PD. A QP that has its keys gives the secret of its own
 * session. -EPERM: the leg was opened for a trust group and `group` is 0, or
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
 * -ENOTCONN: the QP is not in RTR or RTS; -EPERM: a trust group's secret is not
 * replaced; -EINVAL, -ENOENT. Direction 0: -EBUSY while one waits in any.
 */
int srdma_relay_qp_rekey(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_qp_rekey *params);
/* EXPIRE: its keys will not be renewed; it goes to ERR (KEY_LIMIT). -ENOENT. */
int srdma_relay_qp_expire(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t qpn);

/* State of a QP of the leg, and why it is ERR. -ENOENT: no such QP. */
int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason);
/*
 * END: the key exchange knows that there is no peer any more. All that arrived
 * is placed, then the QP goes to ERR. -EINVAL: the reason is not PEER_CLOSED,
 * PEER_HOST_GONE or WIRE_LOST; -ENOENT.
 */
int srdma_relay_qp_end(struct srdma_relay *r, struct srdma_leg *leg,
		       uint32_t qpn, uint32_t reason);
/* 0: gone; -EINPROGRESS: its DMA has not ended, call again; -ENOENT. */
int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn);

#endif
