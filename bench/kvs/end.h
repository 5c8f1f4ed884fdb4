/*
 * One process's end of the store's connections: a shared-memory leg and its
 * host, opened by the caller (native/kvs.pyx), used by one thread. Requests and
 * responses are inline data of descriptors. One in `every` posts is signaled;
 * its completion frees the send queue entries up to it.
 */
#ifndef KVS_END_H
#define KVS_END_H

#include <stdint.h>

#include "host/host.h"
#include "host/leg_shm.h"

enum kvs_end_limits {
	KVS_BURST = 32,		/* requests processed together */
	KVS_RECORDS = 64,	/* completions taken at once */
	KVS_CONNECTIONS = 1024, /* maximum per end */
};

struct kvs_end {
	struct srdma_host *host;
	struct srdma_leg_shm *leg;
	unsigned idle; /* consecutive turns without work */
};

/* Take up to KVS_RECORDS completions. Returns their number. */
int kvs_end_collect(struct kvs_end *end, struct srdma_record *out);

/*
 * There is no work: yield the core, and after about 50 us of yielding sleep
 * until a completion arrives or, if memory is not 0, a WRITE into a region.
 * look(arg) checks for work once more before sleeping; if it returns 1, the 50
 * us start again. A sleep is limited to 20 ms.
 */
void kvs_end_wait(struct kvs_end *end, int memory, int (*look)(void *),
		  void *arg);

/* The send queue of a QP. */
struct kvs_queue {
	struct srdma_desc desc; /* template: opcode, QP, id, remote key */
	uint32_t every, since;	/* one post in `every` is signaled; posts
				   since the last one */
	uint32_t room;
};

/* depth of the QP's send queue, >= 2. */
void kvs_queue_init(struct kvs_queue *q, const struct srdma_desc *desc,
		    uint32_t depth);
/* 1 if a request can be posted now. */
int kvs_queue_ready(const struct kvs_end *end, const struct kvs_queue *q);
/*
 * Post len bytes; remote_addr is used by a WRITE. Returns 0; -EAGAIN: no room
 * now; or an error of srdma_host_post().
 */
int kvs_queue_post(struct kvs_end *end, struct kvs_queue *q,
		   const void *payload, uint32_t len, uint64_t remote_addr);
/* Process the completion of a signaled post. */
void kvs_queue_retire(struct kvs_queue *q);

#endif
