#include "control/entrance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/time.h"
#include "control/credentials.h"
#include "control/frame.h"
#include "control/tls.h"

#define STEP_MAX (10 * SRDMA_SECOND) /* until the first byte; of a handshake */
/* Without accept() when the system has no resources for a connection. */
#define PAUSE (100 * SRDMA_MS)

enum state { SILENT, HANDSHAKING, ENDING };

struct candidate {
	struct watch watch; /* must be the first member */
	struct candidate *next;
	struct entrance *entrance;
	struct in6_addr address; /* IPv4-mapped for IPv4 */
	unsigned neighbours; /* candidates of its network, itself included */
	enum state state;
	uint64_t until;
	SSL *ssl;	  /* NULL: SILENT */
	struct queue out; /* ENDING: REFUSED */
	int said;	  /* ENDING: for tls_end() */
};

struct entrance {
	struct watch watch; /* of the listener; must be the first member */
	struct entrance_params params;
	/* The candidates are ready together as one descriptor of params.loop, so
	 * that a flood of them delays no link: they take turns among each other.
	 */
	struct loop turns;
	struct watch turn;
	struct candidate *first; /* the oldest */
	unsigned count;
	uint64_t paused; /* until this time; 0: not */
};

static struct entrance *of_turn(struct watch *w)
{
	return (struct entrance *)((char *)w - offsetof(struct entrance, turn));
}

/* 1: of the same /64 of IPv6 or /24 of IPv4. One attacker may have all addresses of
 * such a network. */
static int is_beside(const struct candidate *c, const struct in6_addr *address)
{
	const int four = IN6_IS_ADDR_V4MAPPED(address);

	return IN6_IS_ADDR_V4MAPPED(&c->address) == four &&
	       memcmp(&c->address, address, four ? 15 : 8) == 0;
}

/* Adds n to the neighbours of the candidates of a network, and returns how many they
 * are. */
static unsigned count_network(struct entrance *e,
			      const struct in6_addr *address, int n)
{
	unsigned found = 0;

	for (struct candidate *c = e->first; c; c = c->next) {
		if (!is_beside(c, address))
			continue;
		c->neighbours += (unsigned)n;
		found++;
	}
	return found;
}

static void unlink_candidate(struct candidate *c)
{
	struct candidate **at = &c->entrance->first;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->entrance->count--;
	count_network(c->entrance, &c->address, -1);
	loop_remove(&c->entrance->turns, &c->watch);
}

static void close_candidate(struct candidate *c)
{
	unlink_candidate(c);
	SSL_free(c->ssl);
	close(c->watch.fd);
	queue_clear(&c->out);
	free(c);
}

static void report(const struct candidate *c, const struct reason *r)
{
	const struct entrance_params *p = &c->entrance->params;
	char text[INET6_ADDRSTRLEN] = "";

	if (IN6_IS_ADDR_V4MAPPED(&c->address))
		inet_ntop(AF_INET, &c->address.s6_addr[12], text, sizeof(text));
	else
		inet_ntop(AF_INET6, &c->address, text, sizeof(text));
	p->refused(p->ctx, text, r);
}

static void run_ending(struct candidate *c)
{
	const uint32_t events = tls_end(c->ssl, &c->out, &c->said);

	if (events)
		loop_set(&c->entrance->turns, &c->watch, events);
	else
		close_candidate(c);
}

/* Ends the connection after what waits for the peer. */
static void end(struct candidate *c, const struct reason *r)
{
	report(c, r);
	c->state = ENDING;
	c->until = loop_now() + TLS_END_MAX;
	run_ending(c);
}

static void complete(struct candidate *c)
{
	const struct entrance_params *p = &c->entrance->params;
	struct reason r;
	SSL *ssl = c->ssl;

	if (p->check(p->ctx, ssl, &r)) {
		/* Without memory, the peer learns no reason. */
		reason_put(&c->out, 0, FRAME_REFUSED, &r);
		end(c, &r);
		return;
	}
	unlink_candidate(c);
	free(c);
	p->admit(p->ctx, ssl);
}

static void shake(struct candidate *c)
{
	struct reason r;

	switch (tls_accept(c->ssl)) {
	case 1:
		complete(c);
		return;
	case TLS_WAIT:
		loop_set(&c->entrance->turns, &c->watch,
			 SSL_want_write(c->ssl) ? EPOLLOUT : EPOLLIN);
		return;
	case TLS_FAILED:
		credentials_failure(c->ssl, &r);
		end(c, &r); /* OpenSSL has sent an alert */
		return;
	}
	close_candidate(c);
}

/* The first bytes, or the end, have come. */
static void begin(struct candidate *c)
{
	const struct entrance_params *p = &c->entrance->params;
	const int on = 1;
	struct reason r;
	SSL_CTX *ctx = p->begin(p->ctx, &r);

	if (!ctx) {
		report(c, &r);
		close_candidate(c);
		return;
	}
	c->ssl = SSL_new(ctx);
	if (!c->ssl || SSL_set_fd(c->ssl, c->watch.fd) != 1) {
		close_candidate(c);
		return;
	}
	setsockopt(c->watch.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c->state = HANDSHAKING;
	c->until = loop_now() + STEP_MAX;
	shake(c);
}

static void run_candidate(struct watch *w, uint32_t events)
{
	struct candidate *c = (struct candidate *)w;

	(void)events;
	switch (c->state) {
	case SILENT:
		begin(c);
		return;
	case HANDSHAKING:
		shake(c);
		return;
	case ENDING:
		run_ending(c);
	}
}

static void run_turn(struct watch *w, uint32_t events)
{
	(void)events;
	loop_wait(&of_turn(w)->turns, 0);
}

/* Accepting --------------------------------------------------------------- */

static void plain_address(struct in6_addr *out,
			  const struct sockaddr_storage *from)
{
	const struct sockaddr_in6 *six = (const void *)from;
	const struct sockaddr_in *four = (const void *)from;

	if (from->ss_family == AF_INET6)
		*out = six->sin6_addr;
	else
		srdma_addr_gid_of4(out->s6_addr, &four->sin_addr);
}

static int is_at(const struct candidate *c, const struct in6_addr *address)
{
	return memcmp(&c->address, address, sizeof(*address)) == 0;
}

/* 1: its handshake is under way, or can begin. */
static int speaks(const struct candidate *c)
{
	char byte;

	return c->state == HANDSHAKING ||
	       (c->state == SILENT &&
		recv(c->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
}

static unsigned largest_network(const struct entrance *e)
{
	unsigned most = 0;

	for (const struct candidate *c = e->first; c; c = c->next)
		most = c->neighbours > most ? c->neighbours : most;
	return most;
}

/* Closes a candidate of this address, NULL: of the networks with the most. The
 * oldest that is silent or was refused, else the oldest. */
static void close_one(struct entrance *e, const struct in6_addr *address)
{
	const unsigned most = largest_network(e);
	struct candidate *found = NULL;

	for (struct candidate *c = e->first; c; c = c->next) {
		if (address ? !is_at(c, address) : c->neighbours != most)
			continue;
		if (!found)
			found = c;
		if (!speaks(c)) {
			found = c;
			break;
		}
	}
	if (found)
		close_candidate(found);
}

/* Makes room for a candidate of this address. */
static void evict(struct entrance *e, const struct in6_addr *address)
{
	unsigned same = 0;

	for (struct candidate *c = e->first; c; c = c->next)
		same += (unsigned)is_at(c, address);
	if (same >= ENTRANCE_PER_ADDRESS)
		close_one(e, address);
	else if (e->count >= ENTRANCE_CANDIDATES)
		close_one(e, NULL);
}

static void append(struct entrance *e, struct candidate *c)
{
	struct candidate **at = &e->first;

	c->neighbours = count_network(e, &c->address, 1) + 1;
	while (*at)
		at = &(*at)->next;
	*at = c;
	e->count++;
}

static void take(struct entrance *e, int fd,
		 const struct sockaddr_storage *from)
{
	struct candidate *c = calloc(1, sizeof(*c));
	struct in6_addr address;

	plain_address(&address, from);
	evict(e, &address);
	if (!c) {
		close(fd);
		return;
	}
	*c = (struct candidate){
		.watch = { .fd = fd, .events = EPOLLIN, .run = run_candidate },
		.entrance = e,
		.address = address,
		.until = loop_now() + STEP_MAX,
	};
	if (loop_add(&e->turns, &c->watch)) {
		close(fd);
		free(c);
		return;
	}
	append(e, c);
}

static void run_listener(struct watch *w, uint32_t events)
{
	struct entrance *e = (struct entrance *)w;
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	int fd = accept4(w->fd, (struct sockaddr *)&from, &len,
			 SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd >= 0) {
		take(e, fd, &from);
		return;
	}
	if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)
		return;
	/* No descriptors or memory. */
	close_one(e, NULL);
	e->paused = loop_now() + PAUSE;
	loop_set(e->params.loop, w, 0);
}

uint64_t entrance_check(struct entrance *e, uint64_t now)
{
	uint64_t next = SRDMA_NEVER;

	for (struct candidate *c = e->first, *after; c; c = after) {
		after = c->next;
		if (now >= c->until)
			close_candidate(c);
		else
			next = srdma_time_earlier(next, c->until);
	}
	if (!e->paused)
		return next;
	if (now < e->paused)
		return srdma_time_earlier(next, e->paused);
	e->paused = 0;
	loop_set(e->params.loop, &e->watch, EPOLLIN);
	return next;
}

int entrance_create(struct entrance **out, const struct entrance_params *p)
{
	struct entrance *e = calloc(1, sizeof(*e));
	int rc = -ENOMEM;

	if (!e)
		return rc;
	e->params = *p;
	rc = loop_open(&e->turns);
	if (rc < 0)
		goto free_entrance;
	e->watch = (struct watch){ .fd = p->listener,
				   .events = EPOLLIN,
				   .run = run_listener };
	e->turn = (struct watch){ .fd = e->turns.epoll,
				  .events = EPOLLIN,
				  .run = run_turn };
	rc = loop_add(p->loop, &e->watch);
	if (rc < 0)
		goto close_turns;
	rc = loop_add(p->loop, &e->turn);
	if (rc < 0)
		goto remove_listener;
	*out = e;
	return 0;
remove_listener:
	loop_remove(p->loop, &e->watch);
close_turns:
	loop_close(&e->turns);
free_entrance:
	free(e);
	return rc;
}

void entrance_destroy(struct entrance *e)
{
	if (!e)
		return;
	while (e->first)
		close_candidate(e->first);
	loop_remove(e->params.loop, &e->watch);
	loop_remove(e->params.loop, &e->turn);
	loop_close(&e->turns);
	free(e);
}
