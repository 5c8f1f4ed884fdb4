/*
 * A simulation: two relays with two hosts each, driven by one seed in virtual
 * time, under faults. The hosts keep a shadow of their memory and know the
 * allowed results of each work request. Another result ends the test and prints
 * the seed.
 *
 * Each host has an arena of four areas. Each area is a separate region, with
 * gaps between them that no region covers. In some simulations the second area
 * demands memory proofs: only peers access it, by capabilities, and ranges of
 * it are revoked. A range of an area belongs to one work request at a time, so
 * that the allowed values of each byte are known at each DMA.
 *
 * Ended QPs, legs and regions are replaced until the number of packets that the
 * seed chose has been sent.
 */
#ifndef SIM_H
#define SIM_H

#include "port/sim/port_mem.h"
#include "relay/relay.h"

enum {
	SIM_LEGS = 3, /* per side; the last one is opened after the faults */
	SIM_QPS = 4,  /* one more is opened after the faults */
	SIM_AREAS = 4,
	SIM_GAP = 512,
	/* words for atomics at the start of areas 0 and 1 */
	SIM_COUNTERS = 8,
	SIM_RING = 32,	      /* work requests of a queue, at least its depth */
	SIM_MESSAGES = 64,    /* messages of an end whose RECV is outstanding */
	SIM_NONCES = 1 << 16, /* per simulation; a few of them stay unused */
	SIM_CAUGHT = 16,      /* datagrams kept for replay */
	SIM_GRANTS = 3,	  /* capabilities of a leg per leg of the other side */
	SIM_REVOKED = 8,  /* ranges of a leg */
	SIM_GUARDED = 1,  /* index of the area that demands proofs */
	SIM_CLOCK = 1000, /* Unix seconds */
	SIM_FRESH_LEN = 2000,
	SIM_DIGEST_LEN = 32,
};

enum sim_fault {
	SIM_DROP = 1 << 0,
	SIM_FLIP = 1 << 1,
	SIM_SWAP = 1 << 2,
	SIM_HOLD = 1 << 3,
	SIM_DIVERT = 1 << 4, /* the packet arrives on another connection */
	SIM_TWICE = 1 << 5,
	SIM_REPLAY = 1 << 6,
	SIM_LOSSES = (1 << 7) - 1, /* faults from which a QP recovers */
	/* one direction loses all packets from some moment on */
	SIM_BLACKHOLE = 1 << 7,
	SIM_FULL = 1 << 8,	/* the wire has no room */
	SIM_DMA_AGAIN = 1 << 9, /* DMA has no room */
	SIM_DMA_FAIL = 1 << 10,
	SIM_CUT = 1 << 11,
	SIM_KILL = 1 << 12,
	SIM_CLOSE = 1 << 13, /* closes a leg */
	SIM_DEREG = 1 << 14,
	SIM_DESTROY = 1 << 15,
	SIM_LIMIT = 1 << 16, /* a key reaches its packet limit */
	/* forged packets that verify but break the protocol */
	SIM_EVIL = 1 << 17,
	SIM_JUNK = 1 << 18, /* a broken host posts invalid descriptors */
	SIM_LAZY = 1 << 19, /* hosts rarely consume their records */
	SIM_REVOKE = 1 << 20,
	SIM_MOVE = 1 << 21,  /* the source memory changes while it is sent */
	SIM_REKEY = 1 << 22, /* secrets are renewed */
	/* connecting fails, unbound connections arrive */
	SIM_CALLS = 1 << 23,
	SIM_CRASH = 1 << 24, /* a relay dies and a new one replaces it */
	SIM_FAULTS = 25,
};

struct srdma_op;
struct sim;
struct sim_leg;

/* A work request as its host knows it. */
struct sim_wr {
	uint64_t due;
	uint64_t word; /* word of the expected pattern; swap or add operand */
	uint64_t compare;
	uint8_t op, flags;
	uint8_t legal;	  /* 1 if it may succeed */
	uint8_t misnamed; /* 1 if it names memory that was not granted */
	uint8_t shared;	  /* 1 if a later request has the same remote range */
	uint8_t second;	  /* 1 if it is that later request */
	uint8_t moved;	  /* 1 if its source bytes changed while it was sent */
	uint8_t executed; /* 1 once the atomic is executed */
	uint32_t len;
	uint32_t imm;
	uint32_t message; /* message number, for requests that consume a RECV */
	uint32_t capability; /* handle, or 0 */
	uint8_t *local;	     /* in the local arena, or NULL */
	uint8_t *remote;     /* in the peer's arena, or NULL */
	/* counter of an atomic in the peer's arena, or NULL */
	uint8_t *counter;
};

/* [head, tail) are outstanding. Request n is wr[n % SIM_RING]. */
struct sim_queue {
	struct sim_wr wr[SIM_RING];
	uint32_t head, tail, depth;
	uint32_t failed_at; /* first request that failed */
	int failed;	    /* reason of the failure */
	uint8_t failed_op;
};

struct sim_range {
	uint8_t *at;
	uint32_t len;
};

/* Message that a RECV gets. Sender and RECV are posted in either order. */
struct sim_message {
	uint64_t word;
	uint32_t len, imm;
	uint8_t op, legal, moved;
};

struct sim_end {
	struct sim_leg *leg;
	struct srdma_qp_info info;
	struct sim_queue sq, rq;
	uint64_t pn; /* number of the last packet sent to this end */
	/* sender: epoch (2 bits), packets in it and their limit */
	uint32_t epoch, epoch_packets, limit;
	uint32_t epoch_seen; /* receiver: latest epoch */
	/* receiver: highest packet number at that moment */
	uint64_t epoch_seen_at;
	uint32_t messages; /* messages sent that need a RECV */
	/* the most recent messages */
	struct sim_message message[SIM_MESSAGES];
	/* ranges of the peer that failed requests named */
	struct sim_range lost[SIM_RING];
	uint32_t lost_count;
	uint64_t life; /* LIFE ends its QP then; 0: not within the simulation */
	int events;
	int leaving, gone;
};

struct sim_qp {
	struct sim_end end[2];
	int client; /* side */
	/* secrets installed at the receiver but not yet at the sender */
	struct srdma_qp_rekey next[2];
	uint8_t waits[2];
	uint8_t mode, shared;
	uint32_t serial; /* consecutive number over all QPs of a simulation */
	int live;
	int doomed; /* 1 if it is permitted to fail */
	int lossy;  /* 1 if a black hole took its packets */
	int evil;   /* 1 if it carries packets that no host posted */
};

enum sim_area_state { SIM_LIVE, SIM_DYING, SIM_FROZEN };

struct sim_area {
	/* offset in the arena; offset where the next search starts */
	uint32_t at, len, next;
	uint32_t access, key;
	enum sim_area_state state;
};

/* A capability for a range of the guarded area of another leg. */
struct sim_grant {
	uint32_t handle; /* handle, or 0 */
	uint32_t lo, hi; /* offsets in the area */
	uint8_t rights;
	size_t len;
	uint8_t token[SRDMA_CAPABILITY_MAX];
};

/* A revoked range of the leg's guarded area. */
struct sim_revoked {
	struct srdma_revoke_params params;
	uint32_t lo, hi; /* offsets in the arena */
	uint64_t ticket;
	int done; /* 1 once no DMA may change the range any more */
};

struct sim_leg {
	struct sim *w;
	int side;
	struct srdma_leg *leg;
	struct srdma_conn *conn;
	uint32_t id, ring, consumed, told;
	int open;    /* 1 while the host lives and has its leg */
	int closing; /* 1 once the control connection has closed it */
	/* 1 once the host posted invalid descriptors; it polls no more */
	int broken;
	/* 1 if a hostile peer may have written anything to areas 0 and 1 */
	int tainted;
	uint32_t size; /* bytes of the arena */
	uint8_t *mem;
	uint8_t *shadow, *after, *kind; /* per byte, see sim_memory.h */
	struct sim_area area[SIM_AREAS];
	/* indexed by the leg of the other side */
	struct sim_grant grant[SIM_LEGS][SIM_GRANTS];
	struct sim_revoked revoked[SIM_REVOKED];
	uint32_t revocations;
};

enum { SIM_FORMER = 1024 };

struct sim_side {
	uint32_t former[SIM_FORMER]; /* QPNs whose records may still arrive */
	uint32_t former_count;
	struct srdma_relay *relay;
	struct srdma_port *host, *wire;
	struct srdma_provider *provider;
	struct srdma_stats sum; /* statistics of its relays that ended */
	uint64_t sent;		/* packets */
	struct sim_leg leg[SIM_LEGS];
	uint64_t random;
	int poked; /* 1 if control requests were made */
};

struct sim_caught {
	int to;
	uint32_t len;
	uint8_t data[SRDMA_MAX_PACKET];
};

struct sim {
	uint64_t seed, random;
	uint64_t now;
	uint32_t step;
	/* packets sent so far; packets to send in all */
	uint32_t packets, wanted;
	struct sim_side side[2];
	struct srdma_mem_wire_params wire;
	struct srdma_mem_host_params host[2];
	uint8_t suite, level, tag_len;
	uint8_t guarded; /* 1 if guarded areas demand proofs */
	uint8_t log2_block, tree_depth;
	uint32_t mtu, window, reads, timeout_ms, area_len;
	uint64_t rekey_packets, rekey_bytes, rekey_ns; /* 0: default limits */
	struct sim_qp qp[SIM_QPS + 1];
	int qps;
	uint32_t serials; /* QPs opened so far */
	uint32_t faults;  /* set of enum sim_fault that the seed chose */
	uint32_t active;  /* subset that is active now */
	uint32_t rate;	  /* one packet in this many is hit */
	uint32_t calms;	  /* factor by which strikes become rarer */
	int blackhole;	  /* side */
	int hasty; /* 1 if requests may time out before a loss is repaired */
	uint32_t crashes;
	/* side + 1 of the relay that crashes, without sending a CLOSE */
	int dying;
	int opening;	 /* 1 while a QP gets its keys */
	int calls;	 /* consecutive failed connects */
	uint32_t rekeys; /* epochs begun */
	/* leg whose guarded area has no room for DMA */
	struct sim_leg *stalled;
	int calm; /* 1 after the faults: every posted request is legal */
	struct sim_caught caught[SIM_CAUGHT];
	uint32_t caught_count;
	void *trace;	  /* see sim_trace.c; NULL: none */
	uint64_t *nonces; /* see sim_nonce.c */
	uint32_t nonce_count;
};

/* Result of a simulation. */
struct sim_sum {
	uint64_t packets, rekeys, dials, atomics, crashes;
	/* final values; a second run of the seed yields the same */
	uint64_t random, now;
	uint8_t digest[SIM_DIGEST_LEN]; /* of the trace; zero without one */
};

/* Runs one seed completely. */
void sim_run(uint64_t seed, struct sim_sum *sum);

/* --- sim.c: the two sides and the clock --- */
uint32_t sim_random(struct sim *w, uint32_t n); /* below n; 0 if n is 0 */
int sim_one_in(struct sim *w, uint32_t n);
uint64_t sim_word(struct sim *w);
void sim_open_leg(struct sim *w, int side, int i);
/* The worker of a side dies and another one starts. */
void sim_crash(struct sim *w, int side);
/*
 * Runs both relays as their workers would, sleeping until something is due.
 * Returns 1 if one of them worked. Returns 0 if both slept: the clock moved to
 * the next due time, but by at most `most` ns. Returns -1 like 0 if nothing
 * will ever be due.
 */
int sim_turn(struct sim *w, uint64_t most);
/* Fails this seed. */
#define SIM_CHECK(w, condition, ...)                                           \
	do {                                                                   \
		if (!(condition))                                              \
			sim_fail(w, __FILE__, __LINE__, __VA_ARGS__);          \
	} while (0)
void sim_fail(const struct sim *w, const char *file, int line, const char *fmt,
	      ...) __attribute__((format(printf, 4, 5)));

/* --- sim_qp.c: QPs and their keys --------------------------------------- */
void sim_qp_open(struct sim *w, int i, int leg0, int leg1);
uint8_t sim_qp_secret_len(const struct sim *w);
/* Fills in a KEY request for one side's QP. */
void sim_qp_ask(const struct sim_qp *qp, int side,
		struct srdma_qp_secret *params);
/* Replaces ended QPs, legs and regions. */
void sim_qp_renew(struct sim *w);

/* --- sim_fault.c -------------------------------------------------------- */
void sim_fault_hooks(struct sim *w);
void sim_fault_choose(struct sim *w);
/* Starts at most one fault, at random. */
void sim_fault_strike(struct sim *w);
/*
 * Continues operations that take several turns: DEREG, DESTROY, closing legs.
 */
void sim_fault_follow(struct sim *w);
void sim_fault_heal(struct sim *w);
/* Releases held packets, so that none is held without a limit. */
void sim_fault_breathe(struct sim *w);
void sim_fault_destroy(struct sim *w, struct sim_end *e);
void sim_fault_deregister(struct sim_leg *leg, int area);
void sim_fault_close(struct sim_leg *leg);
/*
 * Permits a QP that is opened now to fail and to lose packets, if a black hole
 * or time-outs that are too short are active.
 */
void sim_fault_join(struct sim *w, struct sim_qp *qp);

/* --- sim_rekey.c: epochs ------------------------------------------------ */
/* Installs a new secret at one end, and gives that end's QP a life. */
void sim_rekey_strike(struct sim *w);
void sim_rekey_follow(struct sim *w);
/* Checks that no key exceeds its limits. */
void sim_rekey_check(struct sim *w);
/* Checks at the end that no new secret is waiting, and that no QP outlives its
 * life. */
void sim_rekey_calm(struct sim *w);
/* Notes the epoch of a packet that this end sent. */
void sim_rekey_wire(struct sim *w, struct sim_end *from, const uint8_t *data);

/* --- sim_atomic.c ------------------------------------------------------- */
/* Chooses a counter in that area of a peer and the operation on it. */
uint8_t *sim_atomic_choose(struct sim *w, struct sim_leg *to, uint32_t area,
			   struct sim_wr *wr);
/* The DMA of an atomic on a counter of a leg begins. */
void sim_atomic_dma(struct sim *w, struct sim_leg *leg,
		    const struct srdma_op *op);

/* --- sim_nonce.c -------------------------------------------------------- */
/*
 * Crypto provider of a side's relay that records its nonces. Forget it after
 * the relay is destroyed.
 */
struct srdma_provider *sim_nonce_watch(struct sim *w, int side);
void sim_nonce_forget(struct srdma_provider *p);

/* --- sim_grant.c: capabilities and revocation --- */
/*
 * Gives two legs capabilities for each other's guarded area, if no part of it
 * was revoked.
 */
void sim_grant_open(struct sim *w, struct sim_leg *a, struct sim_leg *b);
/*
 * Returns 1 if leg `from` has a capability for all of the guarded area of `to`.
 */
int sim_grant_has(const struct sim_leg *from, const struct sim_leg *to);
/*
 * Returns the handle for an access to these bytes of the guarded area of `to`,
 * or 0.
 */
uint32_t sim_grant_choose(struct sim_leg *from, const struct sim_leg *to,
			  const struct sim_wr *wr);
/* The guarded area of a leg was registered anew. */
void sim_grant_renew(struct sim *w, struct sim_leg *leg);
/* The holder that peers assign to the QPs of a side. */
void sim_grant_holder(int side, uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN]);
/* Revokes a range or drops a capability. */
void sim_grant_strike(struct sim *w);
/* At random, revokes a range that was allowed and whose DMA has not begun. */
void sim_grant_race(struct sim *w);
/* Continues revocations that wait for DMA. */
void sim_grant_follow(struct sim_leg *leg);

/* --- sim_memory.c: the arena and its shadow ----------------------------- */
void sim_memory_open(struct sim *w, struct sim_leg *leg);
/* Registers a frozen area again. */
void sim_memory_again(struct sim_leg *leg, int area);
/* A hostile peer may have changed any byte of an area. */
void sim_memory_doubt(struct sim_leg *leg, uint32_t area);
void sim_memory_close(struct sim_leg *leg);
/* From now on no DMA may change this area (-1: any area of the leg). */
void sim_memory_freeze(struct sim_leg *leg, int area);
/* Freezes bytes [from, to) of the arena; the host changes them. */
void sim_memory_reclaim(struct sim_leg *leg, uint32_t from, uint32_t to);
/* Checks that every byte has an allowed value. */
void sim_memory_check(struct sim_leg *leg);

/* --- sim_host.c: work requests that hosts post --- */
/* Posts a request on a random end, or a RECV. */
void sim_host_post(struct sim *w);
/* Posts this request on that end. Returns 1, or 0 if there is no room. */
int sim_host_send(struct sim *w, struct sim_qp *qp, int side, uint8_t op,
		  uint32_t len);
int sim_host_recv(struct sim *w, struct sim_qp *qp, int side, uint32_t len);
/* Gives every message its RECV and every queue a last signaled request. */
void sim_host_finish(struct sim *w);
/* Returns 1 if the host of this end is alive and its QP is not destroyed. */
int sim_host_sees(const struct sim_end *e);
/* Returns 1 if requests of this end are outstanding. */
int sim_host_waits(const struct sim_end *e);
/* Returns 1 if its QP is in error or cannot be queried. */
int sim_host_is_dead(const struct sim_end *e);
/* The QP is destroyed: none of its DMA touches memory any more. */
void sim_host_forget(struct sim_end *e);
/* Changes the source bytes of an outstanding request. */
void sim_host_move(struct sim *w, struct sim_qp *qp, struct sim_end *e);
/* Both ends are destroyed: the resources of the QP are free. */
void sim_host_bury(struct sim_qp *qp);
/* A hostile peer may have written to, or executed atomics on, areas 0 and 1. */
void sim_host_taint(struct sim_leg *leg);

/* --- sim_trace.c: the digest of externally observable events --- */
extern int sim_traced; /* 1 if simulations keep a trace */
void sim_trace_begin(struct sim *w);
void sim_trace_end(struct sim *w, uint8_t digest[SIM_DIGEST_LEN]);
/* Records a committed packet, before a fault changes it. */
void sim_trace_packet(struct sim *w, const struct srdma_mem_datagram *d);
/* Records that a side connects. */
void sim_trace_call(struct sim *w, int side);
/* Records a completion record, SRDMA_RECORD_LEN bytes, that a host polls. */
void sim_trace_record(const struct sim_leg *leg, const uint8_t *record);
/* Records the start of a DMA; it fails if status is not 0. */
void sim_trace_dma(struct sim *w, const struct srdma_dma *d, int writes,
		   int status);
/* Memory of a leg, at a fixed address if there is a trace. NULL: no memory. */
uint8_t *sim_trace_arena(const struct sim_leg *leg, size_t len);
void sim_trace_free(const struct sim_leg *leg, size_t len);

/* --- sim_record.c: records that hosts poll --- */
/* Polls up to n records of a leg and posts CREDIT when it is due. */
void sim_record_poll(struct sim_leg *leg, uint32_t n);

#endif
