/* Private state shared by the files of port_mem's wire port. */
#ifndef SRDMA_PORT_MEM_IMPL_H
#define SRDMA_PORT_MEM_IMPL_H

#include <stdbool.h>

#include "base/fifo.h"
#include "port/pool.h"
#include "port/sim/port_mem.h"
#include "wire/wire.h"

struct srdma_mem_wire;

/* State shared by both joined ports; freed with the last of them. */
struct srdma_mem_joint {
	struct srdma_mem_wire *port[2];
	const struct srdma_mem_wire_params *params;
};

/* One end of a connection. */
struct srdma_mem_end {
	struct srdma_conn conn;
	struct srdma_mem_end *next;
	struct srdma_mem_end *peer;	 /* NULL: disconnected, or never
					    connected */
	const struct srdma_mem_wire *to; /* port that connect() was called
					    for, or NULL */
	int refs;
	bool deaf; /* no peer, but the connection stays up */
	bool up_due, accept_due, down_due;
	struct srdma_fifo out;	/* committed, not flushed */
	struct srdma_fifo kept; /* held by SRDMA_MEM_HOLD or SRDMA_MEM_SWAP */
	bool swap; /* release the first held datagram after the next one that
		      passes */
	struct srdma_fifo in;
	uint64_t busy; /* time until which this direction is busy, ns */
	uint8_t staging[SRDMA_MAX_PACKET];
};

struct srdma_mem_wire {
	struct srdma_port port;
	struct srdma_pool *pool;
	struct srdma_mem_joint *joint;
	struct srdma_mem_end *ends;
	int side;
	uint64_t sent;
};

static inline struct srdma_mem_wire *srdma_mem_wire_of(struct srdma_port *port)
{
	return (struct srdma_mem_wire *)port;
}

static inline struct srdma_mem_end *srdma_mem_end_of(struct srdma_conn *conn)
{
	return (struct srdma_mem_end *)conn;
}

static inline bool srdma_mem_end_stands(const struct srdma_mem_end *e)
{
	return e->peer || e->deaf;
}

static inline const struct srdma_mem_wire_params *
srdma_mem_params(const struct srdma_mem_end *e)
{
	return srdma_mem_wire_of(e->conn.port)->joint->params;
}

/* --- port_mem_data.c: datagrams --- */
uint8_t *srdma_mem_data_reserve(struct srdma_conn *conn);
int srdma_mem_data_commit(struct srdma_conn *conn, uint32_t len);
void srdma_mem_data_flush(struct srdma_port *port);
int srdma_mem_data_poll(struct srdma_port *port, struct srdma_event *ev, int n);
int srdma_mem_data_arm(struct srdma_port *port);

#endif
