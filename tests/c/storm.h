/*
 * A storm: two relays with two hosts each, driven by one seed in virtual
 * time, under faults. The hosts keep a shadow of their memory and know what
 * each work request must do; what differs ends the test with the seed.
 *
 * Each host has an arena of four areas, each a region of its own, with gaps
 * that no region covers. In some storms the second one demands memory proofs:
 * then peers alone use it, by capabilities, of which ranges are revoked. A
 * range of an area is one work request's at a time, so that it is known at
 * each DMA what each byte may become, and that nobody had done it before.
 *
 * What ended is replaced: QPs, legs, regions, until the seed's packets are
 * sent.
 */
#ifndef STORM_H
#define STORM_H

#include "port/sim/port_mem.h"
#include "relay.h"

enum {
	STORM_LEGS = 3, /* of a side; the last one is opened after the storm */
	STORM_QPS = 4,	/* one more after the storm */
	STORM_AREAS = 4,
	STORM_GAP = 512,
	STORM_COUNTERS = 8,  /* words for atomics where areas 0 and 1 begin */
	STORM_RING = 32,     /* work requests of a queue, at least its depth */
	STORM_MESSAGES = 64, /* of an end whose RECV did not end yet */
	STORM_NONCES = 1 << 16, /* of a storm, a few of them unused */
	STORM_CAUGHT = 16,	/* datagrams kept to be replayed */
	STORM_GRANTS = 3,	/* of a leg for each leg of the other side */
	STORM_REVOKED = 8,	/* ranges of a leg */
	STORM_GUARDED = 1,	/* the area that demands proofs */
	STORM_CLOCK = 1000,	/* Unix seconds */
	STORM_FRESH_LEN = 2000,
};

enum storm_fault {
	STORM_DROP = 1 << 0,
	STORM_FLIP = 1 << 1,
	STORM_SWAP = 1 << 2,
	STORM_HOLD = 1 << 3,
	STORM_DIVERT = 1 << 4, /* arrives on another connection */
	STORM_TWICE = 1 << 5,
	STORM_REPLAY = 1 << 6,
	STORM_LOSSES = (1 << 7) - 1, /* from which a QP recovers */
	STORM_BLACKHOLE = 1 << 7,    /* one direction, from some moment on */
	STORM_FULL = 1 << 8,	     /* no room on the wire */
	STORM_DMA_AGAIN = 1 << 9,    /* no room for DMA */
	STORM_DMA_FAIL = 1 << 10,
	STORM_CUT = 1 << 11,
	STORM_KILL = 1 << 12,
	STORM_CLOSE = 1 << 13, /* of a leg */
	STORM_DEREG = 1 << 14,
	STORM_DESTROY = 1 << 15,
	STORM_LIMIT = 1 << 16, /* packets of a key */
	STORM_EVIL = 1 << 17,  /* packets that verify and are wrong */
	STORM_JUNK = 1 << 18,  /* descriptors of a broken host */
	STORM_LAZY = 1 << 19,  /* hosts that rarely look at their records */
	STORM_REVOKE = 1 << 20,
	STORM_MOVE = 1 << 21,  /* memory changes while it is sent */
	STORM_REKEY = 1 << 22, /* new secrets */
	STORM_CALLS = 1 << 23, /* connecting fails, strangers connect */
	STORM_CRASH = 1 << 24, /* of a relay; a fresh one takes its place */
	STORM_FAULTS = 25,
};

struct srdma_op;
struct storm;
struct storm_leg;

/* A work request, as its host knows it. */
struct storm_wr {
	uint64_t due;
	uint64_t word; /* of the pattern that must arrive; swap or add */
	uint64_t compare;
	uint8_t op, flags;
	uint8_t legal;	  /* it may succeed */
	uint8_t misnamed; /* it names what it was not given */
	uint8_t shared;	  /* a later request has its remote range too */
	uint8_t second;	  /* it is that later one */
	uint8_t moved;	  /* its bytes changed under way */
	uint8_t executed; /* the atomic */
	uint32_t len;
	uint32_t imm;
	uint32_t message;    /* of those that take a RECV: its number */
	uint32_t capability; /* handle; 0: none */
	uint8_t *local;	     /* in the arena, or NULL */
	uint8_t *remote;     /* in the peer's arena, or NULL */
	uint8_t *counter;    /* of an atomic there, or NULL */
};

/* [head, tail) are outstanding, number n in wr[n % STORM_RING]. */
struct storm_queue {
	struct storm_wr wr[STORM_RING];
	uint32_t head, tail, depth;
	uint32_t failed_at; /* the first that failed */
	int failed;	    /* why it failed */
	uint8_t failed_op;
};

struct storm_range {
	uint8_t *at;
	uint32_t len;
};

/* What a RECV gets, whichever of the two was posted first. */
struct storm_message {
	uint64_t word;
	uint32_t len, imm;
	uint8_t op, legal, moved;
};

struct storm_end {
	struct storm_leg *leg;
	struct srdma_qp_info info;
	struct storm_queue sq, rq;
	uint64_t pn; /* of the last packet sent to it */
	/* of what it sends: 2 bits, and packets under them */
	uint32_t epoch, epoch_packets, limit;
	uint32_t epoch_seen;	/* of what it opens */
	uint64_t epoch_seen_at; /* the highest number then */
	uint32_t messages;	/* posted that take a RECV */
	struct storm_message message[STORM_MESSAGES]; /* the last of them */
	struct storm_range lost[STORM_RING]; /* the peer's, of what failed */
	uint32_t lost_count;
	int events;
	int leaving, gone;
};

struct storm_qp {
	struct storm_end end[2];
	int client; /* side */
	/* Secrets that the side which opens has, and the other has not. */
	struct srdma_qp_rekey next[2];
	uint8_t waits[2];
	uint8_t mode, shared;
	uint32_t serial; /* of the QPs of a storm */
	int live;
	int doomed; /* it may fail */
	int lossy;  /* it was in a black hole */
	int evil;   /* what it carries is not what was posted */
};

enum storm_area_state { STORM_LIVE, STORM_DYING, STORM_FROZEN };

struct storm_area {
	uint32_t at, len, next; /* in the arena; next may be free */
	uint32_t access, key;
	enum storm_area_state state;
};

/* A capability for a part of the guarded area of another leg. */
struct storm_grant {
	uint32_t handle; /* 0: none */
	uint32_t lo, hi; /* in the area */
	uint8_t rights;
	size_t len;
	uint8_t token[SRDMA_CAPABILITY_MAX];
};

/* A range of the own guarded area that was revoked. */
struct storm_revoked {
	struct srdma_revoke_params params;
	uint32_t lo, hi; /* in the arena */
	uint64_t ticket;
	int done; /* nothing may change there any more */
};

struct storm_leg {
	struct storm *w;
	int side;
	struct srdma_leg *leg;
	struct srdma_conn *conn;
	uint32_t id, ring, consumed, told;
	int open;      /* the host lives and has its leg */
	int closing;   /* the control connection left it */
	int broken;    /* the host posted junk: it sees nothing any more */
	int tainted;   /* a peer wrote what it liked to areas 0 and 1 */
	uint32_t size; /* of the arena */
	uint8_t *mem;
	uint8_t *shadow, *after, *kind; /* per byte: see storm_memory.h */
	struct storm_area area[STORM_AREAS];
	struct storm_grant grant[STORM_LEGS][STORM_GRANTS]; /* by its leg */
	struct storm_revoked revoked[STORM_REVOKED];
	uint32_t revocations;
};

enum { STORM_FORMER = 1024 };

struct storm_side {
	uint32_t former[STORM_FORMER]; /* QPNs whose records may still come */
	uint32_t former_count;
	struct srdma_relay *relay;
	struct srdma_port *host, *wire;
	struct srdma_provider *provider;
	struct srdma_stats sum; /* of its relays that ended */
	uint64_t sent;		/* packets */
	struct storm_leg leg[STORM_LEGS];
	uint64_t random;
	int poked; /* the control socket was busy */
};

struct storm_caught {
	int to;
	uint32_t len;
	uint8_t data[SRDMA_MAX_PACKET];
};

struct storm {
	uint64_t seed, random;
	uint64_t now;
	uint32_t step;
	uint32_t packets, wanted; /* sent until now; in all */
	struct storm_side side[2];
	struct srdma_mem_wire_params wire;
	struct srdma_mem_host_params host[2];
	uint8_t suite, level, tag_len;
	uint8_t guarded; /* areas demand proofs */
	uint8_t log2_block, tree_depth;
	uint32_t mtu, window, reads, timeout_ms, area_len;
	uint64_t rekey_packets, rekey_bytes, rekey_ns; /* 0: as they are */
	struct storm_qp qp[STORM_QPS + 1];
	int qps;
	uint32_t serials; /* QPs that there were */
	uint32_t faults;  /* enum storm_fault, of this seed */
	uint32_t active;  /* of them, now */
	uint32_t rate;	  /* one packet of so many is hit */
	uint32_t calms;	  /* strikes are so much rarer */
	int blackhole;	  /* side */
	int hasty;	  /* requests may end before a loss is mended */
	uint32_t crashes;
	int dying;		   /* side + 1: it dies without a word */
	int opening;		   /* a QP gets its keys */
	int calls;		   /* that failed, one after the other */
	uint32_t rekeys;	   /* epochs that began */
	struct storm_leg *stalled; /* DMA of its guarded area had no room */
	int calm; /* the storm is over: all that is posted is right */
	struct storm_caught caught[STORM_CAUGHT];
	uint32_t caught_count;
	uint64_t *nonces; /* see storm_nonce.c */
	uint32_t nonce_count;
};

/* What became of a storm. */
struct storm_sum {
	uint64_t packets, rekeys, dials, atomics, crashes;
	uint64_t random, now; /* at the end: another run gives the same */
};

/* One seed from beginning to end. */
void storm_run(uint64_t seed, struct storm_sum *sum);

/* --- storm.c: the world --- */
uint32_t storm_random(struct storm *w, uint32_t n); /* below n; 0 if n is 0 */
int storm_one_in(struct storm *w, uint32_t n);
uint64_t storm_word(struct storm *w);
void storm_open_leg(struct storm *w, int side, int i);
/* The worker of a side dies, and another one starts. */
void storm_crash(struct storm *w, int side);
/*
 * Both relays as their workers would: asleep until something is due. 1: one
 * ran. 0: both slept, the clock moved to what is due next, but most ns at
 * the most. -1: the same, and nothing will ever be due.
 */
int storm_turn(struct storm *w, uint64_t most);
/* Fail this seed. */
#define STORM_CHECK(w, condition, ...)                                         \
	do {                                                                   \
		if (!(condition))                                              \
			storm_fail(w, __FILE__, __LINE__, __VA_ARGS__);        \
	} while (0)
void storm_fail(const struct storm *w, const char *file, int line,
		const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* --- storm_qp.c: QPs and their keys --- */
void storm_qp_open(struct storm *w, int i, int leg0, int leg1);
uint8_t storm_qp_secret_len(const struct storm *w);
/* What one side is asked by KEY. */
void storm_qp_ask(const struct storm_qp *qp, int side,
		  struct srdma_qp_secret *params);
/* Replace what has ended: QPs, legs, regions. */
void storm_qp_renew(struct storm *w);

/* --- storm_fault.c --- */
void storm_fault_hooks(struct storm *w);
void storm_fault_choose(struct storm *w);
/* Perhaps let one thing happen. */
void storm_fault_strike(struct storm *w);
/* What takes several turns: DEREG, DESTROY, closing legs. */
void storm_fault_follow(struct storm *w);
void storm_fault_heal(struct storm *w);
/* What is held back may go on: nothing is held for ever. */
void storm_fault_breathe(struct storm *w);
void storm_fault_destroy(struct storm *w, struct storm_end *e);
void storm_fault_deregister(struct storm_leg *leg, int area);
void storm_fault_close(struct storm_leg *leg);
/* A QP was opened in the middle of it. */
void storm_fault_join(struct storm *w, struct storm_qp *qp);

/* --- storm_rekey.c: epochs --- */
/* A new secret comes. */
void storm_rekey_strike(struct storm *w);
void storm_rekey_follow(struct storm *w);
/* No key lives longer than it may. */
void storm_rekey_check(struct storm *w);
/* All is over: no new secret waits. */
void storm_rekey_calm(struct storm *w);
/* A packet of this end, of an epoch. */
void storm_rekey_wire(struct storm *w, struct storm_end *from,
		      const uint8_t *data);

/* --- storm_atomic.c --- */
/* A counter in that area of a peer, and what to do to it. */
uint8_t *storm_atomic_choose(struct storm *w, struct storm_leg *to,
			     uint32_t area, struct storm_wr *wr);
/* The DMA of an atomic on a counter of a leg begins. */
void storm_atomic_dma(struct storm *w, struct storm_leg *leg,
		      const struct srdma_op *op);

/* --- storm_nonce.c --- */
/* What a side's relay computes with; forget it after the relay. */
struct srdma_provider *storm_nonce_watch(struct storm *w, int side);
void storm_nonce_forget(struct srdma_provider *p);

/* --- storm_grant.c: capabilities, and their end --- */
/* Capabilities of two legs for each other's guarded area, if nothing of it
 * was revoked. */
void storm_grant_open(struct storm *w, struct storm_leg *a,
		      struct storm_leg *b);
/* 1: one leg has a capability for all of the guarded area of the other. */
int storm_grant_has(const struct storm_leg *from, const struct storm_leg *to);
/* A handle for an access of these bytes of a leg's guarded area; 0: none. */
uint32_t storm_grant_choose(struct storm_leg *from, const struct storm_leg *to,
			    const struct storm_wr *wr);
/* The guarded area of a leg is a new one. */
void storm_grant_renew(struct storm *w, struct storm_leg *leg);
/* Whom the peers of a side's QPs take it for. */
void storm_grant_holder(int side, uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN]);
/* Revoke a range, or forget a capability. */
void storm_grant_strike(struct storm *w);
/* Perhaps revoke what was allowed and has not begun. */
void storm_grant_race(struct storm *w);
/* What revocations wait for. */
void storm_grant_follow(struct storm_leg *leg);

/* --- storm_memory.c: the arena and its shadow --- */
void storm_memory_open(struct storm *w, struct storm_leg *leg);
/* Register an area again that is frozen. */
void storm_memory_again(struct storm_leg *leg, int area);
/* A liar may have changed all of an area. */
void storm_memory_doubt(struct storm_leg *leg, uint32_t area);
void storm_memory_close(struct storm_leg *leg);
/* Nothing may change this area (-1: any of the leg's) from now on. */
void storm_memory_freeze(struct storm_leg *leg, int area);
/* The same of bytes [from, to) of the arena: the host changes them. */
void storm_memory_reclaim(struct storm_leg *leg, uint32_t from, uint32_t to);
/* All bytes are as they must be. */
void storm_memory_check(struct storm_leg *leg);

/* --- storm_host.c: what hosts post --- */
/* Post something on a random end, or a RECV. */
void storm_host_post(struct storm *w);
/* Post this on that end: 1, or 0 when there is no room. */
int storm_host_send(struct storm *w, struct storm_qp *qp, int side, uint8_t op,
		    uint32_t len);
int storm_host_recv(struct storm *w, struct storm_qp *qp, int side,
		    uint32_t len);
/* Give every message its RECV, and every queue a last signaled request. */
void storm_host_finish(struct storm *w);
/* 1: its host is sound and has it. */
int storm_host_sees(const struct storm_end *e);
/* 1: requests of this end still wait. */
int storm_host_waits(const struct storm_end *e);
/* Its QP is in error, or cannot be asked. */
int storm_host_is_dead(const struct storm_end *e);
/* The QP is gone: nothing of it touches memory any more. */
void storm_host_forget(struct storm_end *e);
/* Change what a request under way is made of. */
void storm_host_move(struct storm *w, struct storm_qp *qp, struct storm_end *e);
/* Both ends are gone: what the QP had is free. */
void storm_host_bury(struct storm_qp *qp);
/* A peer that lies may have written and asked what it liked there. */
void storm_host_taint(struct storm_leg *leg);

/* --- storm_record.c: what hosts see --- */
/* Look at up to n records of a leg, with CREDIT where it is due. */
void storm_record_poll(struct storm_leg *leg, uint32_t n);

#endif
