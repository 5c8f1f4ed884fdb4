/*
 * A port is a relay's view of a device. The host port reaches the local hosts
 * (legs); the wire port reaches other workers. Both carry bursts of datagrams,
 * and the host port also does DMA. The implementations are port_shm,
 * port_verbs, port_udp and port_mem (tests). A port never sees cryptographic
 * keys. It trusts nothing that a peer or host wrote: data that it hands up lies
 * in private memory.
 *
 * A port is used by one thread at a time. No call blocks. A call that returns
 * int returns 0 or more, or -errno.
 */
#ifndef SRDMA_PORT_H
#define SRDMA_PORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomic_op.h"
#include "base/name.h"

struct srdma_account;
struct srdma_port;
struct srdma_wire_counts;

enum { SRDMA_TOKEN_LEN = 16, SRDMA_LEG_FDS = 3 };

/*
 * A buffer of a port: private memory that the device may read and write. The
 * holder owns it until it calls buf_put. A DMA under way borrows it until
 * SRDMA_EV_DMA_DONE.
 */
struct srdma_buf {
	uint8_t *data;
	uint32_t len; /* bytes used */
	uint32_t cap; /* capacity in bytes: >= SRDMA_MAX_PACKET of buf_get, >=
			 len of a datagram */
	struct srdma_port *port;
	struct srdma_buf *next; /* link for the free list or the owner */
};

/* A leg or a wire connection. A port embeds it; user belongs to the relay. */
struct srdma_conn {
	struct srdma_port *port;
	void *user;
};

/* Host memory that DMA may access, as registered by the host of the leg. */
struct srdma_region {
	struct srdma_conn *leg;
	uint64_t base; /* virtual address in the host process */
	uint64_t length;
	/* The file that holds it, and its place there, where the port knows
	 * them; else ino is 0. */
	uint64_t dev, ino, file_at;
};

struct srdma_region_params {
	uint64_t addr, length;
	uint32_t access;    /* verbs access flags */
	uint32_t host_rkey; /* verbs: rkey of the host's MR */
	int fd;		    /* shm: memfd, or -1; the caller keeps ownership */
	uint64_t fd_offset;
};

/*
 * One DMA operation. The relay has checked key, bounds and rights against the
 * region; the port relies on that. buf->data + buf_at holds len bytes.
 */
struct srdma_dma {
	struct srdma_region *region;
	uint64_t addr;
	uint32_t len;
	struct srdma_buf *buf;
	uint32_t buf_at;
	uint64_t cookie; /* returned in SRDMA_EV_DMA_DONE */
};

enum srdma_event_kind {
	SRDMA_EV_RECV = 1, /* buf: a datagram; the relay must call buf_put */
	SRDMA_EV_DMA_DONE, /* cookie, status 0 or -errno; in order per leg */
	SRDMA_EV_UP,	 /* connect() succeeded, or the leg's host connected */
	SRDMA_EV_ACCEPT, /* wire: a peer connected; conn is new */
	SRDMA_EV_DOWN,	 /* conn ended. No event of conn follows, and all its
			    DMA has been reported. The relay calls close */
};

struct srdma_event {
	enum srdma_event_kind kind;
	int status;
	struct srdma_conn *conn;
	struct srdma_buf *buf;
	uint64_t cookie;
};

/* Parameters of a leg (docs/local-interface.md 2, 3 OPEN, 4). */
struct srdma_leg_params {
	uint32_t ring;		/* records in the completion ring; also the
				   maximum of descriptors in flight */
	int fds[SRDMA_LEG_FDS]; /* shm: leg memfd, wake-up socket,
				   doorbell; else
				   -1. The port duplicates or maps the ones
				   it keeps */
	/* shm: the process of the host, for process_vm_*, and a pidfd of it,
	 * which the port duplicates. pid 0: none */
	int pid, pidfd;
	uint8_t shared; /* the leg is for a trust group (3.4); unused by
			   ports */
	struct srdma_account *account;	/* to which the leg is charged; NULL:
					  one of the relay's own. Unused by
					  ports */
	uint8_t token[SRDMA_TOKEN_LEN]; /* verbs: the host presents it when
					   it connects */
};

struct srdma_leg_answer {
	char address[SRDMA_NAME_LEN]; /* verbs: IP:PORT of the leg, else "" */
	int fds[2]; /* shm: the worker's eventfd and doorbell, owned by the
		       port: send them, do not close them; else -1 */
};

struct srdma_port_ops {
	/* Fill ev with up to n events. Returns their number. */
	int (*poll)(struct srdma_port *port, struct srdma_event *ev, int n);

	/*
	 * Wire: returns room for one datagram of SRDMA_MAX_PACKET bytes. The
	 * caller writes the datagram in place and sends it with commit;
	 * datagrams leave in commit order. A reserve without a commit is
	 * discarded by the next reserve. NULL: no room now; retry after the
	 * next poll.
	 */
	uint8_t *(*reserve)(struct srdma_conn *conn);
	int (*commit)(struct srdma_conn *conn, uint32_t len);
	/*
	 * Wire, only if the port's bare is 1: as commit; the datagram has no
	 * ICRC (docs/protocol.md 11a). The peer must have consented.
	 */
	int (*commit_bare)(struct srdma_conn *conn, uint32_t len);
	/*
	 * Wire, may be NULL: prefetch hint. Stores the addresses of up to n
	 * datagrams that poll will return next, in order. SRDMA_BTH_LEN bytes
	 * of each may be read until the next poll; the peer may still change
	 * them. Returns their number.
	 */
	int (*prefetch)(struct srdma_port *port, const uint8_t **data, int n);
	/*
	 * Publish committed datagrams and ring doorbells. Call once per burst,
	 * after its polls: a poll that did not fill ev may be followed by one
	 * that returns 0 without looking, until flush.
	 */
	void (*flush)(struct srdma_port *port);

	/*
	 * Take a private DMA-able buffer. NULL: the pool is empty. Wire: may be
	 * NULL like buf_free. A port may receive nothing while datagrams that
	 * it handed up were not put back, although fd stays readable: they MUST
	 * be put back before the next arm.
	 */
	struct srdma_buf *(*buf_get)(struct srdma_port *port);
	void (*buf_put)(struct srdma_buf *buf);
	/* Number of buffers that buf_get can return now. */
	int (*buf_free)(struct srdma_port *port);

	/*
	 * Host: DMA between buf and region. Returns 1 if it has completed; 0 if
	 * it is under way: SRDMA_EV_DMA_DONE follows and buf must stay valid
	 * until then; -EAGAIN if there is no room now; another -errno if this
	 * DMA failed. The DMAs of one leg (reads, writes and atomics) take
	 * effect and complete in order.
	 */
	int (*read)(const struct srdma_dma *dma);
	int (*write)(const struct srdma_dma *dma);
	/*
	 * Host: an atomic on the 8 bytes at dma->addr, a multiple of 8. Returns
	 * the same values as read and write. All atomics of a port are atomic
	 * with respect to one another, across its legs; each port documents
	 * whether they are also atomic with respect to other accesses. The
	 * original value is stored in the buffer in host byte order.
	 */
	int (*atomic)(const struct srdma_dma *dma,
		      const struct srdma_atomic *how);
	/*
	 * Host: write a 32-byte completion record into a slot of the leg's
	 * ring, after all earlier DMA, and wake the host. Returns 0, -EAGAIN or
	 * another -errno.
	 */
	int (*complete)(struct srdma_conn *leg, uint32_t slot,
			const uint8_t *record);

	/*
	 * Host, may be NULL: sends heartbeats on legs, and ends the legs whose
	 * host does not acknowledge them, or does not let DMA end. now: ns of
	 * any monotonic clock. Returns the time of the next call, UINT64_MAX:
	 * after the next SRDMA_EV_UP or region_open. Earlier calls are allowed.
	 */
	uint64_t (*keepalive)(struct srdma_port *port, uint64_t now);

	/*
	 * Host, bring-up. Call region_close only when no DMA refers to the
	 * region.
	 */
	int (*leg_open)(struct srdma_port *port,
			const struct srdma_leg_params *params,
			struct srdma_conn **leg,
			struct srdma_leg_answer *answer);
	int (*region_open)(struct srdma_conn *leg,
			   const struct srdma_region_params *params,
			   struct srdma_region **region);
	void (*region_close)(struct srdma_region *region);
	/*
	 * Host, may be NULL: 0 if the region can be used, -EINPROGRESS while
	 * its memory is examined, or another -errno with `why`: it must be
	 * closed. DMA may be started before, and takes effect after.
	 */
	int (*region_ready)(struct srdma_region *region);

	/*
	 * Wire, bring-up: connect to a peer's wire address. SRDMA_EV_UP or
	 * SRDMA_EV_DOWN reports the result. Except on verbs, connecting to a
	 * peer that is connected already returns the same conn with one more
	 * reference.
	 */
	int (*connect)(struct srdma_port *port, const char *address,
		       struct srdma_conn **conn);
	/*
	 * Connectionless wire (port_udp), else NULL: a datagram from a peer
	 * arrives on a temporary conn whose user is NULL and which is valid
	 * until the next poll. keep makes it a connection with one reference.
	 * Returns 0 or -ENOSPC.
	 */
	int (*keep)(struct srdma_conn *conn);
	/*
	 * Connectionless wire: 1 if a and b have the same peer address. May be
	 * NULL like keep.
	 */
	int (*same)(const struct srdma_conn *a, const struct srdma_conn *b);
	/*
	 * Leg or wire: drop one reference. Dropping the last one ends the
	 * connection immediately.
	 */
	void (*close)(struct srdma_conn *conn);

	/*
	 * Sleeping. After a successful arm, fd becomes readable when something
	 * happens. arm returns 1 if there is work already, including new room
	 * to send: do not sleep then. Call disarm after waking.
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

/* Common first member of all ports. */
struct srdma_port {
	const struct srdma_port_ops *ops;
	enum srdma_port_kind kind;
	int window;   /* length of a receiver's replay window: 64 or 1024
			 packet numbers */
	uint8_t bare; /* wire: 1 if it takes and sends bare datagrams (11a) */
	uint32_t mtu; /* wire: maximum payload of a packet; 0:
			 SRDMA_MAX_PAYLOAD */
	char address[SRDMA_NAME_LEN]; /* wire: the address announced to peers */
	const char *why; /* text of the last bring-up failure, or NULL */
	const struct srdma_wire_counts *counts; /* stats.h; NULL: none */
};

#endif
