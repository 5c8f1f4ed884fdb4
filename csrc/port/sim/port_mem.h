/*
 * Ports in memory, for tests, fuzzers and the simulator: two wire ports
 * joined in one process, and a host port whose legs the test drives and
 * whose regions are plain pointers. The hooks lose, change, repeat, reorder
 * and delay datagrams, refuse room, and make DMA slow or fail.
 *
 * Parameters stay the caller's and are read at every use: a test may change
 * them while it runs. NULL means all zero. One thread for both ends.
 */
#ifndef SRDMA_PORT_MEM_H
#define SRDMA_PORT_MEM_H

#include "port/port.h"

/* --- wire ------------------------------------------------------------- */

enum srdma_mem_fate {
	SRDMA_MEM_PASS = 0,
	SRDMA_MEM_DROP,
	SRDMA_MEM_TWICE, /* delivered two times */
	SRDMA_MEM_SWAP,	 /* delivered after the next one that passes */
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
	int side;	 /* of the sender: 0 is port a, 1 port b */
	uint64_t number; /* of this side's datagrams, from 0 */
	uint8_t *data;	 /* may be changed */
	uint32_t len;	 /* may be changed, at most SRDMA_MAX_PACKET */
};

/* A way that wires share: what would wait there for too long is dropped. */
struct srdma_mem_way {
	uint64_t rate;	/* bytes per us */
	uint64_t queue; /* ns that a datagram may wait */
	uint64_t busy;	/* until then; 0 at first, like what follows */
	uint64_t bytes; /* taken */
	uint64_t taken, dropped;
};

struct srdma_mem_wire_params {
	uint32_t slots; /* datagrams under way per conn; 0: 128 */
	uint32_t bufs;	/* of each port's pool; 0: 256; read at create only */
	int window;	/* 0: 64; read at create only */
	/*
	 * The caller's clock, in ns: then a direction of a connection takes
	 * rate bytes per us, and what it took arrives latency ns later. NULL:
	 * what is flushed is there.
	 */
	const uint64_t *now;
	uint64_t rate, latency;	   /* rate 0: no limit */
	struct srdma_mem_way *way; /* then, of each side; NULL: none */
	void *ctx;		   /* of the hooks */
	/* Asked at each commit. NULL: all pass. */
	enum srdma_mem_fate (*fate)(void *ctx, struct srdma_mem_datagram *d);
	/* 1: reserve of this side finds no room. NULL: as slots permit. */
	int (*full)(void *ctx, int side);
	/* Asked when this side connects anew. NULL: all are answered. */
	enum srdma_mem_call (*call)(void *ctx, int side);
};

/*
 * Two joined wire ports with the addresses "a" and "b". connect() to "b" on
 * a gives SRDMA_EV_UP there and SRDMA_EV_ACCEPT on b; to the own address
 * both come to the same port. A second connect to an address that is
 * connected returns the same conn, and UP again. Datagrams move at flush.
 */
int srdma_port_mem_wire_pair(struct srdma_port **a, struct srdma_port **b,
			     const struct srdma_mem_wire_params *params);

/* The port that was joined to this one is destroyed: another one in its place,
 * as of a worker that starts again. 0 or -ENOMEM. */
int srdma_port_mem_wire_again(struct srdma_port *port, struct srdma_port **out);

/* When the next datagram reaches port; UINT64_MAX: none is under way. */
uint64_t srdma_port_mem_due(const struct srdma_port *port);

/* Deliver what SRDMA_MEM_HOLD and SWAP keep back of port's datagrams. */
void srdma_port_mem_release(struct srdma_port *port);

/* Put a datagram of nobody before conn. 0, -EMSGSIZE, -ENOMEM, -ENOTCONN. */
int srdma_port_mem_inject(struct srdma_conn *conn, const uint8_t *data,
			  uint32_t len);

/* End the wire under conn: SRDMA_EV_DOWN on both sides. */
void srdma_port_mem_cut(struct srdma_conn *conn);

/* Nobody connects to port: SRDMA_EV_ACCEPT; what is sent there is lost. 0 or
 * -ENOMEM. */
int srdma_port_mem_intrude(struct srdma_port *port, struct srdma_conn **conn);

/* --- host ------------------------------------------------------------- */

struct srdma_mem_host_params {
	uint32_t bufs;	    /* 0: 256; read at create only */
	uint32_t dma_polls; /* DMA ends in the n-th poll after; 0: at once */
	void *ctx;	    /* of the hook */
	/*
	 * Asked before each DMA; an atomic writes. 0: do it; -EAGAIN: no room now; else it
	 * fails with this -errno. NULL: all succeed.
	 */
	int (*dma)(void *ctx, const struct srdma_dma *dma, int writes);
};

/*
 * A host port. leg_open makes a leg without a process behind it, gives
 * SRDMA_EV_UP in the next poll. Regions are the process's own memory at
 * their addr. DMA of a leg closed meanwhile is reported with -ECANCELED
 * and conn NULL.
 */
int srdma_port_mem_host(struct srdma_port **out,
			const struct srdma_mem_host_params *params);

/* Post a descriptor as the host would. 0, -EMSGSIZE, -ENOMEM, -EAGAIN. */
int srdma_port_mem_post(struct srdma_conn *leg, const uint8_t *desc,
			uint32_t len);

/* The completion ring: ring records of SRDMA_RECORD_LEN, zero at first. */
uint8_t *srdma_port_mem_ring(struct srdma_conn *leg);

/* The host vanishes: open DMA ends with -ECONNRESET, then SRDMA_EV_DOWN. */
void srdma_port_mem_kill(struct srdma_conn *leg);

#endif
