/*
 * Messages of the control socket (docs/local-interface.md 3): kinds, body
 * layouts, encoding and decoding of requests and responses. No I/O: the caller
 * passes the file descriptors that accompany a message.
 *
 * The decoder accepts any input: it reads only [in, in + len), and each
 * accepted message has exactly one encoding. The relay checks the values.
 */
#ifndef SRDMA_CTL_H
#define SRDMA_CTL_H

#include <stddef.h>
#include <stdint.h>

#include "ledger/ledger.h"
#include "memory/capability.h"
#include "relay/relay.h"

enum srdma_ctl_limits {
	SRDMA_CTL_VERSION = 1,
	SRDMA_CTL_HEADER_LEN = 12,
	SRDMA_CTL_MAX = 8192, /* bytes, header and body */
	SRDMA_CTL_MAX_BODY = SRDMA_CTL_MAX - SRDMA_CTL_HEADER_LEN,
	SRDMA_CTL_MAX_COUNTERS = SRDMA_CTL_MAX_BODY / 8,
	SRDMA_CTL_SUITES_LEN = 32,
	SRDMA_CTL_GID_LEN = 16,
	SRDMA_CTL_PROCESSES = 64, /* most worker processes of a worker */
	SRDMA_CTL_IDENTITY_LEN = 256,
	SRDMA_CTL_TOKEN_MIN = SRDMA_CAPABILITY_HEAD + SRDMA_MEMKEY_LEN +
			      SRDMA_CAPABILITY_CHECK,
	/* ADOPT: qpn 4, index 1, peer qpn 3, peer eid 16 */
	SRDMA_CTL_KEPT_QP_LEN = 24,
};

enum srdma_ctl_kind {
	SRDMA_CTL_HELLO = 1,
	SRDMA_CTL_OPEN = 2,
	SRDMA_CTL_ATTACH = 3,
	SRDMA_CTL_REG_MR = 4,
	SRDMA_CTL_DEREG_MR = 5,
	SRDMA_CTL_INIT = 6,
	SRDMA_CTL_KEYS = 7,
	SRDMA_CTL_WAIT = 8,
	SRDMA_CTL_DESTROY = 9,
	SRDMA_CTL_STATS = 10,
	SRDMA_CTL_KEY = 11,
	SRDMA_CTL_CAP = 12,
	SRDMA_CTL_INSTALL = 13,
	SRDMA_CTL_UNINSTALL = 14,
	SRDMA_CTL_REVOKE = 15,
	SRDMA_CTL_ROTATE = 16,
	SRDMA_CTL_REKEY = 17,
	SRDMA_CTL_EXPIRE = 18,
	SRDMA_CTL_END = 19,
	SRDMA_CTL_LIFE = 20,
	SRDMA_CTL_AGENT = 21,
	SRDMA_CTL_PROVE = 22,
	SRDMA_CTL_KEEP = 23,
	SRDMA_CTL_ADOPT = 24,
	SRDMA_CTL_RESTRICT = 25,
	SRDMA_CTL_QUOTA = 26,
	SRDMA_CTL_USAGE = 27,
	SRDMA_CTL_QPS = 28,
	SRDMA_CTL_WITHDRAW = 29,
	SRDMA_CTL_MODIFY = 30,
	SRDMA_CTL_SHARE = 31,
	SRDMA_CTL_RESET = 32,
	SRDMA_CTL_REINIT = 33,
	SRDMA_CTL_REPLACE = 34,
	SRDMA_CTL_KINDS, /* number of kinds + 1 */
};

enum srdma_ctl_side { SRDMA_CTL_REQUEST = 0, SRDMA_CTL_ANSWER = 1 };

enum { SRDMA_CTL_ALLOW_UNPROTECTED = 1 }; /* flag in the response to HELLO */
enum { SRDMA_CTL_SHARED = 1 };		  /* OPEN: trust group */

struct srdma_ctl_hello_answer {
	uint32_t version;
	uint32_t flags;
	uint32_t host_kind; /* enum srdma_port_kind */
	uint32_t pid;
	char host_device[SRDMA_NAME_LEN];
	char wire[SRDMA_NAME_LEN];
	char name[SRDMA_NAME_LEN];
	uint8_t suites[SRDMA_CTL_SUITES_LEN]; /* suite ids, padded with zeros */
	/* Number of worker processes, and the index from 0 of the one that owns
	 * this control socket. */
	uint32_t threads;
	uint32_t thread;
	uint8_t gid[SRDMA_CTL_GID_LEN]; /* of the worker; zeros: none */
};

struct srdma_ctl_open {
	uint32_t ring;
	uint32_t flags;
};

struct srdma_ctl_open_answer {
	uint32_t leg;
	uint8_t token[SRDMA_TOKEN_LEN];
	char address[SRDMA_NAME_LEN]; /* verbs: of the host leg; else "" */
};

struct srdma_ctl_attach_answer {
	uint32_t leg;
	uint32_t user;		      /* that connected the opener's socket */
	char account[SRDMA_NAME_LEN]; /* "": the opener is not restricted */
};

struct srdma_ctl_reg_mr {
	uint32_t leg;
	struct srdma_mr_params mr; /* region.fd is passed beside the message */
	char identity[SRDMA_CTL_IDENTITY_LEN]; /* of its scope, a URI, or "" */
};

struct srdma_ctl_key_of_leg {
	uint32_t leg;
	uint32_t key;
};

struct srdma_ctl_replace {
	uint32_t leg;
	uint32_t key, other; /* `other` gets `key` */
};

struct srdma_ctl_init {
	uint32_t leg;
	struct srdma_qp_params qp;
};

struct srdma_ctl_init_answer {
	struct srdma_qp_info qp;
	char wire[SRDMA_NAME_LEN];
	uint32_t records; /* REINIT: written on the leg, modulo 2^32 */
};

struct srdma_ctl_reset {
	uint32_t qpn;
	uint32_t posted; /* descriptors posted on the leg, modulo 2^32 */
};

struct srdma_ctl_reinit {
	uint32_t qpn;
	struct srdma_qp_params qp;
};

struct srdma_ctl_keys {
	struct srdma_qp_keys qp;
	char identity[SRDMA_CTL_IDENTITY_LEN]; /* of the peer, a URI */
};

struct srdma_ctl_end {
	uint32_t qpn;
	uint32_t reason; /* enum srdma_reason */
};

struct srdma_ctl_share {
	uint32_t qpn;
	uint32_t holder; /* QPN */
};

struct srdma_ctl_agent {
	uint32_t flags; /* SRDMA_CTL_AGENT_ATTACHED */
};

/* The connection uses only the legs that it attached to. */
enum { SRDMA_CTL_AGENT_ATTACHED = 1 };

/* Limits of an account, and the connection that is charged to it. */
struct srdma_ctl_restrict {
	uint32_t connections, legs, qps, regions;
	uint64_t bytes; /* of registered memory */
	char account[SRDMA_NAME_LEN];
	uint32_t keep; /* s for which its legs outlive the connection */
	char group[SRDMA_NAME_LEN]; /* "": none */
};

/* Places of resources in QUOTA and USAGE; those from SRDMA_RESOURCES on are
 * zero in USAGE, and give nothing in QUOTA. */
enum {
	SRDMA_CTL_RESOURCES = 16,
	SRDMA_CTL_QUOTA_LEN = 16, /* minimum 8, limit 8 */
	SRDMA_CTL_USAGE_LEN = 32, /* used 8, minimum 8, limit 8, refused 8 */
};
enum { SRDMA_CTL_QUOTA_LAST = 1 }; /* flag of QUOTA */

struct srdma_ctl_quota {
	uint32_t kind; /* enum srdma_account_kind */
	uint32_t flags, revision, idle;
	char name[SRDMA_ACCOUNT_NAME_LEN];
	uint8_t quotas[SRDMA_CTL_RESOURCES * SRDMA_CTL_QUOTA_LEN];
};

struct srdma_ctl_usage_answer {
	uint64_t serial;
	uint32_t kind, idle;
	char name[SRDMA_ACCOUNT_NAME_LEN];
	char group[SRDMA_ACCOUNT_NAME_LEN]; /* "": none */
	uint8_t usages[SRDMA_CTL_RESOURCES * SRDMA_CTL_USAGE_LEN];
	struct srdma_account_counts counts;
};

struct srdma_ctl_qps_answer {
	uint64_t next;
	uint32_t qpn, leg, state, reason;
	uint64_t idle; /* ns */
	char identity[SRDMA_ACCOUNT_NAME_LEN];
	struct srdma_account_counts counts;
};

enum {
	SRDMA_CTL_KEEP_LEGS_MAX = 300,
	/* keep of the reference's agents; its libraries try to come back for as
	 * long */
	SRDMA_CTL_KEEP_LEGS = 30,
};

struct srdma_ctl_life {
	uint32_t qpn;
	uint32_t seconds;
};

struct srdma_ctl_wait_answer {
	uint32_t state; /* enum srdma_qp_state: RTS or ERR */
	uint32_t reason;
};

/* A capability token (6.2) as bytes that have not been decoded. */
struct srdma_ctl_token {
	uint32_t len; /* SRDMA_CTL_TOKEN_MIN..SRDMA_CAPABILITY_MAX */
	uint8_t bytes[SRDMA_CAPABILITY_MAX];
};

struct srdma_ctl_cap {
	uint32_t leg;
	struct srdma_cap_params cap;
};

struct srdma_ctl_install {
	uint32_t leg;
	struct srdma_ctl_token token;
};

struct srdma_ctl_uninstall {
	uint32_t leg;
	uint32_t handle;
};

struct srdma_ctl_revoke {
	uint32_t leg;
	struct srdma_revoke_params range;
};

struct srdma_ctl_rotate {
	uint32_t leg;
	uint32_t age; /* seconds */
};

struct srdma_ctl_rotate_answer {
	uint32_t serial; /* of the leg's K_PD */
	uint32_t behind; /* keys that depend on the previous K_PD */
};

struct srdma_ctl_keep {
	uint32_t n, len;
	uint8_t qpns[SRDMA_KEEP_QPS * 4]; /* big-endian */
	uint8_t data[SRDMA_KEEP_MAX];
};

struct srdma_ctl_adopt_answer {
	uint64_t serial;
	uint32_t leg;
	uint32_t n, len;
	uint8_t qps[SRDMA_KEEP_QPS * SRDMA_CTL_KEPT_QP_LEN];
	uint8_t data[SRDMA_KEEP_MAX];
};

struct srdma_ctl_stats_answer {
	uint32_t count;
	uint64_t counter[SRDMA_CTL_MAX_COUNTERS];
};

/*
 * One message; kind, side and status select the member of the union. Some
 * messages hold secrets (KEYS, REKEY, INSTALL; responses to OPEN, KEY and CAP):
 * the function that decodes or fills in such a message wipes it.
 */
struct srdma_ctl_msg {
	uint16_t kind; /* enum srdma_ctl_kind */
	uint32_t tag;
	uint32_t status; /* responses: 0, or an errno with text */
	union {
		uint32_t version; /* HELLO */
		struct srdma_ctl_hello_answer hello;
		struct srdma_ctl_open open;
		struct srdma_ctl_open_answer opened;
		uint8_t token[SRDMA_TOKEN_LEN]; /* ATTACH */
		struct srdma_ctl_attach_answer attached;
		struct srdma_ctl_reg_mr reg_mr;
		uint32_t key;			      /* response to REG_MR */
		struct srdma_ctl_key_of_leg dereg_mr; /* WITHDRAW too */
		struct srdma_ctl_replace replace;
		struct srdma_ctl_init init;
		struct srdma_ctl_init_answer qp; /* REINIT too */
		struct srdma_ctl_reset reset;
		struct srdma_ctl_reinit reinit;
		struct srdma_ctl_keys keys;
		uint32_t qpn; /* WAIT, DESTROY, EXPIRE */
		struct srdma_ctl_wait_answer wait;
		struct srdma_ctl_end end;
		struct srdma_ctl_life life;
		struct srdma_qp_change modify;
		struct srdma_ctl_share share;
		struct srdma_ctl_agent agent;
		struct srdma_ctl_restrict restrict_;
		struct srdma_ctl_stats_answer stats;
		struct srdma_qp_secret secret; /* KEY */
		struct srdma_qp_secret_answer secret_answer;
		struct srdma_ctl_cap cap;
		struct srdma_ctl_token capability; /* response to CAP */
		struct srdma_ctl_install install;
		uint32_t handle; /* response to INSTALL */
		struct srdma_ctl_uninstall uninstall;
		struct srdma_ctl_revoke revoke;
		struct srdma_ctl_rotate rotate;
		struct srdma_ctl_rotate_answer rotated;
		struct srdma_qp_rekey rekey;
		struct srdma_qp_prove prove;
		struct srdma_qp_prove_answer proved;
		struct srdma_ctl_keep keep;
		uint64_t after; /* ADOPT, USAGE, QPS */
		struct srdma_ctl_quota quota;
		struct srdma_ctl_usage_answer usage;
		struct srdma_ctl_qps_answer qps;
		struct srdma_ctl_adopt_answer adopted;
		char text[SRDMA_CTL_MAX_BODY + 1]; /* if status is not 0 */
	};
};

/* "REG_MR"; NULL for an unknown kind. */
const char *srdma_ctl_name(uint32_t kind);

struct srdma_ctl_span {
	unsigned least, most;
};

/* Shortest and longest body of a kind, bytes; both 0 for an unknown kind. */
struct srdma_ctl_span srdma_ctl_body_len(uint32_t kind,
					 enum srdma_ctl_side side);

/*
 * Decodes only the header into kind, tag and status. 0, or -EPROTO: shorter
 * than a header, longer than SRDMA_CTL_MAX, or the zero field is not zero.
 */
int srdma_ctl_peek(struct srdma_ctl_msg *m, const uint8_t *in, size_t len);

/*
 * Decodes a complete message. 0; -EPROTO: illegal header or body (length, bytes
 * that must be zero, text that is not UTF-8, a request with a status);
 * -EOPNOTSUPP: unknown kind (an error response may repeat an unknown kind).
 */
int srdma_ctl_decode(struct srdma_ctl_msg *m, enum srdma_ctl_side side,
		     const uint8_t *in, size_t len);

/*
 * Encodes a message. Returns its length, or -EINVAL: unknown kind, text that is
 * not UTF-8 or without a terminating zero, too many counters, illegal token
 * length, or a request with a status.
 */
int srdma_ctl_encode(uint8_t out[SRDMA_CTL_MAX], enum srdma_ctl_side side,
		     const struct srdma_ctl_msg *m);

#endif
