/*
 * One process's end of the store's connections: a leg of shared memory and
 * its host, opened by somebody else (native/kvs.pyx), one thread. Requests
 * and answers travel in the descriptors; one in some of them is signaled,
 * which gives the queue's places back.
 */
#ifndef KVS_END_H
#define KVS_END_H

#include <stdint.h>

#include "host.h"
#include "leg_shm.h"

enum kvs_end_limits {
	KVS_BURST = 32,		/* requests that are worked on together */
	KVS_RECORDS = 64,	/* completions taken at once */
	KVS_CONNECTIONS = 1024, /* of an end, at most */
};

struct kvs_end {
	struct srdma_host *host;
	struct srdma_leg_shm *leg;
	unsigned idle; /* turns without anything */
};

/* Up to KVS_RECORDS completions. Returns how many. */
int kvs_end_collect(struct kvs_end *end, struct srdma_record *out);

/*
 * Nothing to do: give the core away, and after some 50 us of that sleep,
 * until a completion comes or, with memory, a WRITE into a region. There may
 * be news that the sleeper has not seen: look(arg) is asked for that once more
 * before it sleeps, and where it says 1 the 50 us begin again. It does not
 * sleep long.
 */
void kvs_end_wait(struct kvs_end *end, int memory, int (*look)(void *),
		  void *arg);

/* The send queue of a QP. */
struct kvs_queue {
	struct srdma_desc desc; /* of each: opcode, QP, id, remote key */
	uint32_t every, since;	/* one in so many is signaled */
	uint32_t room;
};

/* depth: of the QP's send queue, 2 or more. */
void kvs_queue_init(struct kvs_queue *q, const struct srdma_desc *desc,
		    uint32_t depth);
/* May one be posted now? */
int kvs_queue_ready(const struct kvs_end *end, const struct kvs_queue *q);
/*
 * Post len bytes, to remote_addr if it is a WRITE. 0; -EAGAIN: no room now;
 * what srdma_host_post() refuses.
 */
int kvs_queue_post(struct kvs_end *end, struct kvs_queue *q,
		   const void *payload, uint32_t len, uint64_t remote_addr);
/* One that was signaled has completed. */
void kvs_queue_retire(struct kvs_queue *q);

#endif
