#include "port/shm/port_shm_wire.h"

#include "base/prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 128 };

static struct srdma_shm_link *link_of(struct srdma_conn *conn)
{
	return srdma_shm_link_of(srdma_shm_conn_of(conn));
}

/* --- sending ---------------------------------------------------------- */

static uint8_t *wire_reserve(struct srdma_conn *conn)
{
	struct srdma_shm_link *link = link_of(conn);
	const uint8_t *slot;

	if (link->state != SRDMA_SHM_UP || link->c.ended)
		return NULL;
	slot = srdma_ring_reserve(&link->c.tx);
	if (!slot)
		return NULL;
	srdma_prefetch_front(slot, link->last, 1); /* overlaps with sealing
						      the packet */
	return link->staging;
}

static int wire_commit(struct srdma_conn *conn, uint32_t len)
{
	struct srdma_shm_link *link = link_of(conn);
	uint8_t *slot;

	if (!len || len > SRDMA_SHM_WIRE_SIZE)
		return -EMSGSIZE;
	if (link->state != SRDMA_SHM_UP || link->c.ended)
		return -ENOTCONN;
	slot = srdma_ring_reserve(&link->c.tx);
	if (!slot)
		return -EAGAIN;
	srdma_prefetch_rest(slot, len, 1);
	memcpy(slot, link->staging, len);
	link->last = len;
	link->dirty = srdma_shm_wire_of(conn->port)->dirty = true;
	return srdma_ring_commit(&link->c.tx, len);
}

static void wire_flush(struct srdma_port *port)
{
	struct srdma_shm_wire *w = srdma_shm_wire_of(port);
	struct srdma_shm_conn *c;

	if (!w->dirty)
		return;
	w->dirty = false;
	for (c = w->p.conns; c; c = c->next)
		if (srdma_shm_link_of(c)->dirty)
			srdma_ring_show(&c->tx);
	atomic_thread_fence(memory_order_seq_cst);
	for (c = w->p.conns; c; c = c->next) {
		struct srdma_shm_link *link = srdma_shm_link_of(c);

		if (link->dirty)
			srdma_ringer_ring(&c->ringer, SRDMA_DOORBELL_NEWS);
		link->dirty = false;
	}
}

/* --- polling ---------------------------------------------------------- */

/* An impossible consumer count is detected when the ring appears full. */
static void end_broken(struct srdma_shm_wire *w)
{
	for (struct srdma_shm_conn *c = w->p.conns; c; c = c->next)
		if (c->tx.broken)
			srdma_shm_conn_end(c, -EPROTO);
}

static int wire_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	struct srdma_shm_wire *w = srdma_shm_wire_of(port);

	end_broken(w);
	if (w->p.until_look)
		w->p.until_look--;
	else
		srdma_shm_wire_look(w);
	return srdma_shm_port_poll(port, ev, n);
}

/* Takes one datagram per connection in turn, as successive single polls do. */
static int wire_prefetch(struct srdma_port *port, const uint8_t **data, int n)
{
	struct srdma_shm_port *p = srdma_shm_port_of(port);
	struct srdma_shm_conn *first = p->turn ? p->turn : p->conns;
	struct srdma_shm_conn *c = first;
	uint32_t i = 0, idle = 0;
	int got = 0;

	while (got < n && idle < p->count) {
		data[got] = c->rx.base ? srdma_ring_ahead(&c->rx, i) : NULL;
		idle = data[got] ? 0 : idle + 1;
		got += data[got] != NULL;
		c = c->next ? c->next : p->conns;
		i += c == first;
	}
	return got;
}

/* Ends a connection whose peer passed files. */
static void drain(struct srdma_shm_conn *c)
{
	int r = srdma_doorbell_drain_checked(c->wake);

	c->wake_due = false;
	if (r)
		srdma_shm_conn_end(c, r);
}

/*
 * Sockets are drained here and not at the wake-up, because there is nothing
 * else to do. A connection left in the backlog needs a poll: the epoll
 * descriptor is edge-triggered and reports new events only.
 */
static int wire_arm(struct srdma_port *port)
{
	struct srdma_shm_wire *w = srdma_shm_wire_of(port);

	for (struct srdma_shm_conn *c = w->p.conns; c; c = c->next)
		if (c->wake_due)
			drain(c);
	if (w->listener_due) {
		w->p.until_look = 0;
		return 1;
	}
	return srdma_shm_port_arm(port);
}

/* --- bring-up --------------------------------------------------------- */

static void wire_destroy(struct srdma_port *port)
{
	struct srdma_shm_wire *w = srdma_shm_wire_of(port);

	if (!port)
		return;
	wire_flush(port);
	while (w->p.conns)
		srdma_shm_link_free(srdma_shm_link_of(w->p.conns));
	srdma_shm_name_release(&w->name);
	srdma_shm_port_fini(&w->p);
	free(w);
}

static const struct srdma_port_ops wire_ops = {
	.poll = wire_poll,
	.reserve = wire_reserve,
	.commit = wire_commit,
	.prefetch = wire_prefetch,
	.flush = wire_flush,
	.buf_get = srdma_shm_port_buf_get,
	.buf_put = srdma_shm_port_buf_put,
	.buf_free = srdma_shm_port_buf_free,
	.connect = srdma_shm_link_connect,
	.close = srdma_shm_link_close,
	.fd = srdma_shm_port_fd,
	.arm = wire_arm,
	.disarm = srdma_shm_port_disarm,
	.destroy = wire_destroy,
};

static int check(const char *dir, const char *name, uint32_t slots)
{
	char path[108];

	if (slots && (slots < SRDMA_SHM_MIN_SLOTS ||
		      slots > SRDMA_SHM_MAX_SLOTS || (slots & (slots - 1))))
		return -EINVAL;
	return srdma_shm_name_path(path, dir, name);
}

int srdma_port_shm_create_wire(struct srdma_port **out, const char *dir,
			       const char *name, uint32_t slots,
			       void (*close_file)(int fd))
{
	struct srdma_shm_wire *w;
	int r = check(dir, name, slots);

	if (r)
		return r;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->slots = slots ? slots : SLOTS;
	memcpy(w->dir, dir, strlen(dir));
	memcpy(w->p.port.address, name, strlen(name));
	r = srdma_shm_port_init(&w->p, &wire_ops);
	if (r)
		goto free_wire;
	if (close_file)
		w->p.close_file = close_file;
	r = srdma_shm_name_claim(&w->name, dir, name);
	if (r)
		goto fini_port;
	r = srdma_shm_port_watch(&w->p, w->name.sock, &w->listener_due);
	if (r)
		goto release_name;
	*out = &w->p.port;
	return 0;
release_name:
	srdma_shm_name_release(&w->name);
fini_port:
	srdma_shm_port_fini(&w->p);
free_wire:
	free(w);
	return r;
}
