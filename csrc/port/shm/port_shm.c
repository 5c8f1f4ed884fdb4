#include "port/shm/port_shm_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { QUANTUM = 16, WATCHED = 64 };

static void close_now(int fd)
{
	close(fd);
}

int srdma_shm_port_init(struct srdma_shm_port *p,
			const struct srdma_port_ops *ops)
{
	int r;

	p->close_file = close_now;
	p->port.ops = ops;
	p->port.kind = SRDMA_PORT_SHM;
	p->port.window = 64;
	p->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll < 0)
		return -errno;
	r = srdma_doorbell_create(&p->bell);
	if (r)
		goto close_epoll;
	r = srdma_pool_create(&p->pool, &p->port, SRDMA_SHM_BUFS);
	if (!r)
		return 0;
	srdma_doorbell_destroy(&p->bell);
close_epoll:
	close(p->epoll);
	return r;
}

void srdma_shm_port_fini(struct srdma_shm_port *p)
{
	srdma_pool_destroy(p->pool);
	srdma_doorbell_destroy(&p->bell);
	close(p->epoll);
}

/* --- connections ------------------------------------------------------ */

void srdma_shm_conn_add(struct srdma_shm_port *p, struct srdma_shm_conn *c)
{
	c->conn.port = &p->port;
	c->wake = -1;
	c->next = p->conns;
	p->conns = c;
	p->count++;
}

void srdma_shm_conn_remove(struct srdma_shm_conn *c)
{
	struct srdma_shm_port *p = srdma_shm_port_of(c->conn.port);
	struct srdma_shm_conn **at = &p->conns;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	if (p->turn == c)
		p->turn = c->next;
	p->count--;
	if (c->wake >= 0) {
		srdma_shm_port_unwatch(p, c->wake);
		p->close_file(c->wake);
	}
	srdma_ringer_close(&c->ringer);
	srdma_shm_unmap(&c->map);
}

int srdma_shm_conn_eventfd(struct srdma_shm_conn *c)
{
	int fd = srdma_doorbell_eventfd();

	if (fd < 0)
		return fd;
	c->wake = fd; /* closed by srdma_shm_conn_remove() */
	return srdma_shm_port_watch(srdma_shm_port_of(c->conn.port), fd, NULL);
}

int srdma_shm_conn_socket(struct srdma_shm_conn *c, int *ringer)
{
	int ends[2], r = srdma_doorbell_socket(ends);

	if (r)
		return r;
	c->wake = ends[SRDMA_DOORBELL_SLEEPER];
	*ringer = ends[SRDMA_DOORBELL_RINGER];
	r = srdma_shm_port_watch(srdma_shm_port_of(c->conn.port), c->wake,
				 &c->wake_due);
	if (r)
		close(*ringer);
	return r;
}

void srdma_shm_conn_end(struct srdma_shm_conn *c, int status)
{
	if (c->ended)
		return;
	c->ended = true;
	c->status = status;
	if (c->rx.base)
		srdma_ring_freeze(&c->rx);
}

/* --- descriptors ------------------------------------------------------ */

int srdma_shm_port_watch(struct srdma_shm_port *p, int fd, bool *due)
{
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
		.data = { .ptr = due },
	};

	return epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/*
 * Needed besides close(): the other side holds the same open file description.
 */
void srdma_shm_port_unwatch(struct srdma_shm_port *p, int fd)
{
	epoll_ctl(p->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void srdma_shm_port_look(struct srdma_shm_port *p)
{
	struct epoll_event ev[WATCHED];
	int got;

	do {
		got = epoll_wait(p->epoll, ev, WATCHED, 0);
		for (int i = 0; i < got; i++)
			if (ev[i].data.ptr)
				*(bool *)ev[i].data.ptr = true;
	} while (got == WATCHED);
}

int srdma_shm_port_fd(struct srdma_port *port)
{
	return srdma_shm_port_of(port)->epoll;
}

static bool has_work(struct srdma_shm_conn *c)
{
	if (c->up_due || c->accept_due)
		return true;
	if (c->ended && !c->down_told && !c->under_way)
		return true;
	if (!c->rx.base || c->down_told)
		return false;
	return srdma_ring_has_data(&c->rx) || srdma_ring_has_room(&c->tx);
}

int srdma_shm_port_arm(struct srdma_port *port)
{
	struct srdma_shm_port *p = srdma_shm_port_of(port);

	srdma_doorbell_arm(&p->bell, SRDMA_DOORBELL_NEWS);
	for (struct srdma_shm_conn *c = p->conns; c; c = c->next)
		if (has_work(c)) {
			srdma_doorbell_disarm(&p->bell);
			return 1;
		}
	return 0;
}

void srdma_shm_port_disarm(struct srdma_port *port)
{
	struct srdma_shm_port *p = srdma_shm_port_of(port);

	srdma_doorbell_disarm(&p->bell);
	p->until_look = 0;
}

/* --- receiving -------------------------------------------------------- */

/*
 * Copy one datagram into a private buffer. Returns 1 if done, 0 if there is no
 * datagram or no buffer.
 */
static int receive(struct srdma_shm_conn *c, struct srdma_event *ev)
{
	struct srdma_shm_port *p = srdma_shm_port_of(c->conn.port);
	struct srdma_buf *buf;
	int r;

	buf = srdma_pool_get(p->pool);
	if (!buf)
		return 0;
	r = srdma_ring_take(&c->rx, buf->data, buf->cap);
	if (r <= 0) {
		srdma_pool_put(p->pool, buf);
		if (r < 0)
			srdma_shm_conn_end(c, r);
		return 0;
	}
	buf->len = (uint32_t)r;
	ev->kind = SRDMA_EV_RECV;
	ev->buf = buf;
	return 1;
}

static bool take(bool *due)
{
	bool was = *due;

	*due = false;
	return was;
}

static int next_event(struct srdma_shm_conn *c, struct srdma_event *ev)
{
	*ev = (struct srdma_event){ .conn = &c->conn };
	if (take(&c->up_due)) {
		ev->kind = SRDMA_EV_UP;
		return 1;
	}
	if (take(&c->accept_due)) {
		ev->kind = SRDMA_EV_ACCEPT;
		return 1;
	}
	if (c->down_told)
		return 0;
	if (c->rx.base && receive(c, ev))
		return 1;
	if (!c->ended || c->under_way)
		return 0;
	if (c->rx.base && !c->rx.broken && srdma_ring_has_data(&c->rx))
		return 0; /* not yet: datagrams are left, but no buffers */
	ev->kind = SRDMA_EV_DOWN;
	ev->status = c->status;
	c->down_told = true;
	return 1;
}

/*
 * Give room back in quarters of the ring, and all of it when the ring is empty:
 * each update costs a fence here and a cache miss at the producer.
 */
static void give(struct srdma_shm_conn *c)
{
	struct srdma_ring *rx = &c->rx;

	if (rx->mine - rx->shown < rx->slots / 4 && srdma_ring_has_data(rx))
		return;
	if (srdma_ring_give(rx))
		srdma_ringer_ring(&c->ringer, SRDMA_DOORBELL_NEWS);
}

/* 1: next_event() reports nothing. */
static bool is_quiet(const struct srdma_shm_conn *c)
{
	return !c->up_due && !c->accept_due && !c->ended &&
	       !(c->rx.base && srdma_ring_has_data(&c->rx));
}

static int poll_conn(struct srdma_shm_conn *c, struct srdma_event *ev, int n)
{
	int got = 0;

	while (got < n && next_event(c, &ev[got]))
		got++;
	if (got && c->rx.base)
		give(c);
	return got;
}

int srdma_shm_port_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	struct srdma_shm_port *p = srdma_shm_port_of(port);
	struct srdma_shm_conn *c = p->turn;
	uint32_t idle = 0;
	int got = 0;

	while (got < n && idle < p->count) {
		int most = n - got < QUANTUM ? n - got : QUANTUM;
		int took;

		if (!c)
			c = p->conns;
		took = is_quiet(c) ? 0 : poll_conn(c, &ev[got], most);
		idle = took ? 0 : idle + 1;
		got += took;
		c = c->next;
	}
	p->turn = c;
	return got;
}

struct srdma_buf *srdma_shm_port_buf_get(struct srdma_port *port)
{
	return srdma_pool_get(srdma_shm_port_of(port)->pool);
}

void srdma_shm_port_buf_put(struct srdma_buf *buf)
{
	srdma_pool_put(srdma_shm_port_of(buf->port)->pool, buf);
}

int srdma_shm_port_buf_free(struct srdma_port *port)
{
	return srdma_pool_left(srdma_shm_port_of(port)->pool);
}
