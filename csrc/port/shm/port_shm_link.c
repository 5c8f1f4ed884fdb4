#include "port/shm/port_shm_wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_EVERY = 256, LOOK_EVERY_UNSETTLED = 16 };

static struct srdma_shm_wire *wire_of(const struct srdma_shm_link *link)
{
	return srdma_shm_wire_of(link->c.conn.port);
}

/* --- connections ------------------------------------------------------ */

/* The peer sees the end now, also if close_file closes the socket late. */
static void drop(const struct srdma_shm_wire *w, int sock)
{
	shutdown(sock, SHUT_RDWR);
	w->p.close_file(sock);
}

/* Takes ownership of sock. NULL: sock was closed. */
static struct srdma_shm_link *link_create(struct srdma_shm_wire *w, int sock,
					  enum srdma_shm_link_state state)
{
	struct srdma_shm_link *link = calloc(1, sizeof(*link));

	if (!link) {
		drop(w, sock);
		return NULL;
	}
	srdma_shm_conn_add(&w->p, &link->c);
	link->sock = sock;
	link->state = state;
	link->refs = 1;
	link->born = w->born++;
	w->unsettled++;
	w->pending += state == SRDMA_SHM_HELLO_WANTED;
	if (srdma_shm_port_watch(&w->p, sock, &link->sock_due)) {
		srdma_shm_link_free(link);
		return NULL;
	}
	return link;
}

static void settle(struct srdma_shm_link *link)
{
	struct srdma_shm_wire *w = wire_of(link);

	if (link->state == SRDMA_SHM_UP)
		return;
	w->unsettled--;
	w->pending -= link->state == SRDMA_SHM_HELLO_WANTED;
	link->state = SRDMA_SHM_UP;
}

static void hang_up(struct srdma_shm_link *link)
{
	if (link->sock < 0)
		return;
	srdma_shm_port_unwatch(&wire_of(link)->p, link->sock);
	drop(wire_of(link), link->sock);
	link->sock = -1;
}

void srdma_shm_link_free(struct srdma_shm_link *link)
{
	struct srdma_shm_wire *w = wire_of(link);

	settle(link);
	hang_up(link);
	if (link->c.wake >= 0)
		shutdown(link->c.wake, SHUT_RD); /* its queue stays empty */
	srdma_shm_conn_remove(&link->c);
	free(link);
	/* A file descriptor is free again for a connection in the backlog. */
	w->listener_due = true;
}

void srdma_shm_link_close(struct srdma_conn *conn)
{
	struct srdma_shm_link *link =
		srdma_shm_link_of(srdma_shm_conn_of(conn));

	assert(link->refs > 0);
	if (--link->refs == 0)
		srdma_shm_link_free(link);
}

/* --- memory and doorbells --------------------------------------------- */

/* Offset of the second ring. */
static size_t second_at(uint32_t slots)
{
	return srdma_shm_round(srdma_ring_bytes(slots, SRDMA_SHM_WIRE_SIZE));
}

static size_t map_size(uint32_t slots)
{
	return second_at(slots) + srdma_ring_bytes(slots, SRDMA_SHM_WIRE_SIZE);
}

/*
 * The first ring carries datagrams from the connecting side to the listening
 * side.
 */
static void init_rings(struct srdma_shm_link *link, uint32_t slots,
		       bool connector)
{
	struct srdma_ring *first = connector ? &link->c.tx : &link->c.rx;
	struct srdma_ring *second = connector ? &link->c.rx : &link->c.tx;
	uint8_t *at = link->c.map.at;

	srdma_ring_init(first, at, slots, SRDMA_SHM_WIRE_SIZE);
	srdma_ring_init(second, at + second_at(slots), slots,
			SRDMA_SHM_WIRE_SIZE);
}

static bool slots_ok(uint32_t slots)
{
	return slots >= SRDMA_SHM_MIN_SLOTS && slots <= SRDMA_SHM_MAX_SLOTS &&
	       !(slots & (slots - 1));
}

/* Creates the wake-up socket of this side. memfd: -1 in an answer. */
static int send_hello(struct srdma_shm_link *link, uint32_t slots, int memfd)
{
	struct srdma_shm_wire *w = wire_of(link);
	struct srdma_shm_hello hello = { .slots = slots };
	int n = 0, ringer, r = srdma_shm_conn_socket(&link->c, &ringer);

	if (r)
		return r;
	memcpy(hello.name, w->p.port.address, sizeof(hello.name));
	if (memfd >= 0)
		hello.fds[n++] = memfd;
	hello.fds[n++] = ringer;
	hello.fds[n++] = w->p.bell.fd;
	hello.nfds = n;
	r = srdma_shm_hello_send(link->sock, &hello);
	close(ringer);
	return r;
}

/* --- connecting ------------------------------------------------------- */

static int refuse(struct srdma_port *port, int err, const char *why)
{
	port->why = why;
	return err;
}

static struct srdma_shm_link *find(struct srdma_shm_wire *w, const char *peer)
{
	for (struct srdma_shm_conn *c = w->p.conns; c; c = c->next) {
		struct srdma_shm_link *link = srdma_shm_link_of(c);

		if (!c->ended && link->peer[0] && !strcmp(link->peer, peer))
			return link;
	}
	return NULL;
}

static int dial(struct srdma_shm_wire *w, const char *address)
{
	char path[108];
	int sock = srdma_shm_name_path(path, w->dir, address);

	if (sock)
		return refuse(&w->p.port, sock,
			      "the peer's wire address must be the name of a "
			      "worker in the same directory");
	sock = srdma_shm_name_dial(path);
	if (sock == -ENOENT || sock == -ECONNREFUSED)
		return refuse(&w->p.port, sock,
			      "no worker of this name runs in the directory: "
			      "start it or correct the name");
	if (sock < 0)
		return refuse(&w->p.port, sock,
			      "cannot connect to the peer worker now: try "
			      "again later");
	if (srdma_shm_name_trusted(sock))
		return sock;
	drop(w, sock);
	return refuse(&w->p.port, -EACCES,
		      "the peer worker runs as another user: run both "
		      "as the same user");
}

static int open_link(struct srdma_shm_link *link, uint32_t slots)
{
	int memfd =
		srdma_shm_create(&link->c.map, "srdma-wire", map_size(slots));
	int r;

	if (memfd < 0)
		return memfd;
	r = send_hello(link, slots, memfd);
	close(memfd);
	return r;
}

int srdma_shm_link_connect(struct srdma_port *port, const char *address,
			   struct srdma_conn **conn)
{
	struct srdma_shm_wire *w = srdma_shm_wire_of(port);
	struct srdma_shm_link *link = find(w, address);
	int sock, r;

	if (link) {
		link->refs++;
		link->c.up_due |= link->state == SRDMA_SHM_UP;
		*conn = &link->c.conn;
		return 0;
	}
	if (w->p.count >= SRDMA_SHM_MAX_CONNS)
		return refuse(port, -ENOSPC,
			      "the worker has 1024 wire connections already: "
			      "close some");
	sock = dial(w, address);
	if (sock < 0)
		return sock;
	link = link_create(w, sock, SRDMA_SHM_ANSWER_WANTED);
	if (!link)
		return refuse(port, -ENOMEM, "out of memory");
	r = open_link(link, w->slots);
	if (r) {
		srdma_shm_link_free(link);
		return refuse(port, r,
			      "no memory or file descriptors for a wire "
			      "connection");
	}
	memcpy(link->peer, address, strlen(address));
	*conn = &link->c.conn;
	return 0;
}

/* Process the peer's response to our hello. */
static int take_answer(struct srdma_shm_link *link,
		       const struct srdma_shm_hello *answer)
{
	uint32_t slots = wire_of(link)->slots;
	int r;

	if (answer->nfds != SRDMA_SHM_ANSWER_FDS || answer->slots != slots ||
	    strcmp(answer->name, link->peer))
		return -EPROTO;
	r = srdma_ringer_open(&link->c.ringer, SRDMA_WAKE_SOCKET,
			      answer->fds[0], answer->fds[1]);
	if (r)
		return r;
	init_rings(link, slots, true);
	settle(link);
	link->c.up_due = true;
	return 0;
}

/* --- listening -------------------------------------------------------- */

/*
 * Process a peer's hello. Its name is unauthenticated and never used for
 * lookup.
 */
static int take_hello(struct srdma_shm_link *link,
		      const struct srdma_shm_hello *hello)
{
	int r;

	if (hello->nfds != SRDMA_SHM_HELLO_FDS || !hello->name[0] ||
	    strchr(hello->name, '/') || !slots_ok(hello->slots))
		return -EPROTO;
	r = srdma_shm_map(&link->c.map, hello->fds[0], 0,
			  map_size(hello->slots), 1);
	if (r)
		return r;
	r = srdma_ringer_open(&link->c.ringer, SRDMA_WAKE_SOCKET, hello->fds[1],
			      hello->fds[2]);
	if (!r)
		r = send_hello(link, hello->slots, -1);
	if (r)
		return r;
	init_rings(link, hello->slots, false);
	settle(link);
	link->c.accept_due = true;
	return 0;
}

static void drop_oldest(struct srdma_shm_wire *w)
{
	struct srdma_shm_link *oldest = NULL;

	for (struct srdma_shm_conn *c = w->p.conns; c; c = c->next) {
		struct srdma_shm_link *link = srdma_shm_link_of(c);

		if (link->state == SRDMA_SHM_HELLO_WANTED &&
		    (!oldest || link->born < oldest->born))
			oldest = link;
	}
	srdma_shm_link_free(oldest);
}

/*
 * Accept one connection from the backlog. Returns 0, or -errno if there is
 * none.
 */
static int accept_one(struct srdma_shm_wire *w)
{
	struct srdma_shm_link *link;
	int sock =
		accept4(w->name.sock, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (sock < 0)
		return errno == EINTR || errno == ECONNABORTED ? 0 : -errno;
	if (w->p.count >= SRDMA_SHM_MAX_CONNS ||
	    !srdma_shm_name_trusted(sock)) {
		drop(w, sock);
		return 0;
	}
	if (w->pending >= SRDMA_SHM_MAX_PENDING)
		drop_oldest(w);
	link = link_create(w, sock, SRDMA_SHM_HELLO_WANTED);
	if (link)
		link->sock_due = true;
	return 0;
}

/*
 * If file descriptors run out, the rest waits until a connection is freed, or
 * for a later look: close_file may free a descriptor late.
 */
static void accept_all(struct srdma_shm_wire *w)
{
	int r;

	w->listener_due = false;
	do {
		r = accept_one(w);
	} while (!r);
	w->listener_waits = r != -EAGAIN;
}

/* --- sockets ---------------------------------------------------------- */

/* Free a connection that the relay does not know; end any other one. */
static void fail(struct srdma_shm_link *link, int status)
{
	if (link->state == SRDMA_SHM_HELLO_WANTED) {
		srdma_shm_link_free(link);
		return;
	}
	hang_up(link);
	srdma_shm_conn_end(&link->c, status);
}

/* Returns 1 if there may be more to read. */
static int read_socket(struct srdma_shm_link *link)
{
	struct srdma_shm_hello hello;
	int r;

	link->sock_due = false;
	r = srdma_shm_hello_receive(link->sock, &hello,
				    wire_of(link)->p.close_file);
	if (r == -EAGAIN)
		return 0;
	if (r) {
		fail(link, r);
		return 0;
	}
	switch (link->state) {
	case SRDMA_SHM_HELLO_WANTED:
		r = take_hello(link, &hello);
		break;
	case SRDMA_SHM_ANSWER_WANTED:
		r = take_answer(link, &hello);
		break;
	case SRDMA_SHM_UP: /* no message is expected in this state */
		r = -EPROTO;
		break;
	}
	srdma_shm_hello_close(&hello, wire_of(link)->p.close_file);
	if (!r)
		return 1;
	fail(link, r);
	return 0;
}

void srdma_shm_wire_look(struct srdma_shm_wire *w)
{
	struct srdma_shm_conn *c, *next;

	srdma_shm_port_look(&w->p);
	if (w->listener_due || w->listener_waits)
		accept_all(w);
	for (c = w->p.conns; c; c = next) {
		struct srdma_shm_link *link = srdma_shm_link_of(c);

		next = c->next;
		if (c->ended)
			hang_up(link);
		else if (link->sock_due)
			while (read_socket(link))
				;
	}
	w->p.until_look = w->unsettled ? LOOK_EVERY_UNSETTLED : LOOK_EVERY;
}
