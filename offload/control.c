#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "closer.h"
#include "log.h"
#include "packet.h"
#include "peer.h"

enum {
	MAX_CONNECTIONS = LEGS_USERS, /* the ledger has the same limit */
	/*
	 * queued responses per client; at the limit its requests are not read
	 */
	MAX_QUEUED = 64,
	MAX_QUEUED_BYTES = 65536,
	MESSAGES_PER_TURN = 16, /* per connection */
	CROWDED_MS = 100,	/* between two looks at crowded clients */
	EVENTS_PER_TURN = 64,
	ACCEPTS_PER_TURN = 16,
};

/* A response that the socket could not accept yet. Owns its descriptors. */
struct queued {
	struct queued *next;
	size_t len;
	int fds[REQUESTS_ANSWER_FDS];
	uint8_t data[];
};

struct connection {
	struct client client; /* must be the first member: send() receives a
				 pointer to it */
	struct control *control;
	int fd;
	uint32_t watched; /* current epoll events */
	struct queued *first, *last;
	unsigned queued;
	size_t queued_bytes;
	int broken; /* a response was lost: close the connection */
};

struct control {
	int epoll, listener;
	uint32_t agent_uid;
	int spare; /* closed temporarily to accept and refuse a connection at
		      the fd limit */
	struct requests *requests;
	const struct srdma_relay *relay; /* the clock */
	uint64_t look_at; /* ns; when connections of crowded accounts are looked
			     at again; UINT64_MAX: there are none */
	struct connection *connection[MAX_CONNECTIONS];
};

static void queued_free(struct queued *q)
{
	for (int i = 0; i < REQUESTS_ANSWER_FDS; i++)
		if (q->fds[i] >= 0)
			close(q->fds[i]);
	srdma_wipe(q->data, q->len);
	free(q);
}

/* Queue a copy of the response with duplicates of its descriptors. */
static int enqueue(struct connection *conn, const struct answer *a)
{
	struct queued *q = malloc(sizeof(*q) + a->len);

	if (!q)
		return -ENOMEM;
	*q = (struct queued){ .len = a->len, .fds = { -1, -1 } };
	memcpy(q->data, a->data, a->len);
	for (int i = 0; i < REQUESTS_ANSWER_FDS && a->fds[i] >= 0; i++) {
		q->fds[i] = fcntl(a->fds[i], F_DUPFD_CLOEXEC, 0);
		if (q->fds[i] < 0) {
			queued_free(q);
			return -EMFILE;
		}
	}
	if (conn->last)
		conn->last->next = q;
	else
		conn->first = q;
	conn->last = q;
	conn->queued++;
	conn->queued_bytes += q->len;
	return 0;
}

static void dequeue(struct connection *conn)
{
	struct queued *q = conn->first;

	conn->first = q->next;
	if (!conn->first)
		conn->last = NULL;
	conn->queued--;
	conn->queued_bytes -= q->len;
	queued_free(q);
}

/* To whom files of this connection belong: see closer_close(). */
static const char *owner_of(const struct connection *conn)
{
	return conn->client.account ? srdma_account_name(conn->client.account)
				    : "";
}

static int is_full(const struct connection *conn)
{
	return conn->queued >= MAX_QUEUED ||
	       conn->queued_bytes >= MAX_QUEUED_BYTES ||
	       closer_is_crowded(owner_of(conn));
}

/* Update the epoll events to what the connection can process now. */
static void watch(struct connection *conn)
{
	struct control *c = conn->control;
	const int crowded = closer_is_crowded(owner_of(conn));
	uint32_t want =
		(is_full(conn) ? 0 : EPOLLIN) | (conn->queued ? EPOLLOUT : 0);
	struct epoll_event ev = { .events = want, .data.ptr = conn };

	if (crowded)
		c->look_at = srdma_relay_now(c->relay) + CROWDED_MS * SRDMA_MS;
	if (want == conn->watched)
		return;
	conn->watched = want;
	epoll_ctl(conn->control->epoll, EPOLL_CTL_MOD, conn->fd, &ev);
}

/*
 * A response that can be neither sent nor queued is lost. The client's view of
 * this worker would be inconsistent then, so the connection is closed.
 */
static void answer_send(struct client *client, const struct answer *a)
{
	struct connection *conn = (struct connection *)client;
	int rc = -EAGAIN;

	if (conn->broken)
		return;
	if (!conn->first)
		rc = packet_send(conn->fd, a->data, a->len, a->fds);
	if (rc == -EAGAIN)
		rc = enqueue(conn, a);
	if (rc < 0) {
		conn->broken = 1;
		shutdown(conn->fd, SHUT_RDWR); /* triggers connection_run(),
						  which closes it */
	}
	watch(conn);
}

static void queue_drain(struct connection *conn)
{
	while (conn->first) {
		int rc = packet_send(conn->fd, conn->first->data,
				     conn->first->len, conn->first->fds);

		if (rc == -EAGAIN)
			break;
		if (rc < 0) {
			conn->broken = 1;
			return;
		}
		dequeue(conn);
	}
	watch(conn);
}

/* Returns 0, or -errno if the connection must be closed. */
static int messages_handle(struct connection *conn)
{
	struct message m;

	for (int i = 0; i < MESSAGES_PER_TURN; i++) {
		int rc;

		if (is_full(conn)) {
			watch(conn);
			return 0;
		}
		rc = packet_receive(conn->fd, owner_of(conn), &m);
		if (rc == -EMFILE)
			log_error(
				"process %d: no descriptor is free for its "
				"files, connection closed: raise the limit of "
				"open files",
				conn->client.pid);
		if (rc <= 0)
			return rc;
		rc = requests_handle(conn->control->requests, &conn->client,
				     &m);
		packet_close_fds(owner_of(conn), &m);
		srdma_wipe(m.data, m.len); /* the message may contain secrets
					      or capabilities */
		if (rc < 0) {
			log_info("process %d: malformed message, connection "
				 "closed",
				 conn->client.pid);
			return rc;
		}
	}
	return 0;
}

static void connection_free(struct connection *conn, const char *owner)
{
	/* The descriptor may stay open for a while: the client notices now. */
	epoll_ctl(conn->control->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
	shutdown(conn->fd, SHUT_RDWR);
	closer_close(owner, conn->fd);
	if (conn->client.pidfd >= 0)
		close(conn->client.pidfd);
	while (conn->first)
		dequeue(conn);
	free(conn);
}

static void connection_close(struct connection *conn)
{
	struct control *c = conn->control;
	char owner[CLOSER_OWNER_MAX];

	log_debug("process %d disconnected", conn->client.pid);
	snprintf(owner, sizeof(owner), "%s", owner_of(conn));
	c->connection[conn->client.number] = NULL;
	requests_leave(c->requests, &conn->client);
	connection_free(conn, owner);
}

static void connection_run(struct connection *conn, uint32_t events)
{
	int rc = 0;

	if (events & EPOLLOUT)
		queue_drain(conn);
	if (!conn->broken && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		rc = messages_handle(conn);
	/* A client that hung up cannot receive responses. */
	if (rc == 0 && events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN))
		rc = -ECONNRESET;
	if (rc < 0 || conn->broken)
		connection_close(conn);
}

/* The index of a free connection slot. There is one if the ledger has room. */
static unsigned free_number(const struct control *c)
{
	unsigned i = 0;

	while (i < MAX_CONNECTIONS && c->connection[i])
		i++;
	return i;
}

static int peer_allowed(const struct control *c, int fd, struct ucred *peer)
{
	socklen_t len = sizeof(*peer);
	char agent[48] = "";

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &len) < 0)
		return 0;
	if (peer->uid == geteuid() || peer->uid == 0 ||
	    peer->uid == c->agent_uid)
		return 1;
	if (c->agent_uid != geteuid())
		snprintf(agent, sizeof(agent), ", user %u (--agent-uid)",
			 c->agent_uid);
	log_info("refused process %d of user %u: only user %u%s and root may "
		 "connect",
		 peer->pid, peer->uid, geteuid(), agent);
	return 0;
}

/* Charge the connection to an account. If that is refused, tell the client. */
static int account_join(const struct control *c, struct connection *conn)
{
	struct answer refusal = { .len = 0 };
	int rc = requests_join(c->requests, &conn->client, &refusal);

	if (rc < 0)
		packet_send(conn->fd, refusal.data, refusal.len, refusal.fds);
	return rc;
}

static struct connection *connection_create(struct control *c, int fd,
					    const struct ucred *peer)
{
	struct connection *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->client.number = free_number(c);
	conn->client.pid = peer->pid;
	conn->client.uid = peer->uid;
	conn->client.pidfd = -1;
	conn->control = c;
	conn->fd = fd;
	conn->watched = EPOLLIN;
	return conn;
}

static int connection_add(struct control *c, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct connection *conn;
	struct ucred peer;
	int rc;

	if (!peer_allowed(c, fd, &peer))
		return -EPERM;
	conn = connection_create(c, fd, &peer);
	if (!conn)
		return -ENOMEM;
	rc = account_join(c, conn);
	if (rc < 0)
		goto free_connection;
	ev.data.ptr = conn;
	if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &ev) < 0) {
		rc = -ENOMEM;
		goto leave_account;
	}
	conn->client.pidfd = peer_pidfd(fd);
	c->connection[conn->client.number] = conn;
	return 0;
leave_account:
	requests_leave(c->requests, &conn->client);
free_connection:
	free(conn);
	return rc;
}

/*
 * No file descriptor is left: close the spare one to accept and close one
 * pending connection. Otherwise the pending connection would wake the worker
 * forever.
 */
static void refuse_one(struct control *c)
{
	int fd;

	if (c->spare >= 0)
		close(c->spare);
	fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		closer_close("", fd);
	c->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	log_error(
		"a control connection was refused: raise the limit of open files");
}

static void accept_some(struct control *c)
{
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4(c->listener, NULL, NULL,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE)
				refuse_one(c);
			return;
		}
		if (connection_add(c, fd) < 0) {
			shutdown(fd, SHUT_RDWR);
			closer_close("", fd);
		}
	}
}

void control_run(struct control *c)
{
	struct epoll_event ev[EVENTS_PER_TURN];
	int n = epoll_wait(c->epoll, ev, EVENTS_PER_TURN, 0);

	for (int i = 0; i < n; i++) {
		if (ev[i].data.ptr == NULL)
			accept_some(c);
		else
			connection_run(ev[i].data.ptr, ev[i].events);
	}
}

/* The files of crowded accounts may have been closed. */
static void look(struct control *c)
{
	c->look_at = UINT64_MAX;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (c->connection[i])
			watch(c->connection[i]);
}

unsigned control_poll(struct control *c)
{
	if (srdma_relay_now(c->relay) >= c->look_at)
		look(c);
	return requests_poll(c->requests);
}

uint64_t control_timer(const struct control *c)
{
	const uint64_t due = requests_timer(c->requests);

	return due < c->look_at ? due : c->look_at;
}

int control_fd(const struct control *c)
{
	return c->epoll;
}

static int epoll_open(struct control *c)
{
	struct epoll_event ev = { .events = EPOLLIN };

	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll < 0 ||
	    epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->listener, &ev) < 0)
		return -errno;
	return 0;
}

int control_create(struct control **out, const struct control_params *p)
{
	struct requests_params params = p->requests;
	struct control *c = calloc(1, sizeof(*c));
	int rc = -ENOMEM;

	if (!c)
		return rc;
	c->listener = p->listener;
	c->agent_uid = p->requests.agent_uid;
	c->relay = p->requests.relay;
	c->look_at = UINT64_MAX;
	c->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc = epoll_open(c);
	if (rc < 0)
		goto destroy;
	params.send = answer_send;
	rc = requests_create(&c->requests, &params);
	if (rc < 0)
		goto destroy;
	*out = c;
	return 0;
destroy:
	control_destroy(c);
	return rc;
}

void control_destroy(struct control *c)
{
	if (!c)
		return;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (c->connection[i])
			connection_free(c->connection[i],
					owner_of(c->connection[i]));
	requests_destroy(c->requests);
	if (c->epoll >= 0)
		close(c->epoll);
	if (c->spare >= 0)
		close(c->spare);
	free(c);
}
