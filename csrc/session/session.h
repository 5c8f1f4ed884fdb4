/*
 * A session: protection of both directions of one SRC QP (docs/protocol.md 3,
 * 4). It owns keys, packet numbers and replay windows, and has no access to
 * memory regions, ports or clocks. One thread at a time.
 *
 * Numbers in comments are sections of docs/protocol.md.
 */
#ifndef SRDMA_SESSION_H
#define SRDMA_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/time.h"
#include "session/pdkeys.h"
#include "srdma/types.h"
#include "wire/wire.h"

struct srdma_session;

struct srdma_cmac;
struct srdma_keycache;
struct srdma_provider;

enum {
	SRDMA_MAX_SECRET = 32,
	SRDMA_RENEWAL_LEN = 32, /* renewal key, and a proof made with it */
	SRDMA_PROVE_CONTEXT_LEN = 32,
};

/* Upper limits of one epoch: a rekey is due at the latest after this number of
 * packets, bytes of payload, or ns since the epoch's first packet (3.5). */
#define SRDMA_REKEY_PACKETS (UINT64_C(1) << 24)
#define SRDMA_REKEY_BYTES   (UINT64_C(1) << 36)
#define SRDMA_REKEY_NS	    (60 * SRDMA_SECOND)

struct srdma_session_params {
	uint8_t role;  /* 0: client of the TLS connection, 1: server */
	uint8_t suite; /* id of 3.3; 0 with SRDMA_LEVEL_NONE only */
	uint8_t level; /* enum srdma_level */
	/* enum srdma_mode. With SRDMA_MODE_MEM the session seals proofs;
	 * memguard.h checks them. */
	uint8_t mode;
	uint8_t tag_len;    /* bytes; allowed by the suite */
	uint8_t secret_len; /* 16 or 32 by suite (3.2); 0: level none */
	uint32_t window;    /* replay window, packet numbers: 64 or 1024 */
	uint32_t mtu;	    /* largest payload accepted, bytes */
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t local_eid[SRDMA_EID_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t local_qpn, peer_qpn;
	uint64_t tx_pn, rx_pn; /* first packet number per direction */
	/* Limits of an epoch, at most SRDMA_REKEY_*; 0: SRDMA_REKEY_*. */
	uint64_t rekey_packets, rekey_bytes, rekey_ns;
	uint8_t tx_secret[SRDMA_MAX_SECRET];
	uint8_t rx_secret[SRDMA_MAX_SECRET]; /* unused in a mode with PD */

	uint32_t rx_epoch; /* observer.c: the epoch of rx_secret; else 0 */

	/* Borrowed: these outlive the session. */
	/* Mode with PD: K_PD of the local leg. NULL: an observer, for which S is
	 * given. */
	struct srdma_pdkeys *pd;
	uint32_t pd_serial; /* its K_PD; the session is a user */
	uint8_t shared; /* with PD: 1 if S of TX is derived from K_PD as well */
	struct srdma_keycache *cache;	 /* mode with PD: cache of the worker */
	struct srdma_provider *provider; /* NULL: OpenSSL */
	struct srdma_cmac *cmac;	 /* scratch for proofs, 16-byte keys */
};

/*
 * Creates a session. The caller wipes *params.
 * Returns 0, -EINVAL (a field is out of range, or missing for the mode),
 * -ENOTSUP (suite, level or mode not supported in this version), -ENOMEM, -EIO
 * (the provider failed).
 */
int srdma_session_create(struct srdma_session **out,
			 const struct srdma_session_params *params);

/* Wipes the keys and frees the session. NULL is allowed. */
void srdma_session_destroy(struct srdma_session *s);

/*
 * Seals one packet with the next packet number and writes the datagram to out
 * (cap >= SRDMA_MAX_PACKET). *p holds the sealer's fields of wire.h. payload
 * (p->payload_len bytes) must not overlap out. Sets p->pn, and p->proof if
 * p->access_key is set.
 * Returns the length of the datagram;
 * -EINVAL: not a legal packet, or a proof in a mode without memory keys;
 * -EKEYEXPIRED: the packet numbers or the packet limit of the epoch are used
 * up, or only its last packets remain, which are reserved for NAK and CLOSE;
 * -EIO: the provider failed; out is wiped.
 */
int srdma_session_seal(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *payload, uint8_t *out, size_t cap);

/*
 * Opens one datagram: parses it, checks the replay window, verifies the tag,
 * then moves the window. On success *p holds the fields with the full packet
 * number and request id, and plain (at least mtu bytes, no overlap with data)
 * holds the payload. On failure plain holds nothing of the datagram.
 * Returns 0 or -(enum srdma_refusal).
 */
int srdma_session_open(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *data, size_t len, uint8_t *plain);

/* Most bytes that a proof covers (6.1): generation, and associated data of an
 * atomic up to and including the expiry field. */
enum {
	SRDMA_CLAIM_MAX = SRDMA_GENERATION_LEN + 68 + SRDMA_BTH_LEN +
			  SRDMA_ATOMIC_ETH_LEN + 16,
};

/*
 * The bytes that the proof of *p covers (6.1). *p is the last opened packet and
 * has SRDMA_STH_PROOF. Sets *data, valid until the next call on s, and returns
 * its length.
 */
size_t srdma_session_claim(const struct srdma_session *s,
			   const struct srdma_packet *p, const uint8_t **data);

/* --- epochs (3.5), rekey.c ---------------------------------------------- */

enum srdma_direction { SRDMA_RX = 1, SRDMA_TX = 2 };

/* Key epoch: the current one for TX, the highest verified one for RX. */
uint32_t srdma_session_epoch(const struct srdma_session *s,
			     enum srdma_direction direction);

/*
 * Begins the next epoch of TX if that is wanted and permitted. The caller calls
 * it before each seal. now: ns of a monotonic clock; told: highest packet
 * number that the peer acknowledged.
 * Returns 1 if the epoch began, 0 if there was nothing to do, -EAGAIN if a
 * rekey is due but the peer has acknowledged no packet of the current epoch
 * (send flag A), -ENOMEM or -EIO if the provider failed.
 */
int srdma_session_advance(struct srdma_session *s, uint64_t now, uint64_t told);

/* 1 if told, the highest packet number that the peer acknowledged, belongs to
 * the current TX epoch: the next epoch may begin. */
int srdma_session_told(const struct srdma_session *s, uint64_t told);

/*
 * Gives a new secret of the session's secret length for the next epoch of a
 * direction: TX begins its next epoch with it, RX accepts it. If S of the
 * direction comes from K_PD, pd_serial names the K_PD and secret is unused.
 * Returns 0, -EBUSY (one new secret is waiting already), or -EINVAL (level
 * none, or trust group policy shared).
 */
int srdma_session_renew(struct srdma_session *s, enum srdma_direction direction,
			const uint8_t *secret, uint32_t pd_serial);
/* 1 if a new secret waits for the next epoch of the direction. */
int srdma_session_renewing(const struct srdma_session *s,
			   enum srdma_direction direction);

/*
 * Takes back the last new secret of RX, as if it had not been given. If it has
 * been taken up already, only the count changes: with a K_PD that was not
 * rotated the new secret equals the old one (3.5). Returns 0, or -ENODATA: none
 * was given.
 */
int srdma_session_withdraw(struct srdma_session *s);

/* Wipes the key of the previous RX epoch: late packets of it are no longer
 * accepted. */
void srdma_session_settle(struct srdma_session *s);
/* Wipes all RX keys, also those that hold a K_PD. Each further packet is refused,
 * SRDMA_REFUSED_QP_STATE. */
void srdma_session_close_rx(struct srdma_session *s);

/* Secret length in bytes; 0: level none. */
uint8_t srdma_session_secret_len(const struct srdma_session *s);

/* 1 if S of RX is derived from K_PD for this flow and this secret length. */
int srdma_session_receives(const struct srdma_session *s,
			   const struct srdma_pdkeys_flow *flow,
			   uint8_t secret_len);

/* --- renewal key (8.6), renewal.c ---------------------------------------- */

/* Number of new secrets that srdma_session_renew() gave to a direction, without
 * those withdrawn. */
uint32_t srdma_session_renewals(const struct srdma_session *s,
				enum srdma_direction direction);
/* The proof of this end for a context. 0, -ENOKEY (level none, or the renewal
 * key is wiped), -ENOMEM or -EIO; on failure proof is wiped or unchanged. */
int srdma_session_prove(const struct srdma_session *s,
			const uint8_t context[SRDMA_PROVE_CONTEXT_LEN],
			uint8_t proof[SRDMA_RENEWAL_LEN]);
/* Compares a proof of the peer in constant time. 0, -EBADMSG (it differs), or
 * an error of srdma_session_prove(). */
int srdma_session_check_proof(const struct srdma_session *s,
			      const uint8_t context[SRDMA_PROVE_CONTEXT_LEN],
			      const uint8_t proof[SRDMA_RENEWAL_LEN]);
/* Wipes the renewal key: the QP has ended. */
void srdma_session_end_renewal(struct srdma_session *s);

/*
 * Bytes of protection state in the session itself, counted as in Table 3 of the
 * sRDMA paper. key: one key and secret S per direction, more while epochs
 * change; in mode PD only S of TX (policy owner) or nothing (policy shared).
 * nonce: packet numbers of both directions and IVs of stored keys. window: the
 * replay bitmap. A key counts with its own length, not its expanded schedule.
 * The keys in a key cache and the renewal key are not counted.
 */
struct srdma_session_state {
	uint32_t key_bytes, nonce_bytes, window_bytes;
};
void srdma_session_state(const struct srdma_session *s,
			 struct srdma_session_state *state);

/* Endpoint of the peer; NULL: level none. */
const struct srdma_endpoint *srdma_session_peer(const struct srdma_session *s);

/* Highest verified packet number; before the first packet: first number - 1. */
uint64_t srdma_session_highest(const struct srdma_session *s);

/* Next packet number that seal will use. */
uint64_t srdma_session_next_pn(const struct srdma_session *s);

/* Highest number of failed tags among the live RX epochs (forgery limit). */
uint64_t srdma_session_forgeries(const struct srdma_session *s);

/*
 * 1 once the forgery limit (3.3, or srdma_session_limit()) is reached. From
 * then on open refuses every datagram with SRDMA_REFUSED_QP_STATE.
 */
int srdma_session_spent(const struct srdma_session *s);

/*
 * Lowers the limits of packets per epoch and of failed tags, for tests. The
 * next epoch is then wanted after half of the packets at the latest. Returns 0,
 * or -EINVAL if a limit would rise.
 */
int srdma_session_limit(struct srdma_session *s, uint64_t packets,
			uint64_t forgeries);

/* 1 if both sessions are protected and have the same peer endpoint id. */
int srdma_session_same_peer(const struct srdma_session *a,
			    const struct srdma_session *b);

/*
 * Prefetch for a packet in these directions (bits of enum srdma_direction):
 * first the session; then, when it is in the cache, the keys.
 */
void srdma_session_prefetch(const struct srdma_session *s, int directions);
void srdma_session_prefetch_keys(const struct srdma_session *s, int directions);

/* Bytes of a sealed ACKNOWLEDGE with that number of gaps. */
uint32_t srdma_session_control_len(const struct srdma_session *s,
				   uint32_t gaps);

/* Most bytes that a sealed packet has in addition to its payload. */
uint32_t srdma_session_overhead(const struct srdma_session *s);

#endif
