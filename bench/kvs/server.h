/*
 * The server: looks at the slots of its connections, works on the index in
 * bursts, answers by SEND. It polls while there is work and sleeps by the
 * leg's bell when there is none. What a client writes is looked at in a
 * private copy and can end nothing but its own connection.
 */
#ifndef KVS_SERVER_H
#define KVS_SERVER_H

#include <stdint.h>

#include "end.h"
#include "index.h"

struct kvs_server;

struct kvs_server_counts {
	uint64_t gets, puts, misses, full, bad;
	uint64_t bursts; /* turns with requests in them */
	uint64_t sleeps; /* turns with none */
	uint32_t lost;	 /* connections that ended without BYE */
};

/* Of one connection: its QP, and its slots in a region of its own. */
struct kvs_served {
	uint32_t qpn;
	uint32_t sq;	/* depth of the QP's send queue */
	uint32_t slots; /* how many: a power of two */
	const uint8_t *memory;
};

/*
 * end, index and the memory of n connections outlive it. 0; -EINVAL: none, or
 * more than KVS_CONNECTIONS, a queue under 2, slots no power of two; -ENOMEM.
 */
int kvs_server_create(struct kvs_server **out, const struct kvs_end *end,
		      struct kvs_index *index, const struct kvs_served *list,
		      uint32_t n);
/* NULL is allowed. */
void kvs_server_destroy(struct kvs_server *server);

/*
 * Serve until ns have passed, or every connection has ended by BYE or by an
 * error. Returns how many are left.
 */
int kvs_server_run(struct kvs_server *server, uint64_t ns);

const struct kvs_server_counts *
kvs_server_counts(const struct kvs_server *server);

#endif
