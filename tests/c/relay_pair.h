/*
 * Two relays joined in memory, each with a leg and QPs, driven by hand: what
 * the relay's tests stand on. Side 0 is the client, side 1 the server.
 */
#ifndef RELAY_PAIR_H
#define RELAY_PAIR_H

#include "port/sim/port_mem.h"
#include "relay.h"

enum { PAIR_MEMORY = 4 << 20, PAIR_RING = 1024, PAIR_QPS = 4, PAIR_MOST = 20 };

struct side {
	struct srdma_relay *relay;
	struct srdma_port *host, *wire;
	struct srdma_leg *leg;
	struct srdma_conn *conn; /* of the leg */
	struct srdma_qp_info qp[PAIR_MOST];
	struct srdma_qp_secret_answer
		secret[PAIR_MOST]; /* KEY of a mode with PD */
	uint8_t *memory;	   /* registered under key */
	uint32_t key;
	uint32_t consumed;
	uint64_t seed;
};

struct pair {
	struct side side[2];
	uint64_t now;
	struct srdma_mem_wire_params wire;
	struct srdma_mem_host_params host[2];
	uint8_t suite, level, tag_len;
	uint8_t mode, shared; /* key mode; policy of PD */
	uint8_t life;	      /* makes generations differ */
	uint32_t mtu, window, reads, timeout_ms, depth, key_cache;
	uint64_t rekey_packets; /* 0: the default */
	uint32_t qps;		/* 0: the default */
	uint64_t table_memory;	/* 0: no limit */
	uint32_t memory, ring;	/* of each side */
	int allow_unprotected;
	struct srdma_provider *provider; /* NULL: OpenSSL */
};

/* A region in a side's memory. */
struct pair_region {
	uint64_t at, len;
	uint32_t access;
	uint8_t log2_block, depth; /* with PROOF */
};

/* Defaults: aes-128-gcm, key mode basic, mtu 4096, window 512, reads 16, 30 s,
 * depth 64, no cache of keys, PAIR_MEMORY, PAIR_RING. */
void pair_defaults(struct pair *p);
/* Two relays with a leg and a region (all rights) each, no QP yet. */
void pair_open(struct pair *p);
/* The same on these wire ports. */
void pair_open_on(struct pair *p, struct srdma_port *a, struct srdma_port *b);
/* The relay of one, on these ports, without a leg. */
void pair_open_relay(struct pair *p, int side, struct srdma_port *host,
		     struct srdma_port *wire);
/* One of them, which was not open or was destroyed. */
void pair_open_side(struct pair *p, int side, struct srdma_port *wire);
/* QP i on both sides, with keys, run until both are RTS. */
void pair_connect(struct pair *p, int i);
/* Only INIT with KEY, and KEYS, for tests that need the steps between. */
void pair_init_qp(struct pair *p, int i);
void pair_key(struct pair *p, int side, int i, struct srdma_qp_secret *k);
void pair_keys(struct pair *p, int side, int i, struct srdma_qp_keys *k);
/* Both QPs are gone, at their ends and in the relays. */
void pair_destroy_qp(struct pair *p, int i);
void pair_close(struct pair *p);

uint32_t pair_register(struct pair *p, int side, struct pair_region region);
/* A capability of side's region, as its token. Returns its length. */
size_t pair_token(struct pair *p, int side, struct srdma_cap_params params,
		  uint8_t token[SRDMA_CAPABILITY_MAX]);
/* Make a capability of the other side's region and install it here. */
uint32_t pair_install(struct pair *p, int side, struct srdma_cap_params params);
/* Whom a QP of the other side takes this side for. */
void pair_holder(int side, uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN]);

/* n turns of both relays, 1 us each. */
void pair_run(struct pair *p, int n);
/* Turns until nothing moves, 10,000 at most. */
void pair_settle(struct pair *p);
/* Move the clock. */
void pair_wait_ms(struct pair *p, uint64_t ms);

/* Post a descriptor; what is 0 in d is filled in: qpn of QP 0, keys, SIGNALED
 * unless the id has bit 63. */
void pair_post(struct pair *p, int side, struct srdma_desc d,
	       const void *payload);
/* The next record of a side: 1, or 0 if there is none. */
int pair_record(struct pair *p, int side, struct srdma_record *r);
/* Assert that the next record is this one. */
#define pair_expect(p, side, id, reason)                                       \
	pair_expect_at(p, side, id, reason, __FILE__, __LINE__)
void pair_expect_at(struct pair *p, int side, uint64_t id, uint32_t reason,
		    const char *file, int line);
void pair_expect_none(struct pair *p, int side);
uint64_t pair_refused(struct pair *p, int side, unsigned refusal);
uint32_t pair_state(struct pair *p, int side, int i, uint32_t *reason);

#endif
