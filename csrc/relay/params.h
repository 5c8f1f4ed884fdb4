/*
 * Parameters and results of the relay's control calls, as the control socket
 * carries them (docs/local-interface.md 3, 5). ctl.h encodes these structures,
 * relay.h uses them.
 */
#ifndef SRDMA_RELAY_PARAMS_H
#define SRDMA_RELAY_PARAMS_H

#include <stdint.h>

#include "ledger/ledger.h"
#include "memory/capability.h"
#include "memory/captable.h"
#include "session/pdkeys.h"
#include "port/port.h"
#include "qp/state.h"
#include "session/session.h"
#include "wire/wire.h"

/* Limits (12). A QP's own limits are negotiated and are not above these. */
enum srdma_relay_limits {
	SRDMA_DEFAULT_PING_MS = 5000,
	SRDMA_DEFAULT_SILENCE_MS = 15000,
	SRDMA_MAX_CONNECTIONS = 4096, /* control connections */
	SRDMA_MAX_LEGS = 2048,
	SRDMA_DEFAULT_QPS = 4096,
	SRDMA_MAX_QPS = 1 << 20,
	/* of all processes: half the QPNs */
	SRDMA_MAX_WORKER_QPS = (SRDMA_MAX_QPN + 1) / 2,
	SRDMA_MAX_MRS = 4096,	/* of a leg */
	SRDMA_MAX_DEPTH = 4096, /* of an SQ or RQ */
	SRDMA_MAX_WINDOW = 1024,
	SRDMA_MAX_READS = 128,
	SRDMA_MIN_RING = 64,
	SRDMA_MAX_RING = 65536,
	SRDMA_MAX_TIMEOUT_MS = 600000,
	SRDMA_MAX_KEY_CACHE = 65536,
	SRDMA_MAX_SILENCE_MS = 3600000,
	SRDMA_MAX_LIFE_S = INT32_MAX,
	SRDMA_MAX_ADDRESSES = 1024, /* source addresses kept (UDP) */
	SRDMA_MAX_HOMES = 512, /* addresses that servers connect to (UDP) */
};

struct srdma_mr_params {
	struct srdma_region_params region;
	uint32_t scope_qpn;			       /* 0: any QP of the PD */
	uint8_t scope_holder[SRDMA_MEMKEY_HOLDER_LEN]; /* zeros: any identity */
	/* The region's tree (6.1) with SRDMA_ACCESS_PROOF; else both are 0. */
	uint8_t log2_block, depth;
	/* Address in the host minus address in requests, modulo 2^64. */
	uint64_t bias;
};

/* CAP. Offsets are bytes from the start of the region. */
struct srdma_cap_params {
	uint32_t key;
	uint64_t offset, length;
	uint8_t rights; /* enum srdma_memkey_right */
	struct srdma_memkey_bearer bearer;
};

struct srdma_revoke_params {
	uint32_t key;
	uint64_t offset, length; /* 0, 0: the whole region */
};

struct srdma_qp_params {
	uint32_t sq, rq;     /* depths, 1..4096 */
	uint32_t timeout_ms; /* time limit of a request, ms; 0: 30,000 */
	uint32_t mtu;	     /* 0: the relay's */
};

/* A new QP's facts for its peer: END and random of the key exchange (8.2). */
struct srdma_qp_info {
	uint32_t qpn;
	uint8_t eid[SRDMA_EID_LEN];
	uint64_t pn;
	uint32_t mtu, window, reads;
	uint8_t random[32];
};

enum srdma_qp_field {
	SRDMA_QP_FIELD_ACCESS = 1,
	SRDMA_QP_FIELD_TIMEOUT = 2,
	SRDMA_QP_FIELD_GRACE = 4,
};

/* MODIFY. Fields that are not named have no meaning. */
struct srdma_qp_change {
	uint32_t qpn;
	uint32_t fields;     /* enum srdma_qp_field, or-ed */
	uint32_t access;     /* remote rights of enum srdma_access, or-ed */
	uint32_t timeout_ms; /* of later requests; SRDMA_NO_TIMEOUT */
	uint32_t grace_ms;   /* of requests that the peer's end leaves */
};
enum { SRDMA_NO_TIMEOUT = 0xffffffff };

/* KEY. */
struct srdma_qp_secret {
	uint32_t qpn;
	uint8_t secret_len; /* 16 or 32 */
	uint8_t group;	    /* 1: return the group's K_PD too */
	uint8_t generation[SRDMA_GENERATION_LEN];
	uint8_t peer_eid[SRDMA_EID_LEN];
	uint32_t peer_qpn;
};
/* The caller wipes it. */
struct srdma_qp_secret_answer {
	uint8_t secret[SRDMA_MAX_SECRET];	/* with which the peer seals */
	uint8_t group_key[SRDMA_GROUP_KEY_LEN]; /* K_PD, or zero */
};

/* KEYS. The caller wipes it. */
struct srdma_qp_keys {
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
	const char *peer_identity; /* the same as text; NULL: none */
};

/* Values of srdma_qp_rekey.direction besides enum srdma_direction. */
enum { SRDMA_REKEY_QUERY = 0, SRDMA_REKEY_WITHDRAW = 3 };

/* REKEY. The caller wipes it. */
struct srdma_qp_rekey {
	uint32_t qpn;
	uint8_t direction; /* enum srdma_direction, or one of the above */
	uint8_t secret_len;
	uint8_t secret[SRDMA_MAX_SECRET]; /* mode with PD, rx: zero */
};

/* PROVE. */
struct srdma_qp_prove {
	uint32_t qpn;
	uint8_t check; /* 0: make the proof of this end; 1: check the peer's */
	uint8_t context[SRDMA_PROVE_CONTEXT_LEN];
	uint8_t proof[SRDMA_RENEWAL_LEN]; /* of the peer; check 0: zero */
};
struct srdma_qp_prove_answer {
	uint32_t tx, rx; /* new secrets given to each direction */
	uint8_t proof[SRDMA_RENEWAL_LEN]; /* of this end; check 1: zero */
};

/* QPS. */
struct srdma_qp_report {
	uint32_t qpn;
	uint32_t state;	      /* enum srdma_qp_state */
	uint32_t reason;      /* in ERR */
	uint64_t idle;	      /* time since it last worked, ns */
	const char *identity; /* of the peer; "" before KEYS */
	struct srdma_account_counts counts;
};

enum { SRDMA_KEEP_QPS = 256, SRDMA_KEEP_MAX = 1024 };

/* KEEP. Array elements from n and from len on are zero. */
struct srdma_keep {
	uint32_t n, len;
	uint32_t qpn[SRDMA_KEEP_QPS]; /* 0: the QP of this place has ended */
	uint8_t data[SRDMA_KEEP_MAX];
};

/* ADOPT. */
struct srdma_kept_qp {
	uint32_t qpn;
	uint32_t index; /* its place in KEEP */
	uint32_t peer_qpn;
	uint8_t peer_eid[SRDMA_EID_LEN];
};
struct srdma_kept {
	uint64_t serial; /* from 1 */
	uint32_t leg;
	uint32_t n, len;
	struct srdma_kept_qp qp[SRDMA_KEEP_QPS];
	uint8_t data[SRDMA_KEEP_MAX];
};

#endif
