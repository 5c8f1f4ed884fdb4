#include "port/sim/port_mem_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { SLOTS = 128 };

/* --- sending ---------------------------------------------------------- */

static uint32_t under_way(const struct srdma_mem_end *e)
{
	return e->out.count + e->kept.count + (e->peer ? e->peer->in.count : 0);
}

uint8_t *srdma_mem_data_reserve(struct srdma_conn *conn)
{
	struct srdma_mem_end *e = srdma_mem_end_of(conn);
	struct srdma_mem_wire *w = srdma_mem_wire_of(conn->port);
	const struct srdma_mem_wire_params *p = w->joint->params;

	if (!srdma_mem_end_stands(e) ||
	    under_way(e) >= (p->slots ? p->slots : SLOTS) ||
	    (p->full && p->full(p->ctx, w->side)))
		return NULL;
	return e->staging;
}

static int pass(struct srdma_mem_end *e, const struct srdma_mem_datagram *d)
{
	int r = srdma_fifo_copy(&e->out, d->data, d->len);

	if (!r && e->swap) {
		e->swap = false;
		srdma_fifo_push(&e->out, srdma_fifo_pop(&e->kept));
	}
	return r;
}

static int keep(struct srdma_mem_end *e, const struct srdma_mem_datagram *d,
		bool swap)
{
	if (swap && e->kept.count) /* at most one datagram waits to be
				      swapped */
		return pass(e, d);
	e->swap = swap;
	return srdma_fifo_copy(&e->kept, d->data, d->len);
}

int srdma_mem_data_commit(struct srdma_conn *conn, uint32_t len)
{
	struct srdma_mem_end *e = srdma_mem_end_of(conn);
	struct srdma_mem_wire *w = srdma_mem_wire_of(conn->port);
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
	if (!srdma_mem_end_stands(e))
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

/*
 * A datagram enters a shared link at *at. Returns 1 and sets *at to the time
 * when it leaves the link, or 0 if the queue is full.
 */
static int cross(struct srdma_mem_way *way, uint32_t len, uint64_t *at)
{
	if (way->busy > *at + way->queue) {
		way->dropped++;
		return 0;
	}
	if (way->busy < *at)
		way->busy = *at;
	way->busy += len * UINT64_C(1000) / way->rate;
	way->bytes += len;
	way->taken++;
	*at = way->busy;
	return 1;
}

/* Move committed datagrams to the peer, with their arrival times. */
static void depart(struct srdma_mem_end *e)
{
	const struct srdma_mem_wire_params *p = srdma_mem_params(e);
	const int side = srdma_mem_wire_of(e->conn.port)->side;
	struct srdma_datagram *d;
	uint64_t at;

	while (p->now && (d = srdma_fifo_pop(&e->out))) {
		if (e->busy < *p->now)
			e->busy = *p->now;
		if (p->rate)
			e->busy += d->len * UINT64_C(1000) / p->rate;
		at = e->busy;
		if (p->way && !cross(&p->way[side], d->len, &at)) {
			free(d);
			continue;
		}
		d->due = at + p->latency;
		srdma_fifo_push(&e->peer->in, d);
	}
	srdma_fifo_move(&e->peer->in, &e->out);
}

void srdma_mem_data_flush(struct srdma_port *port)
{
	for (struct srdma_mem_end *e = srdma_mem_wire_of(port)->ends; e;
	     e = e->next) {
		if (e->peer)
			depart(e);
		else
			srdma_fifo_clear(&e->out);
	}
}

void srdma_port_mem_release(struct srdma_port *port)
{
	for (struct srdma_mem_end *e = srdma_mem_wire_of(port)->ends; e;
	     e = e->next) {
		srdma_fifo_move(&e->out, &e->kept);
		e->swap = false;
	}
	srdma_mem_data_flush(port);
}

int srdma_port_mem_inject(struct srdma_conn *conn, const uint8_t *data,
			  uint32_t len)
{
	struct srdma_mem_end *e = srdma_mem_end_of(conn);

	if (len > SRDMA_MAX_PACKET)
		return -EMSGSIZE;
	if (!srdma_mem_end_stands(e))
		return -ENOTCONN;
	return srdma_fifo_copy(&e->in, data, len);
}

/* --- receiving -------------------------------------------------------- */

static bool take(bool *due)
{
	bool was = *due;

	*due = false;
	return was;
}

/* 1 if a datagram has arrived at this end and can be received. */
static bool has_arrived(const struct srdma_mem_end *e)
{
	const struct srdma_mem_wire_params *p = srdma_mem_params(e);

	return e->in.first && (!p->now || e->in.first->due <= *p->now);
}

uint64_t srdma_port_mem_due(const struct srdma_port *port)
{
	const struct srdma_mem_wire *w = (const struct srdma_mem_wire *)port;
	uint64_t due = UINT64_MAX;

	for (const struct srdma_mem_end *e = w->ends; e; e = e->next)
		if (e->in.first && e->in.first->due < due)
			due = e->in.first->due;
	return due;
}

/* Store the next event of an end in *ev. Returns 1, or 0 if there is none. */
static int end_event(struct srdma_mem_end *e, struct srdma_event *ev)
{
	struct srdma_mem_wire *w = srdma_mem_wire_of(e->conn.port);

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

/* Move the first end to the back, so that no end starves. */
static void rotate(struct srdma_mem_wire *w)
{
	struct srdma_mem_end *first = w->ends, **at = &w->ends;

	if (!first || !first->next)
		return;
	while (*at)
		at = &(*at)->next;
	*at = first;
	w->ends = first->next;
	first->next = NULL;
}

int srdma_mem_data_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	struct srdma_mem_wire *w = srdma_mem_wire_of(port);
	int got = 0, before;

	do {
		before = got;
		for (struct srdma_mem_end *e = w->ends; e && got < n;
		     e = e->next)
			got += end_event(e, &ev[got]);
	} while (got < n && got > before);
	rotate(w);
	return got;
}

int srdma_mem_data_arm(struct srdma_port *port)
{
	for (struct srdma_mem_end *e = srdma_mem_wire_of(port)->ends; e;
	     e = e->next)
		if (has_arrived(e) || e->up_due || e->accept_due ||
		    (e->down_due && !e->in.first))
			return 1;
	return 0;
}
