/*
 * Private state of the verbs port, shared by the port_verbs files only.
 *
 * Life of a connection: leg_open, connect or a REQ from a peer creates it with
 * all its memory, its QP and its room in a CQ. The CM moves it to UP. An error
 * or the peer moves it to ENDED. When the CQs are empty, it becomes FINISHED:
 * its QP and id are destroyed, so all DMA has ended; outstanding DMA is
 * reported with -EIO, then DOWN. close frees it in any state.
 */
#ifndef SRDMA_PORT_VERBS_IMPL_H
#define SRDMA_PORT_VERBS_IMPL_H

#include <sys/queue.h>
#include <sys/socket.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/addr.h"
#include "port/verbs/port_verbs.h"
#include "wire/wire.h"

enum srdma_verbs_limits {
	SRDMA_VERBS_WIRES = 1024, /* limit of wire connections of a port */
	SRDMA_VERBS_HALF = 64,	  /* of these, not confirmed by the peer */
	SRDMA_VERBS_LEGS = 256,
	SRDMA_VERBS_CQS = 256,
	SRDMA_VERBS_CQE = 16384, /* wanted size of a CQ */
	SRDMA_VERBS_STRIDE = (SRDMA_MAX_PACKET + 63) & ~63,
	SRDMA_VERBS_SPARE = 16,	   /* receives of a leg in addition to its
				      ring */
	SRDMA_VERBS_SIGNAL = 16,   /* every n-th send is signaled */
	SRDMA_VERBS_REFILL = 8,	   /* receives are reposted n at a time */
	SRDMA_VERBS_INLINE = 128,  /* wanted max_inline_data */
	SRDMA_VERBS_CM_TURN = 256, /* polls between checks of the CM */
};

enum srdma_verbs_state {
	SRDMA_VERBS_WAITING, /* a leg that its host may connect to */
	SRDMA_VERBS_RESOLVING,
	SRDMA_VERBS_CONNECTING, /* REQ or REP sent */
	SRDMA_VERBS_UP,
	SRDMA_VERBS_ENDED,    /* its completions may still be in the CQ */
	SRDMA_VERBS_FINISHED, /* no QP, no id */
};

struct srdma_verbs_port;
struct srdma_verbs_conn;

struct srdma_verbs_cq {
	struct ibv_cq *cq;
	uint32_t size;
	uint32_t used;	  /* CQ entries reserved by QPs */
	uint32_t leaving; /* entries of destroyed QPs, released when the CQ
			     is empty */
};

/* Registered memory divided into buffers, of the pool or of a connection. */
struct srdma_verbs_slab {
	LIST_ENTRY(srdma_verbs_slab) link;
	struct srdma_verbs_conn *conn; /* NULL: the pool, or the connection
					  was closed */
	uint8_t *mem;
	size_t size;
	struct ibv_mr *mr;
	struct srdma_verbs_buf *bufs;
	uint32_t lent; /* receive buffers held by the relay */
};

struct srdma_verbs_buf {
	struct srdma_buf base;
	struct srdma_verbs_slab *slab;
	struct ibv_recv_wr wr;
	struct ibv_sge sge;
};

/* Purpose of a send queue entry. */
struct srdma_verbs_send {
	uint64_t cookie;
	uint8_t dma; /* report its completion */
};

struct srdma_verbs_conn {
	struct srdma_conn base;
	struct srdma_verbs_port *port;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct srdma_verbs_cq *cq;
	struct srdma_verbs_slab *slab;
	uint32_t name;		  /* index and generation, as in wr_id */
	uint8_t state;		  /* enum srdma_verbs_state */
	uint8_t accepted;	  /* passive side: reported as ACCEPT, not as
				     UP */
	uint8_t tries;		  /* attempts to resolve the peer's address */
	uint8_t up_due, down_due; /* events to be reported */
	uint8_t is_ready, is_dirty;
	uint8_t is_half; /* accepted, and not confirmed by the peer yet */
	int status;	 /* status of DOWN */
	TAILQ_ENTRY(srdma_verbs_conn)
	ready; /* list of connections with
						events to report */
	TAILQ_ENTRY(srdma_verbs_conn)
	dirty; /* list of connections with
						sends to post */
	TAILQ_ENTRY(srdma_verbs_conn) ending;
	TAILQ_ENTRY(srdma_verbs_conn) half;

	uint32_t receives;
	struct srdma_buf *rx_head, **rx_tail; /* received, not reported yet */
	struct ibv_recv_wr *refill;	      /* returned, not reposted yet */
	uint32_t refills;

	/*
	 * Serial numbers of sends: told (reported) <= done <= posted <= tail.
	 */
	struct ibv_send_wr *wrs;
	struct ibv_sge *sges;
	struct srdma_verbs_send *sends;
	uint8_t *send_mem; /* packets of STRIDE bytes, or records */
	uint32_t depth;
	uint32_t told, done, posted, tail;
	uint32_t failed;   /* FINISHED: this send and later ones failed */
	uint32_t read_end; /* serial number after the newest READ or atomic */
	uint32_t dma_end;  /* serial number after the newest DMA */
	uint32_t inline_max;

	uint8_t token[SRDMA_TOKEN_LEN]; /* valid while WAITING */
	uint64_t ring_addr;
	uint32_t ring_rkey, ring;

	uint64_t beat_at;  /* time of the newest heartbeat, ns */
	uint32_t beat_end; /* serial number after it */
};

struct srdma_verbs_region {
	struct srdma_region base;
	uint32_t rkey;
};

TAILQ_HEAD(srdma_verbs_list, srdma_verbs_conn);
LIST_HEAD(srdma_verbs_slabs, srdma_verbs_slab);

struct srdma_verbs_port {
	struct srdma_port base;
	char why[SRDMA_PORT_VERBS_WHY_LEN];
	enum srdma_port_verbs_kind kind;
	uint32_t receives, sends;
	struct ibv_context *context;
	struct ibv_device_attr limits;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct rdma_event_channel *cm;
	struct rdma_cm_id *listener;
	struct sockaddr_storage own; /* local address, port 0 */
	int epoll;
	struct srdma_verbs_cq cqs[SRDMA_VERBS_CQS];
	uint32_t cq_count;
	struct srdma_verbs_slab *pool;
	struct srdma_verbs_slabs orphans; /* slabs of closed connections with
					     buffers still lent */
	struct srdma_buf *free;
	uint32_t free_count;
	struct srdma_verbs_conn *conns[SRDMA_VERBS_WIRES];
	uint32_t conn_count, conn_max;
	uint16_t generation;
	uint32_t cm_turn; /* polls until the next check of the CM */
	struct srdma_verbs_list ready, dirty, ending;
	struct srdma_verbs_list half; /* oldest first */
	uint32_t half_count;
};

/* Set why and return err. */
int srdma_verbs_refuse(struct srdma_verbs_port *port, int err, const char *fmt,
		       ...) __attribute__((format(printf, 3, 4)));

/* --- port_verbs_addr.c --- */
/*
 * Store an address of the device (RoCE v2) with port 0 in *out: its first IPv4
 * address, or if it has no IPv4 address its first global IPv6 address. Returns
 * 0 or -errno.
 */
int srdma_verbs_addr_of_device(struct ibv_context *context,
			       struct sockaddr_storage *out);
/* Complete a link-local address of the device by its network interface. */
void srdma_verbs_addr_scope(struct ibv_context *context,
			    struct sockaddr_storage *addr);
/* Complete a link-local address by the network interface of another one. */
void srdma_verbs_addr_same_scope(struct sockaddr_storage *addr,
				 const struct sockaddr_storage *like);

/* --- port_verbs_pool.c: registered memory and buffers --- */
/*
 * Register n buffers of stride bytes, followed by extra bytes at mem + n *
 * stride. Returns 0 or -errno.
 */
int srdma_verbs_slab_create(struct srdma_verbs_slab **out,
			    struct srdma_verbs_port *port, uint32_t n,
			    uint32_t stride, size_t extra);
void srdma_verbs_slab_destroy(struct srdma_verbs_slab *slab);
/* Put the first n buffers of the pool on the free list. */
void srdma_verbs_pool_fill(struct srdma_verbs_port *port, uint32_t n);
/*
 * Detach the slab from the closing connection; it is freed when its last buffer
 * returns.
 */
void srdma_verbs_slab_orphan(struct srdma_verbs_conn *conn);
struct srdma_buf *srdma_verbs_buf_get(struct srdma_port *port);
void srdma_verbs_buf_put(struct srdma_buf *buf);
int srdma_verbs_buf_free(struct srdma_port *port);

/* --- port_verbs_conn.c: connections and their QPs --- */
/*
 * Create a connection with memory and QP and enter it in the table. ring > 0: a
 * leg with a completion ring of that many records. Returns 0 or -errno.
 */
int srdma_verbs_conn_create(struct srdma_verbs_conn **out,
			    struct srdma_verbs_port *port, uint32_t ring);
/*
 * Move the QP to INIT and post all receives. id must be set. Returns 0 or
 * -errno.
 */
int srdma_verbs_conn_init(struct srdma_verbs_conn *conn);
/* Move the QP to RTR and RTS; reads is max_rd_atomic. Returns 0 or -errno. */
int srdma_verbs_conn_start(struct srdma_verbs_conn *conn, uint8_t reads);
/* Mark as connected: UP or ACCEPT will be reported. */
void srdma_verbs_conn_up(struct srdma_verbs_conn *conn);
/* Mark as ended with status. It is finished when the CQs are empty. */
void srdma_verbs_conn_end(struct srdma_verbs_conn *conn, int status);
/*
 * Destroy QP and id, and let the outstanding sends fail; DOWN will be reported.
 */
void srdma_verbs_conn_finish(struct srdma_verbs_conn *conn);
/* Put the connection on the list of those with events to report. */
void srdma_verbs_conn_ready(struct srdma_verbs_conn *conn);
/* The connection named by wr_id; NULL: it no longer exists. */
struct srdma_verbs_conn *srdma_verbs_conn_find(struct srdma_verbs_port *port,
					       uint64_t wr_id);
void srdma_verbs_conn_close(struct srdma_conn *conn);
/* A request of anybody was accepted on a wire. If the peers of SRDMA_VERBS_HALF
 * others did not confirm theirs yet, the oldest of these is closed. */
void srdma_verbs_conn_half(struct srdma_verbs_conn *conn);

/* --- port_verbs_cq.c: completion queues, sleeping --- */
/*
 * Reserve need entries in a CQ; creates one if none has room. Returns 0 or
 * -errno.
 */
int srdma_verbs_cq_take(struct srdma_verbs_port *port, uint32_t need,
			struct srdma_verbs_cq **out);
/* Release need entries as soon as the CQ has been emptied. */
void srdma_verbs_cq_leave(struct srdma_verbs_cq *cq, uint32_t need);
/*
 * Take completions until n are taken or the CQs are empty. Returns 1 if all CQs
 * were empty at the end.
 */
int srdma_verbs_cq_collect(struct srdma_verbs_port *port, int n);
/* Take the completions that are in the CQ of a connection. */
void srdma_verbs_cq_empty(struct srdma_verbs_conn *conn);
int srdma_verbs_cq_arm(struct srdma_port *port);
void srdma_verbs_cq_disarm(struct srdma_port *port);
void srdma_verbs_cq_destroy(struct srdma_verbs_port *port);

/* --- port_verbs_cm.c: the connection manager --- */
/*
 * Listen on text, or if it is NULL on an address of the device and any port.
 * Returns 0 or -errno.
 */
int srdma_verbs_cm_listen(struct srdma_verbs_port *port, const char *text);
/*
 * Process asynchronous events of the device, and some events of the CM. If there
 * may be more, the next poll of the port calls it again.
 */
void srdma_verbs_cm_poll(struct srdma_verbs_port *port);
int srdma_verbs_cm_connect(struct srdma_port *port, const char *address,
			   struct srdma_conn **conn);

/* --- port_verbs_data.c: the data path --- */
int srdma_verbs_data_poll(struct srdma_port *port, struct srdma_event *ev,
			  int n);
uint8_t *srdma_verbs_data_reserve(struct srdma_conn *conn);
int srdma_verbs_data_commit(struct srdma_conn *conn, uint32_t len);
void srdma_verbs_data_flush(struct srdma_port *port);
/* Queue the work request at tail; flush posts it. */
void srdma_verbs_data_queue(struct srdma_verbs_conn *conn, unsigned int flags);
/* Process one completion of a connection that is not FINISHED. */
void srdma_verbs_data_completion(struct srdma_verbs_conn *conn,
				 const struct ibv_wc *wc);

/* --- port_verbs_leg.c: legs, regions, DMA --- */
int srdma_verbs_leg_open(struct srdma_port *port,
			 const struct srdma_leg_params *params,
			 struct srdma_conn **leg,
			 struct srdma_leg_answer *answer);
int srdma_verbs_leg_region_open(struct srdma_conn *leg,
				const struct srdma_region_params *params,
				struct srdma_region **region);
void srdma_verbs_leg_region_close(struct srdma_region *region);
int srdma_verbs_leg_read(const struct srdma_dma *dma);
int srdma_verbs_leg_write(const struct srdma_dma *dma);
/*
 * Atomic with respect to the device; with respect to CPUs according to its
 * atomic_cap.
 */
int srdma_verbs_leg_atomic(const struct srdma_dma *dma,
			   const struct srdma_atomic *how);
int srdma_verbs_leg_complete(struct srdma_conn *leg, uint32_t slot,
			     const uint8_t *record);
/*
 * The next work request of the leg, at tail. Returns 0, -EAGAIN (full) or -EPIPE
 * (not up).
 */
int srdma_verbs_leg_next(struct srdma_verbs_conn *conn,
			 struct ibv_send_wr **wr);

/* --- port_verbs_beat.c: heartbeats of legs --- */
uint64_t srdma_verbs_beat_keepalive(struct srdma_port *port, uint64_t now);

/*
 * wr_id: connection name (32 bits) | 1 for a receive, 0 for a send (1 bit) |
 * index of the receive buffer, or serial number of the send (31 bits).
 */
static inline uint64_t srdma_verbs_wr_id(const struct srdma_verbs_conn *conn,
					 int receive, uint32_t number)
{
	return (uint64_t)conn->name << 32 | (uint32_t)receive << 31 |
	       (number & 0x7fffffff);
}

static inline uint32_t srdma_verbs_slot(const struct srdma_verbs_conn *conn,
					uint32_t serial)
{
	return serial & (conn->depth - 1);
}

#endif
