#include "port/sim/port_mem.h"

#include "port/sim/port_mem_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUFS = 256, WINDOW = 64 };

static const struct srdma_mem_wire_params defaults;

/* --- connections ------------------------------------------------------ */

static struct srdma_mem_end *end_create(struct srdma_mem_wire *w)
{
	struct srdma_mem_end *e = calloc(1, sizeof(*e));

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

static void end_cut(struct srdma_mem_end *e)
{
	if (!e->peer)
		return;
	e->peer->down_due = true;
	e->peer->peer = NULL;
	e->peer = NULL;
}

static void end_destroy(struct srdma_mem_end *e)
{
	struct srdma_mem_end **at = &srdma_mem_wire_of(e->conn.port)->ends;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	end_cut(e);
	srdma_fifo_clear(&e->out);
	srdma_fifo_clear(&e->kept);
	srdma_fifo_clear(&e->in);
	free(e);
}

static struct srdma_mem_wire *find_peer(struct srdma_mem_wire *w,
					const char *address)
{
	for (int i = 0; i < 2; i++) {
		struct srdma_mem_wire *peer = w->joint->port[i];

		if (peer && !strcmp(peer->port.address, address))
			return peer;
	}
	return NULL;
}

static struct srdma_mem_end *find_end(struct srdma_mem_wire *w,
				      const struct srdma_mem_wire *peer)
{
	for (struct srdma_mem_end *e = w->ends; e; e = e->next)
		if (e->to == peer && srdma_mem_end_stands(e))
			return e;
	return NULL;
}

/* Simulate a connect() that no peer accepts; call selects the outcome. */
static void call_in_vain(struct srdma_mem_end *e, enum srdma_mem_call call)
{
	e->deaf = call != SRDMA_MEM_REFUSED;
	e->down_due = call == SRDMA_MEM_REFUSED;
	e->up_due = call == SRDMA_MEM_SILENT;
}

static int call(struct srdma_mem_end *e, struct srdma_mem_wire *peer)
{
	struct srdma_mem_end *far = end_create(peer);

	if (!far)
		return -ENOMEM;
	e->up_due = far->accept_due = true;
	e->peer = far;
	far->peer = e;
	return 0;
}

static int connect_new(struct srdma_mem_wire *w, struct srdma_mem_wire *peer,
		       struct srdma_conn **conn)
{
	const struct srdma_mem_wire_params *p = w->joint->params;
	enum srdma_mem_call fate =
		p->call ? p->call(p->ctx, w->side) : SRDMA_MEM_ANSWERED;
	struct srdma_mem_end *e;

	if (fate == SRDMA_MEM_IMPOSSIBLE)
		return -EHOSTUNREACH;
	e = end_create(w);
	if (!e)
		return -ENOMEM;
	e->to = peer;
	if (fate != SRDMA_MEM_ANSWERED) {
		call_in_vain(e, fate);
	} else if (call(e, peer)) {
		end_destroy(e);
		return -ENOMEM;
	}
	*conn = &e->conn;
	return 0;
}

static int wire_connect(struct srdma_port *port, const char *address,
			struct srdma_conn **conn)
{
	struct srdma_mem_wire *w = srdma_mem_wire_of(port);
	struct srdma_mem_wire *peer = find_peer(w, address);
	struct srdma_mem_end *e;

	if (!peer) {
		port->why = "no such peer: the addresses are a and b";
		return -ECONNREFUSED;
	}
	e = find_end(w, peer);
	if (!e)
		return connect_new(w, peer, conn);
	e->refs++;
	e->up_due |= e->peer != NULL;
	*conn = &e->conn;
	return 0;
}

static void wire_close(struct srdma_conn *conn)
{
	struct srdma_mem_end *e = srdma_mem_end_of(conn);

	assert(e->refs > 0);
	if (--e->refs == 0)
		end_destroy(e);
}

void srdma_port_mem_cut(struct srdma_conn *conn)
{
	struct srdma_mem_end *e = srdma_mem_end_of(conn);

	if (!srdma_mem_end_stands(e))
		return;
	e->deaf = false;
	e->down_due = true;
	end_cut(e);
}

int srdma_port_mem_intrude(struct srdma_port *port, struct srdma_conn **conn)
{
	struct srdma_mem_end *e = end_create(srdma_mem_wire_of(port));

	if (!e)
		return -ENOMEM;
	e->deaf = e->accept_due = true;
	*conn = &e->conn;
	return 0;
}

/* --- bring-up --------------------------------------------------------- */

static struct srdma_buf *wire_buf_get(struct srdma_port *port)
{
	return srdma_pool_get(srdma_mem_wire_of(port)->pool);
}

static void wire_buf_put(struct srdma_buf *buf)
{
	srdma_pool_put(srdma_mem_wire_of(buf->port)->pool, buf);
}

static int wire_buf_free(struct srdma_port *port)
{
	return srdma_pool_left(srdma_mem_wire_of(port)->pool);
}

/* Sleeping is not supported: both ends run in one thread. */
static int wire_fd(struct srdma_port *port)
{
	(void)port;
	return -ENOTSUP;
}

static void wire_disarm(struct srdma_port *port)
{
	(void)port;
}

/* The other port ends: no later connect() may join a connection to it, and its
 * address may come back as that of another port. */
static void disown_ends(struct srdma_mem_wire *w)
{
	for (struct srdma_mem_end *e = w->ends; e; e = e->next)
		e->to = NULL;
}

static void wire_destroy(struct srdma_port *port)
{
	struct srdma_mem_wire *w = srdma_mem_wire_of(port), *peer;
	struct srdma_mem_joint *j;

	if (!port)
		return;
	j = w->joint;
	peer = j->port[!w->side];
	while (w->ends)
		end_destroy(w->ends);
	j->port[w->side] = NULL;
	if (peer)
		disown_ends(peer);
	else
		free(j);
	srdma_pool_destroy(w->pool);
	free(w);
}

static const struct srdma_port_ops wire_ops = {
	.poll = srdma_mem_data_poll,
	.reserve = srdma_mem_data_reserve,
	.commit = srdma_mem_data_commit,
	.flush = srdma_mem_data_flush,
	.buf_get = wire_buf_get,
	.buf_put = wire_buf_put,
	.buf_free = wire_buf_free,
	.connect = wire_connect,
	.close = wire_close,
	.fd = wire_fd,
	.arm = srdma_mem_data_arm,
	.disarm = wire_disarm,
	.destroy = wire_destroy,
};

static struct srdma_mem_wire *wire_create(struct srdma_mem_joint *j, int side)
{
	struct srdma_mem_wire *w = calloc(1, sizeof(*w));

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
	struct srdma_mem_joint *j = calloc(1, sizeof(*j));

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

int srdma_port_mem_wire_again(struct srdma_port *port, struct srdma_port **out)
{
	const struct srdma_mem_wire *w = srdma_mem_wire_of(port);
	struct srdma_mem_wire *again;

	assert(!w->joint->port[!w->side]);
	again = wire_create(w->joint, !w->side);
	if (!again)
		return -ENOMEM;
	*out = &again->port;
	return 0;
}
