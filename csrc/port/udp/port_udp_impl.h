/*
 * Private state of the UDP port, shared by the port_udp files only.
 *
 * A conn is CONNECTED (made by connect(), used to send only), or it stands for
 * a source address: PASSING until the next poll, or KEPT until it is closed.
 * Datagrams are always reported on a PASSING or KEPT conn, so that the
 * CONNECTED one may be closed while QPs of the peer still send.
 */
#ifndef SRDMA_PORT_UDP_IMPL_H
#define SRDMA_PORT_UDP_IMPL_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/icrc.h"
#include "port/udp/port_udp.h"
#include "wire/wire.h"

enum srdma_udp_limits {
	SRDMA_UDP_CONNS = 1024, /* limit of CONNECTED conns; the same limit
				   applies to KEPT conns */
	SRDMA_UDP_BUCKETS = 2048,
	SRDMA_UDP_BURST = 32,	/* messages per recvmmsg */
	SRDMA_UDP_LOOKS = 128,	/* datagrams examined per poll */
	SRDMA_UDP_ROOM = 65536, /* bytes; a received message is shorter */
	SRDMA_UDP_SLOTS = 256,	/* datagrams committed, not sent */
	SRDMA_UDP_TRAIN = 64,	/* datagrams of a train that is sent */
	SRDMA_UDP_TRAIN_BYTES = 65507,
	SRDMA_UDP_BUFS = 64, /* datagrams handed up at one time */
	SRDMA_UDP_STRIDE = (SRDMA_MAX_PACKET + SRDMA_ICRC_LEN + 63) & ~63,
	SRDMA_UDP_SHORTEST = SRDMA_BTH_LEN + SRDMA_STH_LEN + SRDMA_ICRC_LEN,
	SRDMA_UDP_LONGEST = SRDMA_MAX_PACKET + SRDMA_ICRC_LEN,
};

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
	struct srdma_udp_conn *next; /* in the free list, connected list or
					bucket */
	union srdma_udp_addr peer;
	struct srdma_icrc out; /* srdma_udp_conn_out() */
	uint32_t refs;
	uint8_t kind; /* enum srdma_udp_kind */
	uint8_t up_due;
};

/* Ancillary data of a message: the length of a train's datagrams. */
union srdma_udp_control {
	struct cmsghdr align;
	uint8_t bytes[CMSG_SPACE(sizeof(int))];
};

/*
 * Received messages, each of one datagram or of a train (docs/protocol.md 11a).
 * Datagrams are handed up where they lie: no message is received while one of
 * them was not put back.
 */
struct srdma_udp_rx {
	struct mmsghdr msg[SRDMA_UDP_BURST];
	struct iovec iov[SRDMA_UDP_BURST];
	union srdma_udp_addr from[SRDMA_UDP_BURST];
	union srdma_udp_control control[SRDMA_UDP_BURST];
	struct srdma_icrc icrc; /* of datagrams from icrc_from */
	union srdma_udp_addr icrc_from;
	uint8_t *bytes; /* BURST * ROOM bytes */
	struct srdma_buf buf[SRDMA_UDP_BUFS], *free;
	uint32_t held;	  /* bufs that are not free */
	uint32_t at, got; /* messages [at, got) are not processed yet */
	uint32_t taken;	  /* bytes of message `at` that were processed */
	uint32_t size;	  /* bytes of each datagram of message `at` but its
			     last */
	uint32_t most;	  /* datagrams in the longest train since the last
			     recvmmsg, 1..BURST */
	uint8_t dry;	  /* the last recvmmsg of this turn got less than it
			     asked for, and no poll said so yet */
};

/* Ring of datagrams to send. head and tail count datagrams, modulo 2^32, from the
 * last time on that the ring was empty. */
struct srdma_udp_tx {
	struct mmsghdr msg[SRDMA_UDP_SLOTS]; /* of the present sendmmsg */
	union srdma_udp_control control[SRDMA_UDP_SLOTS];
	struct iovec iov[SRDMA_UDP_SLOTS];
	union srdma_udp_addr to[SRDMA_UDP_SLOTS];
	uint8_t *bytes; /* SLOTS * STRIDE bytes */
	uint32_t head, tail;
	uint32_t alone; /* datagrams to send before the next train */
	uint32_t pause; /* value of alone when a train is refused */
	uint8_t bare[SRDMA_UDP_SLOTS]; /* 1: has no ICRC (11a) */
	uint8_t checksums; /* 1: IPv4 datagrams leave with UDP checksum */
	uint8_t blocked;   /* socket buffer full: EPOLLOUT is armed */
};

struct srdma_udp_port {
	struct srdma_port base;
	int sock, epoll;
	union srdma_udp_addr own;
	socklen_t addr_len;
	struct srdma_udp_rx rx;
	struct srdma_udp_tx tx;
	struct srdma_udp_stats stats;
	struct srdma_udp_conn *conns; /* all conns, allocated once */
	struct srdma_udp_conn *free, *connected;
	struct srdma_udp_conn *bucket[SRDMA_UDP_BUCKETS]; /* PASSING and KEPT
							     conns */
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

/* Both addresses are of the port's family. */
int srdma_udp_addr_same(const union srdma_udp_addr *a,
			const union srdma_udp_addr *b);
/* 1 for an address that a datagram can come from and be sent to. */
int srdma_udp_conn_sendable(const union srdma_udp_addr *a);
int srdma_udp_conn_connect(struct srdma_port *port, const char *address,
			   struct srdma_conn **conn);
void srdma_udp_conn_close(struct srdma_conn *conn);
int srdma_udp_conn_keep(struct srdma_conn *conn);
int srdma_udp_conn_same(const struct srdma_conn *a, const struct srdma_conn *b);
/*
 * The KEPT or PASSING conn of a sender, else a new PASSING one; NULL: none
 * free.
 */
struct srdma_udp_conn *srdma_udp_conn_passing(struct srdma_udp_port *port,
					      const union srdma_udp_addr *from);
/* Free the PASSING conns that were not kept. */
void srdma_udp_conn_forget(struct srdma_udp_port *port);
/* The headers of datagrams to the peer. */
struct srdma_icrc *srdma_udp_conn_out(struct srdma_udp_conn *c);
/* A connected conn whose SRDMA_EV_UP is pending. Requires ups_due > 0. */
struct srdma_udp_conn *srdma_udp_conn_take_up(struct srdma_udp_port *port);

/* --- port_udp_train.c: trains of datagrams ---------------------------- */

/*
 * The bytes of each datagram but the last, which may be shorter, of a message
 * that was received; msg_len if the message is one datagram.
 */
uint32_t srdma_udp_train_size(struct mmsghdr *msg);
/*
 * The number of datagrams in slots [at, end) of the ring that can leave as one
 * train, at least 1. at < end.
 */
uint32_t srdma_udp_train_length(const struct srdma_udp_tx *tx, uint32_t at,
				uint32_t end);
/*
 * Makes a message of several datagrams a train whose datagrams have the length
 * of the first one. The message refers to control.
 */
void srdma_udp_train_mark(struct msghdr *msg, union srdma_udp_control *control);

/* --- port_udp_receive.c: from the socket -------------------------------- */

void srdma_udp_receive_init(struct srdma_udp_port *port);
int srdma_udp_receive_poll(struct srdma_port *port, struct srdma_event *ev,
			   int n);
void srdma_udp_receive_put(struct srdma_buf *buf);
/* The next poll is of another turn, in which datagrams may have arrived. */
void srdma_udp_receive_end_turn(struct srdma_udp_port *port);
/* 1 if there are events that the socket's descriptor does not signal. */
int srdma_udp_receive_waiting(const struct srdma_udp_port *port);

/* --- port_udp_send.c: to the socket ------------------------------------- */

void srdma_udp_send_init(struct srdma_udp_port *port);
uint8_t *srdma_udp_send_reserve(struct srdma_conn *conn);
int srdma_udp_send_commit(struct srdma_conn *conn, uint32_t len);
int srdma_udp_send_commit_bare(struct srdma_conn *conn, uint32_t len);
void srdma_udp_send_flush(struct srdma_port *port);
/* 1 if datagrams wait although the socket has room. */
int srdma_udp_send_waiting(const struct srdma_udp_port *port);

#endif
