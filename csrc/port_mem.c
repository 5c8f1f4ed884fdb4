#include "port_mem.h"

#include "fifo.h"
#include "pool.h"
#include "wire.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 128, BUFS = 256, WINDOW = 64 };

/* What both ports share; freed with the second of them. */
struct joint {
	struct wire *port[2];
	const struct srdma_mem_wire_params *params;
};

/* One end of a connection. */
struct end {
	struct srdma_conn conn;
	struct end *next;
	struct end *peer; /* NULL: gone */
	int refs;
	bool connector; /* made by connect(), not accepted */
	bool up_due, accept_due, down_due;
	struct srdma_fifo out;	/* committed, not flushed */
	struct srdma_fifo kept; /* SRDMA_MEM_HOLD and SWAP */
	bool swap; /* the first kept one follows the next that passes */
	struct srdma_fifo in;
	uint64_t busy; /* the direction takes the next one then */
	uint8_t staging[SRDMA_MAX_PACKET];
};

struct wire {
	struct srdma_port port;
	struct srdma_pool *pool;
	struct joint *joint;
	struct end *ends;
	int side;
	uint64_t sent;
};

static const struct srdma_mem_wire_params defaults;

static struct wire *wire_of(struct srdma_port *port)
{
	return (struct wire *)port;
}

static struct end *end_of(struct srdma_conn *conn)
{
	return (struct end *)conn;
}

/* --- connections ------------------------------------------------------ */

static struct end *end_create(struct wire *w)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->conn.port = &w->port;
	e->refs = 1;
	srdma_fifo_init(&e->out);
	srdma_fifo_init(&e->kept);
	srdma_fifo_init(&e->in);
	e->next = w->ends;
	w->ends = e;
	return e;
}

static void end_cut(struct end *e)
{
	if (!e->peer)
		return;
	e->peer->down_due = true;
	e->peer->peer = NULL;
	e->peer = NULL;
}

static void end_destroy(struct end *e)
{
	struct end **at = &wire_of(e->conn.port)->ends;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	end_cut(e);
	srdma_fifo_clear(&e->out);
	srdma_fifo_clear(&e->kept);
	srdma_fifo_clear(&e->in);
	free(e);
}

static struct wire *find_peer(struct wire *w, const char *address)
{
	for (int i = 0; i < 2; i++) {
		struct wire *peer = w->joint->port[i];

		if (peer && !strcmp(peer->port.address, address))
			return peer;
	}
	return NULL;
}

static struct end *find_end(struct wire *w, struct wire *peer)
{
	for (struct end *e = w->ends; e; e = e->next)
		if (e->connector && e->peer &&
		    e->peer->conn.port == &peer->port)
			return e;
	return NULL;
}

static int wire_connect(struct srdma_port *port, const char *address,
			struct srdma_conn **conn)
{
	struct wire *w = wire_of(port);
	struct wire *peer = find_peer(w, address);
	struct end *e, *far;

	if (!peer) {
		port->why = "no such peer: the addresses are a and b";
		return -ECONNREFUSED;
	}
	e = find_end(w, peer);
	if (e) {
		e->refs++;
		e->up_due = true;
		*conn = &e->conn;
		return 0;
	}
	e = end_create(w);
	if (!e)
		return -ENOMEM;
	far = end_create(peer);
	if (!far) {
		end_destroy(e);
		return -ENOMEM;
	}
	e->connector = e->up_due = far->accept_due = true;
	e->peer = far;
	far->peer = e;
	*conn = &e->conn;
	return 0;
}

static void wire_close(struct srdma_conn *conn)
{
	struct end *e = end_of(conn);

	assert(e->refs > 0);
	if (--e->refs == 0)
		end_destroy(e);
}

/* --- sending ---------------------------------------------------------- */

static uint32_t under_way(const struct end *e)
{
	return e->out.count + e->kept.count + e->peer->in.count;
}

static uint8_t *wire_reserve(struct srdma_conn *conn)
{
	struct end *e = end_of(conn);
	struct wire *w = wire_of(conn->port);
	const struct srdma_mem_wire_params *p = w->joint->params;

	if (!e->peer || under_way(e) >= (p->slots ? p->slots : SLOTS) ||
	    (p->full && p->full(p->ctx, w->side)))
		return NULL;
	return e->staging;
}

static int pass(struct end *e, const struct srdma_mem_datagram *d)
{
	int r = srdma_fifo_copy(&e->out, d->data, d->len);

	if (!r && e->swap) {
		e->swap = false;
		srdma_fifo_push(&e->out, srdma_fifo_pop(&e->kept));
	}
	return r;
}

static int keep(struct end *e, const struct srdma_mem_datagram *d, bool swap)
{
	if (swap && e->kept.count) /* one at a time */
		return pass(e, d);
	e->swap = swap;
	return srdma_fifo_copy(&e->kept, d->data, d->len);
}

static int wire_commit(struct srdma_conn *conn, uint32_t len)
{
	struct end *e = end_of(conn);
	struct wire *w = wire_of(conn->port);
	const struct srdma_mem_wire_params *p = w->joint->params;
	struct srdma_mem_datagram d = {
		.side = w->side,
		.number = w->sent++,
		.data = e->staging,
		.len = len,
	};
	enum srdma_mem_fate fate = SRDMA_MEM_PASS;
	int r;

	if (!len || len > SRDMA_MAX_PACKET)
		return -EMSGSIZE;
	if (!e->peer)
		return -ENOTCONN;
	if (p->fate)
		fate = p->fate(p->ctx, &d);
	assert(d.len <= SRDMA_MAX_PACKET);
	switch (fate) {
	case SRDMA_MEM_DROP:
		return 0;
	case SRDMA_MEM_SWAP:
		return keep(e, &d, true);
	case SRDMA_MEM_HOLD:
		return keep(e, &d, false);
	case SRDMA_MEM_TWICE:
		r = pass(e, &d);
		return r ? r : pass(e, &d);
	case SRDMA_MEM_PASS:
		break;
	}
	return pass(e, &d);
}

/* Put what is committed on its way to the peer. */
static void depart(struct end *e)
{
	const struct srdma_mem_wire_params *p =
		wire_of(e->conn.port)->joint->params;
	struct srdma_datagram *d;

	while (p->now && (d = srdma_fifo_pop(&e->out))) {
		if (e->busy < *p->now)
			e->busy = *p->now;
		if (p->rate)
			e->busy += d->len * UINT64_C(1000) / p->rate;
		d->due = e->busy + p->latency;
		srdma_fifo_push(&e->peer->in, d);
	}
	srdma_fifo_move(&e->peer->in, &e->out);
}

static void wire_flush(struct srdma_port *port)
{
	for (struct end *e = wire_of(port)->ends; e; e = e->next) {
		if (e->peer)
			depart(e);
		else
			srdma_fifo_clear(&e->out);
	}
}

void srdma_port_mem_release(struct srdma_port *port)
{
	for (struct end *e = wire_of(port)->ends; e; e = e->next) {
		srdma_fifo_move(&e->out, &e->kept);
		e->swap = false;
	}
	wire_flush(port);
}

int srdma_port_mem_inject(struct srdma_conn *conn, const uint8_t *data,
			  uint32_t len)
{
	struct end *e = end_of(conn);

	if (len > SRDMA_MAX_PACKET)
		return -EMSGSIZE;
	if (!e->peer)
		return -ENOTCONN;
	return srdma_fifo_copy(&e->in, data, len);
}

void srdma_port_mem_cut(struct srdma_conn *conn)
{
	struct end *e = end_of(conn);

	if (!e->peer)
		return;
	e->down_due = true;
	end_cut(e);
}

/* --- receiving -------------------------------------------------------- */

static bool take(bool *due)
{
	bool was = *due;

	*due = false;
	return was;
}

/* What has arrived at an end, and nobody took. */
static bool has_arrived(const struct end *e)
{
	const struct srdma_mem_wire_params *p =
		wire_of(e->conn.port)->joint->params;

	return e->in.first && (!p->now || e->in.first->due <= *p->now);
}

uint64_t srdma_port_mem_due(const struct srdma_port *port)
{
	const struct wire *w = (const struct wire *)port;
	uint64_t due = UINT64_MAX;

	for (const struct end *e = w->ends; e; e = e->next)
		if (e->in.first && e->in.first->due < due)
			due = e->in.first->due;
	return due;
}

/* The next event of an end into *ev. Returns 1, or 0 when it has none. */
static int end_event(struct end *e, struct srdma_event *ev)
{
	struct wire *w = wire_of(e->conn.port);

	*ev = (struct srdma_event){ .conn = &e->conn };
	if (take(&e->up_due)) {
		ev->kind = SRDMA_EV_UP;
		return 1;
	}
	if (take(&e->accept_due)) {
		ev->kind = SRDMA_EV_ACCEPT;
		return 1;
	}
	if (!e->in.first) {
		ev->kind = SRDMA_EV_DOWN;
		ev->status = -ECONNRESET;
		return take(&e->down_due);
	}
	if (!has_arrived(e))
		return 0;
	ev->kind = SRDMA_EV_RECV;
	ev->buf = srdma_pool_get(w->pool);
	if (!ev->buf)
		return 0;
	ev->buf->len = srdma_fifo_take(&e->in, ev->buf->data);
	return 1;
}

/* The first end goes last, so that none waits for ever behind another. */
static void rotate(struct wire *w)
{
	struct end *first = w->ends, **at = &w->ends;

	if (!first || !first->next)
		return;
	while (*at)
		at = &(*at)->next;
	*at = first;
	w->ends = first->next;
	first->next = NULL;
}

static int wire_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	struct wire *w = wire_of(port);
	int got = 0, before;

	do {
		before = got;
		for (struct end *e = w->ends; e && got < n; e = e->next)
			got += end_event(e, &ev[got]);
	} while (got < n && got > before);
	rotate(w);
	return got;
}

static struct srdma_buf *wire_buf_get(struct srdma_port *port)
{
	return srdma_pool_get(wire_of(port)->pool);
}

static void wire_buf_put(struct srdma_buf *buf)
{
	srdma_pool_put(wire_of(buf->port)->pool, buf);
}

static int wire_buf_free(struct srdma_port *port)
{
	return srdma_pool_left(wire_of(port)->pool);
}

/* Nothing to sleep on: both ends run in one thread. */
static int wire_fd(struct srdma_port *port)
{
	(void)port;
	return -ENOTSUP;
}

static int wire_arm(struct srdma_port *port)
{
	for (struct end *e = wire_of(port)->ends; e; e = e->next)
		if (has_arrived(e) || e->up_due || e->accept_due ||
		    (e->down_due && !e->in.first))
			return 1;
	return 0;
}

static void wire_disarm(struct srdma_port *port)
{
	(void)port;
}

static void wire_destroy(struct srdma_port *port)
{
	struct wire *w = wire_of(port);
	struct joint *j = w->joint;

	if (!port)
		return;
	while (w->ends)
		end_destroy(w->ends);
	j->port[w->side] = NULL;
	if (!j->port[1 - w->side])
		free(j);
	srdma_pool_destroy(w->pool);
	free(w);
}

static const struct srdma_port_ops wire_ops = {
	.poll = wire_poll,
	.reserve = wire_reserve,
	.commit = wire_commit,
	.flush = wire_flush,
	.buf_get = wire_buf_get,
	.buf_put = wire_buf_put,
	.buf_free = wire_buf_free,
	.connect = wire_connect,
	.close = wire_close,
	.fd = wire_fd,
	.arm = wire_arm,
	.disarm = wire_disarm,
	.destroy = wire_destroy,
};

static struct wire *wire_create(struct joint *j, int side)
{
	struct wire *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->port.ops = &wire_ops;
	w->port.kind = SRDMA_PORT_MEM;
	w->port.window = j->params->window ? j->params->window : WINDOW;
	w->port.address[0] = (char)('a' + side);
	w->joint = j;
	w->side = side;
	if (srdma_pool_create(&w->pool, &w->port,
			      j->params->bufs ? j->params->bufs : BUFS)) {
		free(w);
		return NULL;
	}
	j->port[side] = w;
	return w;
}

int srdma_port_mem_wire_pair(struct srdma_port **a, struct srdma_port **b,
			     const struct srdma_mem_wire_params *params)
{
	struct joint *j = calloc(1, sizeof(*j));

	if (!j)
		return -ENOMEM;
	j->params = params ? params : &defaults;
	if (!wire_create(j, 0)) {
		free(j);
		return -ENOMEM;
	}
	if (!wire_create(j, 1)) {
		wire_destroy(&j->port[0]->port);
		return -ENOMEM;
	}
	*a = &j->port[0]->port;
	*b = &j->port[1]->port;
	return 0;
}
