/*
 * The UDP port's own state, shared by the port_udp files only.
 *
 * A connection is CONNECTED (made by connect, sends only), or it is of an
 * address that datagrams came from: PASSING until the next poll, or KEPT
 * until it is closed. What arrives always comes on one of the latter two,
 * so that who connected may leave while the peer's QPs still talk.
 */
#ifndef SRDMA_PORT_UDP_IMPL_H
#define SRDMA_PORT_UDP_IMPL_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/icrc.h"
#include "port/pool.h"
#include "port/udp/port_udp.h"
#include "wire/wire.h"

enum srdma_udp_limits {
	SRDMA_UDP_CONNS = 1024, /* CONNECTED; and as many KEPT */
	SRDMA_UDP_BUCKETS = 2048,
	SRDMA_UDP_BURST = 32,  /* datagrams per call of the kernel */
	SRDMA_UDP_SLOTS = 256, /* committed, not sent */
	SRDMA_UDP_BUFS = 256,
	SRDMA_UDP_STRIDE = (SRDMA_MAX_PACKET + SRDMA_ICRC_LEN + 63) & ~63,
	SRDMA_UDP_SHORTEST = SRDMA_BTH_LEN + SRDMA_STH_LEN + SRDMA_ICRC_LEN,
	SRDMA_UDP_LONGEST = SRDMA_MAX_PACKET + SRDMA_ICRC_LEN,
};

_Static_assert((int)SRDMA_UDP_LONGEST <= (int)SRDMA_POOL_CAP,
	       "a buffer has room for a packet and its ICRC");

union srdma_udp_addr {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

enum srdma_udp_kind {
	SRDMA_UDP_FREE,
	SRDMA_UDP_CONNECTED,
	SRDMA_UDP_PASSING,
	SRDMA_UDP_KEPT,
};

struct srdma_udp_conn {
	struct srdma_conn base;
	struct srdma_udp_conn *next; /* of its list: free, connected, bucket */
	union srdma_udp_addr peer;
	struct srdma_icrc out;
	uint32_t refs;
	uint8_t kind; /* enum srdma_udp_kind */
	uint8_t up_due;
};

/* Datagrams taken from the kernel: bufs [0, loaded) are ready for more. */
struct srdma_udp_rx {
	struct mmsghdr msg[SRDMA_UDP_BURST];
	struct iovec iov[SRDMA_UDP_BURST];
	union srdma_udp_addr from[SRDMA_UDP_BURST];
	struct srdma_buf *buf[SRDMA_UDP_BURST]; /* NULL: handed up */
	uint32_t loaded;
	uint32_t at, got; /* [at, got) is not looked at yet */
};

/* Datagrams for the kernel, a ring: counts run free. */
struct srdma_udp_tx {
	struct mmsghdr msg[SRDMA_UDP_SLOTS];
	struct iovec iov[SRDMA_UDP_SLOTS];
	union srdma_udp_addr to[SRDMA_UDP_SLOTS];
	uint8_t *bytes; /* SLOTS of STRIDE */
	uint32_t head, tail;
	uint8_t blocked; /* the kernel has no room: epoll tells when */
};

struct srdma_udp_port {
	struct srdma_port base;
	int sock, epoll;
	union srdma_udp_addr own;
	socklen_t addr_len;
	struct srdma_pool *pool;
	struct srdma_udp_rx rx;
	struct srdma_udp_tx tx;
	struct srdma_udp_stats stats;
	struct srdma_udp_conn *conns; /* all there are */
	struct srdma_udp_conn *free, *connected;
	struct srdma_udp_conn *bucket[SRDMA_UDP_BUCKETS]; /* PASSING, KEPT */
	struct srdma_udp_conn *passing[SRDMA_UDP_BURST];
	uint32_t connected_count, kept_count, passing_count;
	uint32_t ups_due;
};

static inline struct srdma_udp_port *srdma_udp_port_of(struct srdma_port *port)
{
	return (struct srdma_udp_port *)port;
}

static inline struct srdma_udp_conn *srdma_udp_conn_of(struct srdma_conn *conn)
{
	return (struct srdma_udp_conn *)conn;
}

/* --- port_udp_conn.c: connections ------------------------------------- */

/* An address that a datagram can come from and be sent to. */
int srdma_udp_conn_sendable(const union srdma_udp_addr *a);
int srdma_udp_conn_connect(struct srdma_port *port, const char *address,
			   struct srdma_conn **conn);
void srdma_udp_conn_close(struct srdma_conn *conn);
int srdma_udp_conn_keep(struct srdma_conn *conn);
int srdma_udp_conn_same(const struct srdma_conn *a, const struct srdma_conn *b);
/* Of a sender: the KEPT or PASSING one, else a new PASSING one, or NULL. */
struct srdma_udp_conn *srdma_udp_conn_passing(struct srdma_udp_port *port,
					      const union srdma_udp_addr *from);
/* Forget those that nobody kept. */
void srdma_udp_conn_forget(struct srdma_udp_port *port);
/* One that was connected and not told yet; there is one. */
struct srdma_udp_conn *srdma_udp_conn_take_up(struct srdma_udp_port *port);

/* --- port_udp_data.c: the data path ----------------------------------- */

void srdma_udp_data_init(struct srdma_udp_port *port);
int srdma_udp_data_poll(struct srdma_port *port, struct srdma_event *ev, int n);
uint8_t *srdma_udp_data_reserve(struct srdma_conn *conn);
int srdma_udp_data_commit(struct srdma_conn *conn, uint32_t len);
void srdma_udp_data_flush(struct srdma_port *port);
/* 1: there are events that the socket does not tell of. */
int srdma_udp_data_waiting(const struct srdma_udp_port *port);

#endif
