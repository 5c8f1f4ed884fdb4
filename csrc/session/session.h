/*
 * A session: both directions of one SRC QP's protection (docs/protocol.md
 * 3, 4). It owns keys, packet numbers and windows; it knows nothing of
 * memory, ports or time. One thread at a time.
 */
#ifndef SRDMA_SESSION_H
#define SRDMA_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "session/pdkeys.h"
#include "wire/wire.h"

struct srdma_session;

/* Key mode: bits. Proofs (SRDMA_MODE_MEM) are made here, judged elsewhere. */
enum srdma_mode {
	SRDMA_MODE_BASIC = 0,
	SRDMA_MODE_PD = 1,  /* secrets derived from K_PD (3.4) */
	SRDMA_MODE_MEM = 2, /* packets may carry memory proofs (6.1) */
	SRDMA_MODES = 4,
};

struct srdma_cmac;
struct srdma_keycache;
struct srdma_provider;

enum { SRDMA_MAX_SECRET = 32 };

/* When the next epoch of a direction is wanted at the latest (3.5). */
#define SRDMA_REKEY_PACKETS (UINT64_C(1) << 24)
#define SRDMA_REKEY_BYTES   (UINT64_C(1) << 36)
#define SRDMA_REKEY_NS	    (60 * UINT64_C(1000000000))

struct srdma_session_params {
	uint8_t role;	    /* 0: client of the TLS connection, 1: server */
	uint8_t suite;	    /* id of 3.3; 0 only with SRDMA_LEVEL_NONE */
	uint8_t level;	    /* enum srdma_level */
	uint8_t mode;	    /* enum srdma_mode */
	uint8_t tag_len;    /* bytes, of the suite's */
	uint8_t secret_len; /* 16 or 32, as 3.2 wants it; none: 0 */
	uint32_t window;    /* packet numbers: 64 or 1024 */
	uint32_t mtu;	    /* most payload bytes accepted in a packet */
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t local_eid[SRDMA_EID_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t local_qpn, peer_qpn;
	uint64_t tx_pn, rx_pn; /* first packet numbers of each direction */
	/* Not more than the above; 0: the above. */
	uint64_t rekey_packets, rekey_bytes, rekey_ns;
	uint8_t tx_secret[SRDMA_MAX_SECRET];
	uint8_t rx_secret[SRDMA_MAX_SECRET]; /* not read in a mode with PD */

	/* The caller's; they outlive the session. */
	struct srdma_pdkeys *pd; /* mode with PD: of the own leg */
	uint32_t pd_serial;	 /* that made S; the session holds it too */
	uint8_t shared; /* with PD: tx comes from K_PD too, not tx_secret */
	struct srdma_keycache *cache;	 /* mode with PD: of the worker */
	struct srdma_provider *provider; /* of suites; NULL: OpenSSL */
	struct srdma_cmac *cmac; /* for keys of 16 bytes: scratch, for proofs */
};

/*
 * Make a session; the caller wipes *params. Returns 0, -EINVAL (a field
 * outside the protocol, or missing for the mode), -ENOTSUP (suite, level or
 * mode not in this version), -ENOMEM, -EIO (the provider failed).
 */
int srdma_session_create(struct srdma_session **out,
			 const struct srdma_session_params *params);

/* Wipes the keys. NULL is allowed. */
void srdma_session_destroy(struct srdma_session *s);

/*
 * Seal one packet: spend the next packet number, write the datagram to
 * out (cap >= SRDMA_MAX_PACKET). p as wire.h says for sealing; payload of
 * p->payload_len bytes must not overlap out. p->pn is set, and p->proof where
 * p->access_key is to make it.
 * Returns the datagram's length, -EINVAL (not a legal packet, or a proof in a
 * mode without memory keys),
 * -EKEYEXPIRED (the suite's limit: nothing may be sent any more in this epoch,
 * or only NAK and CLOSE),
 * -EIO (the provider failed; out holds nothing of the payload).
 */
int srdma_session_seal(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *payload, uint8_t *out, size_t cap);

/*
 * Open one datagram: parse, window, tag, then move the window. On success
 * *p holds the fields with pn and the 64-bit request id, and plain (at least
 * mtu bytes, not overlapping data) the payload. On failure plain holds
 * nothing of the datagram. Returns 0 or -(enum srdma_refusal).
 */
int srdma_session_open(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *data, size_t len, uint8_t *plain);

/* What a proof covers is at most this long: the generation, and the associated
 * data of an atomic up to the expiry field (6.1). */
enum {
	SRDMA_CLAIM_MAX = SRDMA_GENERATION_LEN + 68 + SRDMA_BTH_LEN +
			  SRDMA_ATOMIC_ETH_LEN + 16,
};

/*
 * What the proof of *p covers (6.1): *p was opened last, with SRDMA_STH_PROOF.
 * Sets *data, the session's until the next call; returns its length.
 */
size_t srdma_session_claim(const struct srdma_session *s,
			   const struct srdma_packet *p, const uint8_t **data);

/* --- epochs (3.5, rekey.c) --------------------------------------------- */

enum srdma_direction { SRDMA_RX = 1, SRDMA_TX = 2 };

/* The epoch of what is sent, the highest verified of what comes. */
uint32_t srdma_session_epoch(const struct srdma_session *s,
			     enum srdma_direction direction);

/*
 * Before each packet that is sealed: begin the next epoch if that is wanted and
 * may be. now: ns of any monotonic clock; told: the highest packet number that
 * the peer told. 1: it began; 0: nothing to do; -EAGAIN: it may not yet, ask
 * the peer; -ENOMEM, -EIO: the provider failed.
 */
int srdma_session_advance(struct srdma_session *s, uint64_t now, uint64_t told);

/* 1: who told this number has verified a packet of the epoch that is sent. */
int srdma_session_told(const struct srdma_session *s, uint64_t told);

/*
 * A new secret, of the session's length: the next epoch of what is sent begins
 * with it, or that of what comes may. In a direction whose S comes from K_PD the
 * serial of that instead. -EBUSY: one waits already; -EINVAL: level none, or
 * policy shared.
 */
int srdma_session_renew(struct srdma_session *s, enum srdma_direction direction,
			const uint8_t *secret, uint32_t pd_serial);
/* 1: one waits for the next epoch. */
int srdma_session_renewing(const struct srdma_session *s,
			   enum srdma_direction direction);

/* What is late does not come any more: forget the peer's epoch before. */
void srdma_session_settle(struct srdma_session *s);

/* Bytes of the secret of a direction; 0: level none. */
uint8_t srdma_session_secret_len(const struct srdma_session *s);

/* 1: the session receives by an S of K_PD, that of this flow and length. */
int srdma_session_receives(const struct srdma_session *s,
			   const struct srdma_pdkeys_flow *flow,
			   uint8_t secret_len);

/*
 * What this session itself stores, in bytes, to count what Table 3 of the paper
 * counts. key: a key and the secret S per direction, more while epochs change;
 * with mode PD the S of what it sends (policy owner) or nothing. nonce: the packet number of each direction and the
 * IVs of stored keys. window: the bits of numbers seen. A key counts once,
 * not the schedule that its context makes of it; what a cache keeps is not
 * the session's.
 */
struct srdma_session_state {
	uint32_t key_bytes, nonce_bytes, window_bytes;
};
void srdma_session_state(const struct srdma_session *s,
			 struct srdma_session_state *state);

/* Highest verified packet number; first - 1 before the first. */
uint64_t srdma_session_highest(const struct srdma_session *s);

/* Next packet number that seal will spend. */
uint64_t srdma_session_next_pn(const struct srdma_session *s);

/* Packets of a live epoch that failed their tag, for the forgery limit: of the
 * epoch that has most of them. */
uint64_t srdma_session_forgeries(const struct srdma_session *s);

/*
 * 1 once the forgery limit (that of 3.3 unless lowered) is reached; from then on
 * open refuses everything with SRDMA_REFUSED_QP_STATE.
 */
int srdma_session_spent(const struct srdma_session *s);

/*
 * Lower the limits, each of one epoch, for tests. The next one is wanted after
 * half of the packets then, if not before. Returns 0, or -EINVAL for a raise.
 */
int srdma_session_limit(struct srdma_session *s, uint64_t packets,
			uint64_t forgeries);

/* 1: both are protected, and of the same peer. */
int srdma_session_same_peer(const struct srdma_session *a,
			    const struct srdma_session *b);

/*
 * A packet in one of these directions (enum srdma_direction) is about to come:
 * ask for what it takes of the session, then, when that is there, for the keys.
 */
void srdma_session_ahead(const struct srdma_session *s, int directions);
void srdma_session_ahead_keys(const struct srdma_session *s, int directions);

/* Bytes that a sealed packet has more than its payload, at the most. */
uint32_t srdma_session_overhead(const struct srdma_session *s);

#endif
