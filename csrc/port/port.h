/*
 * A port: what a relay sees of a device. The host port reaches the own
 * hosts (legs), the wire port reaches other workers; both are bursts of
 * datagrams, and the host port also does DMA. Behind it stand port_shm,
 * port_verbs, port_udp and port_mem (tests). Ports never see keys; they
 * trust nothing that a peer or host wrote: what they hand up lies in private
 * memory.
 *
 * One thread at a time. No call blocks. All return 0 or more, or -errno.
 */
#ifndef SRDMA_PORT_H
#define SRDMA_PORT_H

#include <stddef.h>
#include <stdint.h>

#include "atomic.h"
#include "base/name.h"

struct srdma_port;
struct srdma_wire_counts;

enum { SRDMA_TOKEN_LEN = 16, SRDMA_LEG_FDS = 3 };

/*
 * A buffer of a port: private memory that the device may read and write.
 * Owned by who got it, until buf_put, or until an event gives it back.
 */
struct srdma_buf {
	uint8_t *data;
	uint32_t len; /* bytes in use */
	uint32_t cap; /* >= SRDMA_MAX_PACKET */
	struct srdma_port *port;
	struct srdma_buf *next; /* free list, or its owner's */
};

/* A leg or a wire connection. A port embeds it; user belongs to the relay. */
struct srdma_conn {
	struct srdma_port *port;
	void *user;
};

/* A piece of host memory that DMA may touch, as the leg's host registered. */
struct srdma_region {
	struct srdma_conn *leg;
	uint64_t base; /* the host's virtual address */
	uint64_t length;
};

struct srdma_region_params {
	uint64_t addr, length;
	uint32_t access;    /* verbs flags: is the region written? */
	uint32_t host_rkey; /* verbs */
	int fd;		    /* shm: memfd, or -1; stays the caller's */
	uint64_t fd_offset;
};

/*
 * One DMA. The relay has checked key, bounds and rights against the region;
 * the port relies on it. buf->data + buf_at holds len bytes.
 */
struct srdma_dma {
	struct srdma_region *region;
	uint64_t addr;
	uint32_t len;
	struct srdma_buf *buf;
	uint32_t buf_at;
	uint64_t cookie; /* comes back in SRDMA_EV_DMA_DONE */
};

enum srdma_event_kind {
	SRDMA_EV_RECV = 1, /* buf: a datagram; the relay must buf_put it */
	SRDMA_EV_DMA_DONE, /* cookie, status 0 or -errno; per leg in order */
	SRDMA_EV_UP, /* conn: connect() succeeded, or a leg's host arrived */
	SRDMA_EV_ACCEPT, /* wire: a peer connected; conn is new */
	SRDMA_EV_DOWN,	 /* conn ended; no event of it follows. All its DMA has
			  been reported. The relay calls close */
};

struct srdma_event {
	enum srdma_event_kind kind;
	int status;
	struct srdma_conn *conn;
	struct srdma_buf *buf;
	uint64_t cookie;
};

/* Opening a leg (docs/protocol.md 10 OPEN, 9, 11). */
struct srdma_leg_params {
	uint32_t ring;		/* records, and descriptors at most in flight */
	int fds[SRDMA_LEG_FDS]; /* shm: leg memfd, eventfd, bell; else -1.
				   The port dups or maps what it keeps */
	int pid;		/* of the host, for process_vm_* */
	uint8_t shared; /* the leg is for a trust group (3.4): not the port's */
	uint8_t token[SRDMA_TOKEN_LEN]; /* verbs: presented by the host */
};

struct srdma_leg_answer {
	char address[SRDMA_NAME_LEN]; /* verbs: IP:PORT of the leg, else "" */
	int fds[2]; /* shm: worker's eventfd and bell (the port's; to be sent,
		       not closed); else -1 */
};

struct srdma_port_ops {
	/* Collect up to n events. Returns how many. */
	int (*poll)(struct srdma_port *port, struct srdma_event *ev, int n);

	/*
	 * Wire: room for one datagram of SRDMA_MAX_PACKET bytes, written in
	 * place and then sent by commit in order, or given up by the next
	 * reserve. NULL: full now, try after the next poll.
	 */
	uint8_t *(*reserve)(struct srdma_conn *conn);
	int (*commit)(struct srdma_conn *conn, uint32_t len);
	/*
	 * Wire, or NULL: where up to n datagrams lie that poll is about to give,
	 * in their order. Only a hint: the peer may still change their bytes, of
	 * which SRDMA_BTH_LEN may be read, until the next poll.
	 */
	int (*ahead)(struct srdma_port *port, const uint8_t **data, int n);
	/* Hand over what was committed, ring the bells. Once per burst. */
	void (*flush)(struct srdma_port *port);

	/* Private DMA-able buffers; NULL when the pool is empty. */
	struct srdma_buf *(*buf_get)(struct srdma_port *port);
	void (*buf_put)(struct srdma_buf *buf);
	/* Buffers free for buf_get now. */
	int (*buf_free)(struct srdma_port *port);

	/*
	 * Host: DMA between buf and region. 1: done already; 0: under way,
	 * SRDMA_EV_DMA_DONE follows (buf must stay until then); -EAGAIN: full
	 * now; else -errno: this DMA failed. Per leg DMAs take effect and
	 * complete in order, reads, writes and atomics alike.
	 */
	int (*read)(const struct srdma_dma *dma);
	int (*write)(const struct srdma_dma *dma);
	/*
	 * Host: the same of an atomic on the 8 bytes at dma->addr, a multiple
	 * of 8. Atomics of all legs of the port, in whatever order, are each
	 * one step to one another; a port says what else they are one step to.
	 * What was there before lands in the buffer, a number in own order.
	 */
	int (*atomic)(const struct srdma_dma *dma,
		      const struct srdma_atomic *how);
	/*
	 * Host: put a 32-byte completion record into slot of the leg's ring,
	 * after all DMA before it, and ring. 0, -EAGAIN, -errno.
	 */
	int (*complete)(struct srdma_conn *leg, uint32_t slot,
			const uint8_t *record);

	/* Host, bring-up. region_close only when no DMA names the region. */
	int (*leg_open)(struct srdma_port *port,
			const struct srdma_leg_params *params,
			struct srdma_conn **leg,
			struct srdma_leg_answer *answer);
	int (*region_open)(struct srdma_conn *leg,
			   const struct srdma_region_params *params,
			   struct srdma_region **region);
	void (*region_close)(struct srdma_region *region);

	/*
	 * Wire, bring-up: connect to a peer's wire address. The answer comes
	 * as SRDMA_EV_UP or SRDMA_EV_DOWN. On shm a connection to a peer
	 * that exists already is shared: the same conn, one more reference.
	 */
	int (*connect)(struct srdma_port *port, const char *address,
		       struct srdma_conn **conn);
	/*
	 * Wire without connections of its own (port_udp), else NULL: datagrams
	 * that a peer sends come on a passing conn, its user NULL, which lasts
	 * until the next poll. keep makes it a connection of one reference.
	 * 0, -ENOSPC.
	 */
	int (*keep)(struct srdma_conn *conn);
	/* On such a wire: both lead to the same peer. NULL like keep. */
	int (*same)(const struct srdma_conn *a, const struct srdma_conn *b);
	/* Leg or wire: drop one reference; the last one ends it at once. */
	void (*close)(struct srdma_conn *conn);

	/*
	 * Sleeping: fd is readable when something happened after a
	 * successful arm; arm returns 1 if there is work already, as room to
	 * send that came (do not sleep). disarm after waking.
	 */
	int (*fd)(struct srdma_port *port);
	int (*arm)(struct srdma_port *port);
	void (*disarm)(struct srdma_port *port);

	void (*destroy)(struct srdma_port *port);
};

enum srdma_port_kind {
	SRDMA_PORT_SHM = 1,
	SRDMA_PORT_VERBS = 2,
	SRDMA_PORT_MEM = 3,
	SRDMA_PORT_UDP = 4
};

/* What every port begins with. */
struct srdma_port {
	const struct srdma_port_ops *ops;
	enum srdma_port_kind kind;
	int window;   /* packet numbers a receiver must keep: 64 or 1024 */
	uint32_t mtu; /* wire: most payload of a packet; 0: SRDMA_MAX_PAYLOAD */
	char address[SRDMA_NAME_LEN]; /* wire: the address told to peers */
	const char *why; /* text of the last bring-up failure, or NULL */
	const struct srdma_wire_counts *counts; /* stats.h; NULL: none */
};

#endif
