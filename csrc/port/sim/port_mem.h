/*
 * Ports in memory for tests, fuzzers and the simulator: two wire ports joined
 * in one process, and a host port whose legs the test drives and whose regions
 * are plain pointers. Hooks drop, change, duplicate, reorder and delay
 * datagrams, simulate a full send queue, and make DMA slow or fail.
 *
 * The caller owns the parameters. They are read at every use, so that a test
 * may change them while it runs. NULL: all parameters are zero. Both ends run
 * in one thread.
 */
#ifndef SRDMA_PORT_MEM_H
#define SRDMA_PORT_MEM_H

#include "port/port.h"

/* --- wire ------------------------------------------------------------- */

enum srdma_mem_fate {
	SRDMA_MEM_PASS = 0,
	SRDMA_MEM_DROP,
	SRDMA_MEM_TWICE, /* delivered twice */
	SRDMA_MEM_SWAP,	 /* delivered after the next datagram that passes */
	SRDMA_MEM_HOLD,	 /* delivered by srdma_port_mem_release() */
};

enum srdma_mem_call {
	SRDMA_MEM_ANSWERED = 0,
	SRDMA_MEM_REFUSED,    /* SRDMA_EV_DOWN */
	SRDMA_MEM_SILENT,     /* SRDMA_EV_UP, then nothing */
	SRDMA_MEM_UNANSWERED, /* nothing at all */
	SRDMA_MEM_IMPOSSIBLE, /* connect() itself fails */
};

struct srdma_mem_datagram {
	int side;	 /* sender: 0 is port a, 1 is port b */
	uint64_t number; /* serial number among this side's datagrams, from 0 */
	uint8_t *data;	 /* the hook may change it */
	uint32_t len;	 /* the hook may change it, at most SRDMA_MAX_PACKET */
};

/*
 * A bottleneck link that wires share. It drops a datagram whose queueing delay
 * would exceed queue.
 */
struct srdma_mem_way {
	uint64_t rate;	/* bytes per us */
	uint64_t queue; /* maximum queueing delay, ns */
	uint64_t busy;	/* time until which the link is busy, ns. Zero this
			   and the following fields */
	uint64_t bytes; /* bytes sent */
	uint64_t taken, dropped;
};

struct srdma_mem_wire_params {
	uint32_t slots; /* datagrams in flight per conn; 0: 128 */
	uint32_t bufs;	/* buffers in each port's pool; 0: 256; read at
			   create only */
	int window;	/* replay window; 0: 64; read at create only */
	/*
	 * The caller's clock, ns. If set, each direction of a connection sends
	 * rate bytes per us and delivers latency ns later. NULL: delivery at
	 * flush.
	 */
	const uint64_t *now;
	uint64_t rate, latency;	   /* bytes per us (0: unlimited), and ns */
	struct srdma_mem_way *way; /* array of one shared link per side, used
				      with now; NULL: none */
	void *ctx;		   /* argument of the hooks */
	/* Called at each commit. NULL: all datagrams pass. */
	enum srdma_mem_fate (*fate)(void *ctx, struct srdma_mem_datagram *d);
	/*
	 * Returns 1 to make reserve fail on this side. NULL: only slots limit
	 * it.
	 */
	int (*full)(void *ctx, int side);
	/*
	 * Called when this side opens a new connection. NULL: all are answered.
	 */
	enum srdma_mem_call (*call)(void *ctx, int side);
};

/*
 * Two joined wire ports with the addresses "a" and "b". connect() to "b" on
 * port a raises SRDMA_EV_UP on a and SRDMA_EV_ACCEPT on b; connect() to the
 * port's own address raises both events on that port. A second connect() to a
 * connected address returns the same conn and raises SRDMA_EV_UP again.
 * Datagrams are delivered at flush.
 */
int srdma_port_mem_wire_pair(struct srdma_port **a, struct srdma_port **b,
			     const struct srdma_mem_wire_params *params);

/*
 * Create a new port in place of the destroyed counterpart of port, like a
 * worker that restarts. Returns 0 or -ENOMEM.
 */
int srdma_port_mem_wire_again(struct srdma_port *port, struct srdma_port **out);

/*
 * Arrival time of the next datagram at port, ns; UINT64_MAX: none is in flight.
 */
uint64_t srdma_port_mem_due(const struct srdma_port *port);

/*
 * Deliver the datagrams of port that SRDMA_MEM_HOLD or SRDMA_MEM_SWAP holds
 * back.
 */
void srdma_port_mem_release(struct srdma_port *port);

/*
 * Deliver a forged datagram to conn. Returns 0, -EMSGSIZE, -ENOMEM or
 * -ENOTCONN.
 */
int srdma_port_mem_inject(struct srdma_conn *conn, const uint8_t *data,
			  uint32_t len);

/* End the connection of conn: SRDMA_EV_DOWN on both sides. */
void srdma_port_mem_cut(struct srdma_conn *conn);

/*
 * Simulate an incoming connection without a peer: SRDMA_EV_ACCEPT; datagrams
 * sent on it are lost. Returns 0 or -ENOMEM.
 */
int srdma_port_mem_intrude(struct srdma_port *port, struct srdma_conn **conn);

/* --- host ------------------------------------------------------------- */

struct srdma_mem_host_params {
	uint32_t bufs;	    /* buffers in the pool; 0: 256; read at create
			       only */
	uint32_t dma_polls; /* a DMA completes in the n-th poll after its
			       start; 0: at once */
	void *ctx;	    /* argument of the hook */
	/*
	 * Called before each DMA; writes is 1 for a write or an atomic. Returns
	 * 0 to execute the DMA, -EAGAIN for no room now, or the -errno that the
	 * DMA fails with. NULL: all DMAs succeed.
	 */
	int (*dma)(void *ctx, const struct srdma_dma *dma, int writes);
};

/*
 * A host port. leg_open makes a leg without a host process and raises
 * SRDMA_EV_UP in the next poll. Regions are memory of this process at their
 * addr. A DMA whose leg was closed before completion is reported with
 * -ECANCELED and conn NULL.
 */
int srdma_port_mem_host(struct srdma_port **out,
			const struct srdma_mem_host_params *params);

/*
 * Post a descriptor as the host would. Returns 0, -EMSGSIZE, -ENOMEM or -EAGAIN
 * (ring full).
 */
int srdma_port_mem_post(struct srdma_conn *leg, const uint8_t *desc,
			uint32_t len);

/*
 * The completion ring: ring records of SRDMA_RECORD_LEN bytes, initially zero.
 */
uint8_t *srdma_port_mem_ring(struct srdma_conn *leg);

/*
 * Simulate the death of the host: DMA in progress ends with -ECONNRESET, then
 * SRDMA_EV_DOWN.
 */
void srdma_port_mem_kill(struct srdma_conn *leg);

#endif
