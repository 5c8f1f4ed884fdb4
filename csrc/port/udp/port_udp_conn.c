#include "port/udp/port_udp_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/addr.h"

/* --- addresses -------------------------------------------------------- */

static int sendable6(const struct in6_addr *ip)
{
	return !IN6_IS_ADDR_UNSPECIFIED(ip) && !IN6_IS_ADDR_MULTICAST(ip) &&
	       !IN6_IS_ADDR_LINKLOCAL(ip) && !IN6_IS_ADDR_V4MAPPED(ip);
}

int srdma_udp_conn_sendable(const union srdma_udp_addr *a)
{
	if (!srdma_addr_port(&a->any))
		return 0;
	return a->any.sa_family == AF_INET6
		       ? sendable6(&a->six.sin6_addr)
		       : srdma_addr_unicast4(&a->four.sin_addr);
}

int srdma_udp_addr_same(const union srdma_udp_addr *a,
			const union srdma_udp_addr *b)
{
	if (a->any.sa_family == AF_INET6)
		return a->six.sin6_port == b->six.sin6_port &&
		       !memcmp(&a->six.sin6_addr, &b->six.sin6_addr,
			       sizeof(a->six.sin6_addr));
	return a->four.sin_port == b->four.sin_port &&
	       a->four.sin_addr.s_addr == b->four.sin_addr.s_addr;
}

/*
 * Only conns of peers whose packets verified stay in a bucket, and the PASSING
 * conn of one sender while its datagrams follow each other, so an attacker
 * cannot lengthen a chain. The hash need not be keyed.
 */
static struct srdma_udp_conn **bucket(struct srdma_udp_port *port,
				      const union srdma_udp_addr *a)
{
	const int six = a->any.sa_family == AF_INET6;
	const uint8_t *ip = six ? a->six.sin6_addr.s6_addr
				: (const uint8_t *)&a->four.sin_addr;
	uint32_t hash = srdma_addr_port(&a->any);

	for (int i = 0; i < (six ? 16 : 4); i++)
		hash = hash * 31 + ip[i];
	return &port->bucket[hash % SRDMA_UDP_BUCKETS];
}

/* --- connections ------------------------------------------------------ */

static void push(struct srdma_udp_conn **list, struct srdma_udp_conn *c)
{
	c->next = *list;
	*list = c;
}

static void pull(struct srdma_udp_conn **list, const struct srdma_udp_conn *c)
{
	while (*list != c)
		list = &(*list)->next;
	*list = c->next;
}

/* The free list is never empty: each kind of conn has its own limit. */
static struct srdma_udp_conn *create(struct srdma_udp_port *port,
				     const union srdma_udp_addr *peer,
				     enum srdma_udp_kind kind)
{
	struct srdma_udp_conn *c = port->free;

	assert(c);
	port->free = c->next;
	*c = (struct srdma_udp_conn){ .base = { .port = &port->base },
				      .peer = *peer,
				      .refs = 1,
				      .kind = (uint8_t)kind };
	return c;
}

/* Few senders get a datagram: most of a flood get none. */
struct srdma_icrc *srdma_udp_conn_out(struct srdma_udp_conn *c)
{
	if (!c->out.len)
		srdma_icrc_init(&c->out,
				&srdma_udp_port_of(c->base.port)->own.any,
				&c->peer.any);
	return &c->out;
}

/* c is on no other list. */
static void release(struct srdma_udp_port *port, struct srdma_udp_conn *c)
{
	c->kind = SRDMA_UDP_FREE;
	push(&port->free, c);
}

static int refuse(struct srdma_port *port, int err, const char *why)
{
	port->why = why;
	return err;
}

static int parse(const struct srdma_udp_port *port, const char *address,
		 union srdma_udp_addr *out)
{
	struct sockaddr_storage a;

	if (srdma_addr_parse(&a, address, SRDMA_ADDR_NO_PORT) ||
	    a.ss_family != port->own.any.sa_family)
		return -EINVAL;
	memcpy(out, &a, sizeof(*out));
	return srdma_udp_conn_sendable(out) ? 0 : -EINVAL;
}

int srdma_udp_conn_connect(struct srdma_port *base, const char *address,
			   struct srdma_conn **conn)
{
	struct srdma_udp_port *port = srdma_udp_port_of(base);
	struct srdma_udp_conn *c = port->connected;
	union srdma_udp_addr peer;

	if (parse(port, address, &peer))
		return refuse(base, -EINVAL,
			      "the peer's wire address must be IP:PORT or "
			      "[IPv6]:PORT of a host, of this worker's family");
	while (c && !srdma_udp_addr_same(&c->peer, &peer))
		c = c->next;
	if (c) {
		c->refs++;
	} else if (port->connected_count == SRDMA_UDP_CONNS) {
		return refuse(base, -ENOSPC,
			      "the worker has 1024 wire connections already");
	} else {
		c = create(port, &peer, SRDMA_UDP_CONNECTED);
		push(&port->connected, c);
		port->connected_count++;
	}
	port->ups_due += !c->up_due;
	c->up_due = 1;
	*conn = &c->base;
	return 0;
}

struct srdma_udp_conn *srdma_udp_conn_take_up(struct srdma_udp_port *port)
{
	struct srdma_udp_conn *c = port->connected;

	while (!c->up_due)
		c = c->next;
	c->up_due = 0;
	port->ups_due--;
	return c;
}

void srdma_udp_conn_close(struct srdma_conn *conn)
{
	struct srdma_udp_port *port = srdma_udp_port_of(conn->port);
	struct srdma_udp_conn *c = srdma_udp_conn_of(conn);

	assert(c->refs > 0 && c->kind >= SRDMA_UDP_CONNECTED &&
	       c->kind != SRDMA_UDP_PASSING);
	if (--c->refs)
		return;
	if (c->kind == SRDMA_UDP_CONNECTED) {
		port->ups_due -= c->up_due;
		port->connected_count--;
		pull(&port->connected, c);
	} else {
		port->kept_count--;
		pull(bucket(port, &c->peer), c);
	}
	release(port, c);
}

/* --- senders ---------------------------------------------------------- */

int srdma_udp_conn_keep(struct srdma_conn *conn)
{
	struct srdma_udp_port *port = srdma_udp_port_of(conn->port);
	struct srdma_udp_conn *c = srdma_udp_conn_of(conn);

	assert(c->kind == SRDMA_UDP_PASSING);
	if (port->kept_count == SRDMA_UDP_CONNS) {
		port->stats.counts.wire_full++;
		return -ENOSPC;
	}
	c->kind = SRDMA_UDP_KEPT;
	port->kept_count++;
	return 0;
}

int srdma_udp_conn_same(const struct srdma_conn *a, const struct srdma_conn *b)
{
	return srdma_udp_addr_same(&((const struct srdma_udp_conn *)a)->peer,
				   &((const struct srdma_udp_conn *)b)->peer);
}

struct srdma_udp_conn *srdma_udp_conn_passing(struct srdma_udp_port *port,
					      const union srdma_udp_addr *from)
{
	struct srdma_udp_conn **at = bucket(port, from), *c = *at;

	while (c && !srdma_udp_addr_same(&c->peer, from))
		c = c->next;
	if (c)
		return c;
	if (port->passing_count == SRDMA_UDP_BURST)
		return NULL;
	c = create(port, from, SRDMA_UDP_PASSING);
	push(at, c);
	port->passing[port->passing_count++] = c;
	return c;
}

void srdma_udp_conn_forget(struct srdma_udp_port *port)
{
	while (port->passing_count) {
		struct srdma_udp_conn *c = port->passing[--port->passing_count];

		if (c->kind != SRDMA_UDP_PASSING)
			continue;
		pull(bucket(port, &c->peer), c);
		release(port, c);
	}
}
