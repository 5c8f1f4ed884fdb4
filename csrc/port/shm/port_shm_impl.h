/* What the files of port_shm share: ports, their connections, sleeping. */
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

/* A leg or a wire connection as poll sees it. */
struct srdma_shm_conn {
	struct srdma_conn conn;
	struct srdma_shm_conn *next;
	struct srdma_shm map;	    /* holds the rings */
	struct srdma_ringer ringer; /* wakes the other side */
	int eventfd;		    /* wakes us, or -1 */
	struct srdma_ring rx;	    /* base NULL: not up yet */
	struct srdma_ring tx;	    /* wire only */
	int status;		    /* of EV_DOWN */
	bool up_due, accept_due;    /* events not told yet */
	bool ended;		    /* EV_DOWN follows what rx still holds */
	bool down_told;
};

/* The part that both ports have. */
struct srdma_shm_port {
	struct srdma_port port;
	struct srdma_pool *pool;
	struct srdma_doorbell bell;
	int epoll;
	struct srdma_shm_conn *conns;
	struct srdma_shm_conn *turn; /* polled first next time */
	uint32_t count;
	uint32_t until_look; /* polls until the next look at descriptors */
};

static inline struct srdma_shm_port *srdma_shm_port_of(struct srdma_port *port)
{
	return (struct srdma_shm_port *)port;
}

static inline struct srdma_shm_conn *srdma_shm_conn_of(struct srdma_conn *conn)
{
	return (struct srdma_shm_conn *)conn;
}

/* Fill *p, which the caller allocated and frees. fini undoes it. */
int srdma_shm_port_init(struct srdma_shm_port *p,
			const struct srdma_port_ops *ops);
void srdma_shm_port_fini(struct srdma_shm_port *p);

/*
 * Add a zeroed conn to the port's list. Remove closes its eventfd, ringer
 * and mapping; what embeds it is the caller's to free.
 */
void srdma_shm_conn_add(struct srdma_shm_port *p, struct srdma_shm_conn *c);
void srdma_shm_conn_remove(struct srdma_shm_conn *c);

/* Make the conn's own eventfd and sleep on it. 0 or -errno. */
int srdma_shm_conn_eventfd(struct srdma_shm_conn *c);

/* The other side ended or broke the rules. */
void srdma_shm_conn_end(struct srdma_shm_conn *c, int status);

/*
 * Sleep on a descriptor too; what comes back from srdma_shm_port_look().
 * Edge-triggered, so that nothing need be read from an eventfd that the
 * other side can read too.
 */
int srdma_shm_port_watch(struct srdma_shm_port *p, int fd, void *what);
void srdma_shm_port_unwatch(struct srdma_shm_port *p, int fd);

/*
 * Take what happened to watched descriptors: up to n of the values given to
 * watch. Returns how many. One system call.
 */
int srdma_shm_port_look(struct srdma_shm_port *p, void **what, int n);

/* Ops that both ports use as they are. */
int srdma_shm_port_poll(struct srdma_port *port, struct srdma_event *ev, int n);
struct srdma_buf *srdma_shm_port_buf_get(struct srdma_port *port);
void srdma_shm_port_buf_put(struct srdma_buf *buf);
int srdma_shm_port_buf_free(struct srdma_port *port);
int srdma_shm_port_fd(struct srdma_port *port);
int srdma_shm_port_arm(struct srdma_port *port);
void srdma_shm_port_disarm(struct srdma_port *port);

#endif
