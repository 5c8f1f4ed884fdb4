/*
 * The server: polls the slots of its connections, processes requests on the
 * index in bursts, and responds with SENDs. It polls while there is work and
 * sleeps on the leg's doorbell otherwise. Requests are validated in a private
 * copy; an invalid one can end only its own connection.
 */
#ifndef KVS_SERVER_H
#define KVS_SERVER_H

#include <stdint.h>

#include "end.h"
#include "index.h"

struct kvs_server;

struct kvs_server_counts {
	uint64_t gets, puts, misses, full, bad;
	uint64_t bursts; /* turns with requests */
	uint64_t sleeps; /* turns without requests */
	uint32_t lost;	 /* connections that ended without BYE */
};

/* One connection: its QP, and its slots in a region of their own. */
struct kvs_served {
	uint32_t qpn;
	uint32_t sq;	/* depth of the QP's send queue */
	uint32_t slots; /* number of slots, a power of two */
	const uint8_t *memory;
};

/*
 * end, index and the memory of the n connections must outlive the server.
 * Returns 0; -EINVAL: n is 0 or above KVS_CONNECTIONS, sq < 2, or slots is not
 * a power of two; -ENOMEM.
 */
int kvs_server_create(struct kvs_server **out, const struct kvs_end *end,
		      struct kvs_index *index, const struct kvs_served *list,
		      uint32_t n);
/* server may be NULL. */
void kvs_server_destroy(struct kvs_server *server);

/*
 * Serve until ns have passed or all connections have ended by BYE or an error.
 * Returns the number of connections left.
 */
int kvs_server_run(struct kvs_server *server, uint64_t ns);

const struct kvs_server_counts *
kvs_server_counts(const struct kvs_server *server);

#endif
