#include "cable.h"

#include <stdlib.h>
#include <string.h>

#include "port/port.h"
#include "port/shm/port_shm.h"

enum { BURST = 64, LINKS = 64, WAITING_MAX = 16384 };

struct waiting {
	struct waiting *next;
	uint32_t len;
	uint8_t data[];
};

/*
 * A connection of one side. Its partner has the same index at the other side.
 */
struct end {
	struct srdma_conn *conn; /* NULL: unused */
	int up;
	struct waiting *first, **last; /* frames without room yet */
	uint32_t count;
};

struct shm {
	struct cable cable;
	struct srdma_port *port[SIDES];
	const char *names[SIDES];
	struct end ends[SIDES][LINKS];
};

static struct shm *shm_of(struct cable *c)
{
	return (struct shm *)(void *)c;
}

/* --- connections ---------------------------------------------------------- */

static void begin(struct end *end, struct srdma_conn *conn, int up)
{
	*end = (struct end){ .conn = conn, .up = up, .last = &end->first };
}

static void finish(struct shm *s, int side, struct end *end)
{
	while (end->first) {
		struct waiting *w = end->first;

		end->first = w->next;
		free(w);
	}
	s->port[side]->ops->close(end->conn);
	end->conn = NULL;
}

static uint32_t link_of(const struct shm *s, int side,
			const struct srdma_conn *conn)
{
	uint32_t i = 0;

	while (i < LINKS && s->ends[side][i].conn != conn)
		i++;
	return i;
}

/*
 * A worker connected to one side of the cable: connects to the other worker at
 * the other side.
 */
static void join(struct shm *s, int side, struct srdma_conn *conn)
{
	int other = !side;
	struct srdma_port *port = s->port[other];
	struct srdma_conn *there;
	uint32_t link = link_of(s, side, NULL);

	if (link == LINKS)
		die("more than %d connections", LINKS);
	if (port->ops->connect(port, s->names[other], &there)) {
		s->port[side]->ops->close(conn);
		return;
	}
	begin(&s->ends[side][link], conn, 1);
	begin(&s->ends[other][link], there, 0);
}

/* One side closed: closes the other. */
static void part(struct shm *s, uint32_t link)
{
	for (int side = LEFT; side < SIDES; side++)
		finish(s, side, &s->ends[side][link]);
}

/* --- frames --------------------------------------------------------------- */

static int put(struct srdma_port *port, const struct end *end,
	       const uint8_t *data, uint32_t len)
{
	uint8_t *slot = end->up ? port->ops->reserve(end->conn) : NULL;

	if (!slot)
		return 0;
	memcpy(slot, data, len);
	return port->ops->commit(end->conn, len) == 0;
}

static int send_waiting(struct srdma_port *port, struct end *end)
{
	int sent = 0;

	while (end->first &&
	       put(port, end, end->first->data, end->first->len)) {
		struct waiting *w = end->first;

		end->first = w->next;
		if (!end->first)
			end->last = &end->first;
		end->count--;
		free(w);
		sent = 1;
	}
	return sent;
}

static void give(struct cable *c, const struct frame *frame)
{
	struct shm *s = shm_of(c);
	int side = !frame->side;
	struct end *end = &s->ends[side][frame->link];
	struct waiting *w;

	if (!end->conn ||
	    (!end->first && put(s->port[side], end, frame->data, frame->len)))
		return;
	if (end->count++ == WAITING_MAX)
		die("%d packets wait for one worker", WAITING_MAX);
	w = malloc(sizeof(*w) + frame->len);
	if (!w)
		die("no memory");
	w->next = NULL;
	w->len = frame->len;
	memcpy(w->data, frame->data, frame->len);
	*end->last = w;
	end->last = &w->next;
}

static void handle(struct shm *s, int side, const struct srdma_event *ev,
		   struct frame *frame)
{
	uint32_t link = link_of(s, side, ev->conn);

	if (ev->kind == SRDMA_EV_ACCEPT) {
		join(s, side, ev->conn);
	} else if (link == LINKS) {
		return; /* its partner has closed already */
	} else if (ev->kind == SRDMA_EV_UP) {
		s->ends[side][link].up = 1;
	} else if (ev->kind == SRDMA_EV_DOWN) {
		part(s, link);
	} else {
		*frame = (struct frame){ .data = ev->buf->data,
					 .len = ev->buf->len,
					 .packet = ev->buf->len,
					 .side = side,
					 .link = link };
	}
}

static int take(struct cable *c, cable_sink *sink, void *arg)
{
	struct shm *s = shm_of(c);
	struct srdma_event ev[BURST];
	int busy = 0;

	for (int side = LEFT; side < SIDES; side++) {
		struct srdma_port *port = s->port[side];
		int n = port->ops->poll(port, ev, BURST);

		for (int i = 0; i < n; i++) {
			struct frame frame = { .packet = 0 };

			handle(s, side, &ev[i], &frame);
			if (frame.packet)
				sink(arg, &frame);
			if (ev[i].kind == SRDMA_EV_RECV)
				port->ops->buf_put(ev[i].buf);
		}
		busy |= n > 0;
		for (uint32_t link = 0; link < LINKS; link++)
			if (s->ends[side][link].conn)
				busy |= send_waiting(port,
						     &s->ends[side][link]);
	}
	return busy;
}

static void flush(struct cable *c)
{
	for (int side = LEFT; side < SIDES; side++)
		shm_of(c)->port[side]->ops->flush(shm_of(c)->port[side]);
}

static void mend(struct frame *frame)
{
	(void)frame; /* shared memory has no checksum */
}

/* --- life cycle ----------------------------------------------------------- */

/*
 * Returns 1 while frames wait for room. Arms all ports even if one has work,
 * because disarm() disarms all.
 */
static int arm(struct cable *c)
{
	struct shm *s = shm_of(c);
	int busy = 0;

	for (int side = LEFT; side < SIDES; side++) {
		busy |= s->port[side]->ops->arm(s->port[side]);
		for (uint32_t link = 0; link < LINKS; link++)
			busy |= s->ends[side][link].first &&
				s->ends[side][link].up;
	}
	return busy != 0;
}

static void disarm(struct cable *c)
{
	for (int side = LEFT; side < SIDES; side++)
		shm_of(c)->port[side]->ops->disarm(shm_of(c)->port[side]);
}

static int cut(struct cable *c)
{
	struct shm *s = shm_of(c);
	int n = 0;

	for (uint32_t link = 0; link < LINKS; link++) {
		if (!s->ends[LEFT][link].conn)
			continue;
		part(s, link);
		n++;
	}
	return n;
}

static void destroy(struct cable *c)
{
	struct shm *s = shm_of(c);

	cut(c);
	for (int side = LEFT; side < SIDES; side++)
		s->port[side]->ops->destroy(s->port[side]);
	free(s);
}

static const struct cable_ops ops = {
	.take = take,
	.give = give,
	.flush = flush,
	.mend = mend,
	.cut = cut,
	.arm = arm,
	.disarm = disarm,
	.destroy = destroy,
};

struct cable *cable_shm_create(const char *const dirs[SIDES],
			       const char *const names[SIDES])
{
	struct shm *s = calloc(1, sizeof(*s));

	if (!s)
		die("no memory");
	s->cable.ops = &ops;
	for (int side = LEFT; side < SIDES; side++) {
		int err = srdma_port_shm_create_wire(&s->port[side], dirs[side],
						     names[!side], 0, NULL);

		if (err)
			die("%s: %s", dirs[side], srdma_port_shm_why(err));
		s->names[side] = names[side];
		s->cable.fds[side] = s->port[side]->ops->fd(s->port[side]);
	}
	return &s->cable;
}
