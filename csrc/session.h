/*
 * A session: both directions of one SRC QP's protection (docs/protocol.md
 * 3, 4). It owns keys, packet numbers and windows; it knows nothing of
 * memory, ports or time. One thread at a time.
 */
#ifndef SRDMA_SESSION_H
#define SRDMA_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "pdkeys.h"
#include "wire.h"

struct srdma_session;

enum srdma_level {
	SRDMA_LEVEL_NONE = 0,
	SRDMA_LEVEL_HEADER = 1,
	SRDMA_LEVEL_PACKET = 2,
	SRDMA_LEVEL_AEAD = 3,
};

/* Key mode: bits. Proofs (SRDMA_MODE_MEM) are made here, judged elsewhere. */
enum srdma_mode {
	SRDMA_MODE_BASIC = 0,
	SRDMA_MODE_PD = 1,  /* secrets derived from K_PD (3.4) */
	SRDMA_MODE_MEM = 2, /* packets may carry memory proofs (6.1) */
	SRDMA_MODES = 4,
};

struct srdma_cmac;
struct srdma_keycache;

enum { SRDMA_MAX_SECRET = 32 };

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
	uint8_t tx_secret[SRDMA_MAX_SECRET];
	uint8_t rx_secret[SRDMA_MAX_SECRET]; /* not read in a mode with PD */

	/* The caller's; they outlive the session. */
	const struct srdma_pdkeys *pd; /* mode with PD: of the own leg */
	uint8_t shared; /* with PD: tx comes from K_PD too, not tx_secret */
	struct srdma_keycache *cache; /* mode with PD: of the worker */
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
 * -EKEYEXPIRED (the suite's limit: nothing may be sent any more),
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

/*
 * What this session itself stores, in bytes, to count what Table 3 of the paper
 * counts. key: a key per direction, with mode PD the secret S of what it sends
 * (policy owner) or nothing. nonce: the packet number of each direction and the
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

/* Packets that failed their tag since the start, for the forgery limit. */
uint64_t srdma_session_forgeries(const struct srdma_session *s);

/*
 * 1 once the forgery limit (that of 3.3 unless lowered) is reached; from then on
 * open refuses everything with SRDMA_REFUSED_QP_STATE.
 */
int srdma_session_spent(const struct srdma_session *s);

/*
 * Lower the limits, counted from the session's start, for tests and for
 * operators who want fewer packets per key than the suite permits. Returns
 * 0, or -EINVAL for a raise.
 */
int srdma_session_limit(struct srdma_session *s, uint64_t packets,
			uint64_t forgeries);

/* Bytes that a sealed packet has more than its payload, at the most. */
uint32_t srdma_session_overhead(const struct srdma_session *s);

#endif
