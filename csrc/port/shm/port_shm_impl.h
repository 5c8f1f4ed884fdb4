/*
 * Private state shared by the files of port_shm: ports, connections, sleeping.
 */
#ifndef SRDMA_PORT_SHM_IMPL_H
#define SRDMA_PORT_SHM_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "port/shm/doorbell.h"
#include "port/pool.h"
#include "port/port.h"
#include "port/shm/port_shm.h"
#include "port/shm/ring.h"
#include "port/shm/shm.h"

/* A leg or a wire connection, as used by poll. */
struct srdma_shm_conn {
	struct srdma_conn conn;
	struct srdma_shm_conn *next;
	struct srdma_shm map;	    /* contains the rings */
	struct srdma_ringer ringer; /* doorbell of the other side */
	int wake;		    /* on which this side is woken, or -1: an
				       eventfd (leg), or a socket (wire) */
	bool wake_due;		    /* the socket has to be drained */
	struct srdma_ring rx;	    /* base is NULL until the connection is
				       up */
	struct srdma_ring tx;	    /* wire only */
	int status;		    /* status of EV_DOWN */
	bool up_due, accept_due;    /* events to be reported */
	uint32_t under_way;	    /* tasks of a leg (port_shm_process.h):
				       EV_DOWN waits for them */
	bool ended;		    /* EV_DOWN follows the datagrams left in
				       rx */
	bool down_told;
};

/* State common to the host and the wire port. */
struct srdma_shm_port {
	struct srdma_port port;
	struct srdma_pool *pool;
	struct srdma_doorbell bell;
	int epoll;
	void (*close_file)(int fd); /* closes what a peer passed or may have
				       filled */
	struct srdma_shm_conn *conns;
	struct srdma_shm_conn *turn; /* first connection of the next poll */
	uint32_t count;
	uint32_t until_look; /* polls until the file descriptors are checked
				again */
};

static inline struct srdma_shm_port *srdma_shm_port_of(struct srdma_port *port)
{
	return (struct srdma_shm_port *)port;
}

static inline struct srdma_shm_conn *srdma_shm_conn_of(struct srdma_conn *conn)
{
	return (struct srdma_shm_conn *)conn;
}

/*
 * Initialize *p, which the caller allocates and frees. Returns 0 or -errno.
 * fini releases its resources.
 */
int srdma_shm_port_init(struct srdma_shm_port *p,
			const struct srdma_port_ops *ops);
void srdma_shm_port_fini(struct srdma_shm_port *p);

/*
 * Add a zeroed conn to the port's list. Remove closes its wake-up object, ringer
 * and mapping; the caller frees the structure that embeds it.
 */
void srdma_shm_conn_add(struct srdma_shm_port *p, struct srdma_shm_conn *c);
void srdma_shm_conn_remove(struct srdma_shm_conn *c);

/*
 * Create the wake-up object of the conn and add it to the port's epoll set:
 * an eventfd, or a socket whose other end is stored in *ringer and is owned by
 * the caller. Return 0 or -errno.
 */
int srdma_shm_conn_eventfd(struct srdma_shm_conn *c);
int srdma_shm_conn_socket(struct srdma_shm_conn *c, int *ringer);

/*
 * The other side ended or violated the protocol: EV_DOWN with status follows.
 */
void srdma_shm_conn_end(struct srdma_shm_conn *c, int status);

/*
 * Add a descriptor to the port's epoll set. srdma_shm_port_look() sets *due,
 * unless due is NULL, when the descriptor becomes ready. Edge-triggered, so that
 * an eventfd that the other side can also read need not be read.
 */
int srdma_shm_port_watch(struct srdma_shm_port *p, int fd, bool *due);
void srdma_shm_port_unwatch(struct srdma_shm_port *p, int fd);

/* Look at all descriptors of the epoll set. */
void srdma_shm_port_look(struct srdma_shm_port *p);

/* Operations of struct srdma_port_ops that both ports use unchanged. */
int srdma_shm_port_poll(struct srdma_port *port, struct srdma_event *ev, int n);
struct srdma_buf *srdma_shm_port_buf_get(struct srdma_port *port);
void srdma_shm_port_buf_put(struct srdma_buf *buf);
int srdma_shm_port_buf_free(struct srdma_port *port);
int srdma_shm_port_fd(struct srdma_port *port);
int srdma_shm_port_arm(struct srdma_port *port);
void srdma_shm_port_disarm(struct srdma_port *port);

#endif
