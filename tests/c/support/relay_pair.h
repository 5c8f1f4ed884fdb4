/*
 * Fixture of the relay tests: two relays connected by a wire in memory, each
 * with a leg and QPs. The test runs their turns. Side 0 is the client, side 1 the server.
 */
#ifndef RELAY_PAIR_H
#define RELAY_PAIR_H

#include "port/sim/port_mem.h"
#include "relay/relay.h"

enum {
	PAIR_MEMORY = 4 << 20,
	PAIR_RING = 1024,
	PAIR_QPS = 4,
	PAIR_MOST = 20, /* QPs of most tests */
	PAIR_ROOM = 96, /* QPs at most */
};

struct side {
	struct srdma_relay *relay;
	struct srdma_port *host, *wire;
	struct srdma_leg *leg;
	struct srdma_conn *conn; /* connection of the leg */
	struct srdma_qp_info qp[PAIR_ROOM];
	struct srdma_qp_secret_answer
		secret[PAIR_ROOM]; /* response to KEY, key modes with PD */
	uint8_t *memory;	   /* registered under key */
	uint32_t key;
	uint32_t consumed; /* completion records */
	uint64_t seed;	   /* of the relay's random numbers */
};

struct pair {
	struct side side[2];
	uint64_t now; /* clock of both relays, ns */
	struct srdma_mem_wire_params wire;
	struct srdma_mem_host_params host[2];
	uint8_t suite, level, tag_len;
	uint8_t mode, shared; /* key mode; 1: one K_PD for the trust group */
	uint8_t life;	      /* number that varies the generation */
	uint8_t identity;     /* number that varies the identity of side 0 */
	char uri[2][32];      /* identity of each side, of the last KEYS */
	uint32_t mtu, window, reads, timeout_ms, depth, key_cache;
	uint64_t rekey_packets; /* 0: default */
	uint32_t qps;		/* 0: default */
	uint32_t processes, process;
	uint64_t table_memory; /* 0: no limit */
	uint32_t memory, ring; /* bytes and records, each side */
	int allow_unprotected;
	struct srdma_provider *provider; /* NULL: OpenSSL */
};

/* A region in a side's memory. */
struct pair_region {
	uint64_t at, len;
	uint32_t access;
	uint8_t log2_block, depth; /* proof regions only */
};

/*
 * Defaults: aes-128-gcm, key mode basic, mtu 4096, window 512, reads 16,
 * timeout 30 s, depth 64, no key cache, PAIR_MEMORY, PAIR_RING.
 */
void pair_defaults(struct pair *p);
/* Opens two relays, each with a leg and a region with all rights, without QPs. */
void pair_open(struct pair *p);
/* The same with these wire ports. */
void pair_open_on(struct pair *p, struct srdma_port *a, struct srdma_port *b);
/* Opens the relay of one side on these ports, without a leg. */
void pair_open_relay(struct pair *p, int side, struct srdma_port *host,
		     struct srdma_port *wire);
/* Opens one side, which was not open or was destroyed. */
void pair_open_side(struct pair *p, int side, struct srdma_port *wire);
/* Opens QP i on both sides with keys and runs until both are RTS. */
void pair_connect(struct pair *p, int i);
/* The two steps of pair_connect: INIT (and KEY), then KEYS at both sides. */
void pair_init_qp(struct pair *p, int i);
void pair_meet(struct pair *p, int i);
/* The parameters of KEY and KEYS. */
void pair_key(struct pair *p, int side, int i, struct srdma_qp_secret *k);
void pair_keys(struct pair *p, int side, int i, struct srdma_qp_keys *k);
/* Destroys QP i on both sides. */
void pair_destroy_qp(struct pair *p, int i);
void pair_close(struct pair *p);

/* Registers a region of a side's memory. Returns its key. */
uint32_t pair_register(struct pair *p, int side, struct pair_region region);
/* Makes a capability of side's region. Returns the length of its token. */
size_t pair_token(struct pair *p, int side, struct srdma_cap_params params,
		  uint8_t token[SRDMA_CAPABILITY_MAX]);
/*
 * Makes a capability of the other side's region and installs it on this side.
 * Returns its handle.
 */
uint32_t pair_install(struct pair *p, int side, struct srdma_cap_params params);
/* The identity (holder) that KEYS gives the other side for this side. */
void pair_holder(int side, uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN]);

/* Runs n turns of both relays, 1 us apart. */
void pair_run(struct pair *p, int n);
/* Runs turns until both relays are idle, at most 10,000. */
void pair_settle(struct pair *p);
/* Advances the clock by ms, then settles. */
void pair_wait_ms(struct pair *p, uint64_t ms);

/*
 * Posts a descriptor. Fields of d that are 0 get defaults: QP 0, the keys of
 * the two regions. Sets SIGNALED unless id has bit 63. payload: NULL, inline
 * data, or, if d.sges is not 0, an array of struct srdma_sge; a key of 0 is that
 * of the side's region.
 */
void pair_post(struct pair *p, int side, struct srdma_desc d,
	       const void *payload);
/* Takes the next record of a side. Returns 1, or 0 if there is none. */
int pair_record(struct pair *p, int side, struct srdma_record *r);
/* Asserts that the next record of the side has this id and reason. */
#define pair_expect(p, side, id, reason)                                       \
	pair_expect_at(p, side, id, reason, __FILE__, __LINE__)
void pair_expect_at(struct pair *p, int side, uint64_t id, uint32_t reason,
		    const char *file, int line);
/* Asserts that the side has no further record. */
void pair_expect_none(struct pair *p, int side);
/* Counter of this refusal, enum srdma_refusal. */
uint64_t pair_refused(struct pair *p, int side, unsigned refusal);
/* State of QP i, enum srdma_qp_state; reason: NULL, or filled in. */
uint32_t pair_state(struct pair *p, int side, int i, uint32_t *reason);

#endif
