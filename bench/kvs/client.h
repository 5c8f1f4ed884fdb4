/*
 * Clients: a closed loop over connections, each with at most depth requests in
 * flight. Responses are checked against the requests and, if there is a
 * history, recorded in it.
 */
#ifndef KVS_CLIENT_H
#define KVS_CLIENT_H

#include <stdint.h>

#include "end.h"
#include "latency.h"
#include "model.h"
#include "trace.h"

struct kvs_client;

/* One connection: its QP, the server's slots, and the memory for responses. */
struct kvs_asker {
	uint32_t qpn;
	uint32_t sq, rq; /* queue depths */
	uint32_t depth;	 /* maximum of requests in flight */
	uint32_t slots;	 /* a power of two, >= depth */
	uint64_t remote_addr;
	uint32_t rkey, capability; /* handle of an installed capability, or 0 */
	uint8_t *landing;	   /* rq buffers of KVS_SLOT_LEN bytes for
				      responses */
	uint32_t lkey;
};

struct kvs_client_counts {
	uint64_t gets, puts, misses;
	uint64_t ns; /* duration of runs, including the last responses */
};

/* Parameters of a run. */
struct kvs_plan {
	const struct kvs_wish *wishes; /* requests, used cyclically; NULL:
					  GET every key once */
	uint32_t count;		       /* number of wishes */
	const struct kvs_mix_row *mix; /* the mix that the wishes were drawn
					  from */
	uint64_t ns;		       /* duration; 0: one request per wish */
	/*
	 * Called ten times a second, may be NULL. A result other than 0 ends
	 * the run.
	 */
	int (*look)(void *arg);
	void *arg;
};

/* Details of a failed run. */
struct kvs_trouble {
	struct srdma_record record; /* -EIO: the failed work request */
	uint32_t id;		    /* -EPROTO, -EBADMSG: the key */
	uint8_t status;		    /* -EPROTO: enum kvs_status */
};

/*
 * end and the memory of the n connections must outlive the client. The store
 * has the keys 0 to keys - 1 and accepts new ones up to capacity. Returns 0;
 * -EINVAL: n, a depth or slots out of range; -ENOMEM; or the -errno of posting
 * receives.
 */
int kvs_client_create(struct kvs_client **out, const struct kvs_end *end,
		      const struct kvs_asker *list, uint32_t n, uint32_t keys,
		      uint32_t capacity);
/* client may be NULL. */
void kvs_client_destroy(struct kvs_client *client);

/*
 * Record requests in history from now on; the caller owns it. NULL: stop
 * recording.
 */
void kvs_client_record(struct kvs_client *client, struct kvs_history *history);

/*
 * Run until no request is in flight. Returns 0; -EIO: a work request failed;
 * -EPROTO: a response that does not match its request; -EBADMSG: a value that
 * does not belong to the key; -ENOSPC: the history is full; -ETIMEDOUT: no
 * response for a long time; -EINTR: the plan's look() ended the run. After an
 * error the client must be destroyed.
 */
int kvs_client_run(struct kvs_client *client, const struct kvs_plan *plan,
		   struct kvs_trouble *trouble);

/* Send BYE on all connections. Returns the same values as kvs_client_run(). */
int kvs_client_bye(struct kvs_client *client, struct kvs_trouble *trouble);

/* Statistics of all runs since the last reset. */
const struct kvs_client_counts *
kvs_client_counts(const struct kvs_client *client);
const struct kvs_latency *kvs_client_latency(const struct kvs_client *client);
void kvs_client_reset(struct kvs_client *client);

/* Number of keys in the store as known to this client. */
uint32_t kvs_client_keys(const struct kvs_client *client);

#endif
