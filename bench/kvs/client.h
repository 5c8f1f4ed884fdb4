/*
 * Clients: a closed loop over connections, each with so many requests under
 * way as its server has slots for it. What comes is compared with what was
 * asked for, and, if there is a history, told to the model.
 */
#ifndef KVS_CLIENT_H
#define KVS_CLIENT_H

#include <stdint.h>

#include "end.h"
#include "latency.h"
#include "model.h"
#include "trace.h"

struct kvs_client;

/* One connection: its QP, the server's slots, memory where answers land. */
struct kvs_asker {
	uint32_t qpn;
	uint32_t sq, rq; /* depths of the queues */
	uint32_t depth;	 /* requests under way, at most */
	uint32_t slots;	 /* a power of two, depth or more */
	uint64_t remote_addr;
	uint32_t rkey, capability; /* capability: a handle, or 0 */
	uint8_t *landing;	   /* rq answers of KVS_SLOT_LEN bytes */
	uint32_t lkey;
};

struct kvs_client_counts {
	uint64_t gets, puts, misses;
	uint64_t ns; /* of runs, what was under way in the end included */
};

/* What a run asks for. */
struct kvs_plan {
	const struct kvs_wish *wishes; /* over and over; NULL: GET every key */
	uint32_t count;		       /* of wishes */
	const struct kvs_mix_row *mix; /* that they were thrown by */
	uint64_t ns;		       /* 0: as many requests as wishes */
	/* NULL, or asked ten times a second; not 0 ends the run. */
	int (*look)(void *arg);
	void *arg;
};

/* Why a run ended before its time. */
struct kvs_trouble {
	struct srdma_record record; /* -EIO: of the work request that failed */
	uint32_t id;		    /* -EPROTO, -EBADMSG: of the key */
	uint8_t status;		    /* -EPROTO: enum kvs_status */
};

/*
 * end and the memory of n connections outlive it. The store has the keys 0 to
 * keys - 1, and takes new ones up to capacity. 0; -EINVAL: n, a depth or
 * slots out of range; -ENOMEM.
 */
int kvs_client_create(struct kvs_client **out, const struct kvs_end *end,
		      const struct kvs_asker *list, uint32_t n, uint32_t keys,
		      uint32_t capacity);
/* NULL is allowed. */
void kvs_client_destroy(struct kvs_client *client);

/* Tell this history, which stays the caller's, from now on; NULL: nobody. */
void kvs_client_record(struct kvs_client *client, struct kvs_history *history);

/*
 * One run, until nothing is under way. 0; -EIO: a work request failed;
 * -EPROTO: no answer to the request, or one that it cannot have; -EBADMSG: a
 * value that is not one of the key; -ENOSPC: the history is full;
 * -ETIMEDOUT: nothing came for a long time; -EINTR: the plan's look ended it.
 * The client is of no use then.
 */
int kvs_client_run(struct kvs_client *client, const struct kvs_plan *plan,
		   struct kvs_trouble *trouble);

/* Say BYE on all connections. As run. */
int kvs_client_bye(struct kvs_client *client, struct kvs_trouble *trouble);

/* Of all runs since the last reset. */
const struct kvs_client_counts *
kvs_client_counts(const struct kvs_client *client);
const struct kvs_latency *kvs_client_latency(const struct kvs_client *client);
void kvs_client_reset(struct kvs_client *client);

/* Keys that the store has now, as far as this client knows. */
uint32_t kvs_client_keys(const struct kvs_client *client);

#endif
