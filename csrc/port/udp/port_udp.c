#include "port/udp/port_udp_impl.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/addr.h"

enum {
	WINDOW = 1024,
	/*
	 * Room for a replay window of the longest datagrams, by the kernel's
	 * accounting.
	 */
	SOCKET_BUFFER = 4 << 20,
	LEAST_MTU = 256,
	ETHERNET_MTU = 1500, /* default if the interface cannot be determined */
	/*
	 * BTH, RETH, ImmDt, STH with proof, longest tag; UDP and ICRC headers.
	 */
	OVERHEAD = SRDMA_BTH_LEN + SRDMA_RETH_LEN + SRDMA_IMM_LEN +
		   SRDMA_STH_PROOF_LEN + SRDMA_MAX_TAG + 8 + SRDMA_ICRC_LEN,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
};

static void udp_destroy(struct srdma_port *base)
{
	struct srdma_udp_port *port = srdma_udp_port_of(base);

	if (!port)
		return;
	if (port->sock >= 0)
		srdma_udp_send_flush(base);
	if (port->epoll >= 0)
		close(port->epoll);
	if (port->sock >= 0)
		close(port->sock);
	free(port->tx.bytes);
	free(port->rx.bytes);
	free(port->conns);
	free(port);
}

static int udp_fd(struct srdma_port *port)
{
	return srdma_udp_port_of(port)->epoll;
}

/* The socket is always in the epoll set, level-triggered, so there is nothing
 * to arm. */
static int udp_arm(struct srdma_port *port)
{
	const struct srdma_udp_port *p = srdma_udp_port_of(port);

	return srdma_udp_receive_waiting(p) || srdma_udp_send_waiting(p);
}

static void udp_flush(struct srdma_port *port)
{
	srdma_udp_send_flush(port);
	srdma_udp_receive_end_turn(srdma_udp_port_of(port));
}

static void udp_disarm(struct srdma_port *port)
{
	(void)port;
}

static const struct srdma_port_ops udp_ops = {
	.poll = srdma_udp_receive_poll,
	.reserve = srdma_udp_send_reserve,
	.commit = srdma_udp_send_commit,
	.commit_bare = srdma_udp_send_commit_bare,
	.flush = udp_flush,
	.buf_put = srdma_udp_receive_put,
	.connect = srdma_udp_conn_connect,
	.keep = srdma_udp_conn_keep,
	.same = srdma_udp_conn_same,
	.close = srdma_udp_conn_close,
	.fd = udp_fd,
	.arm = udp_arm,
	.disarm = udp_disarm,
	.destroy = udp_destroy,
};

/* --- bring-up --------------------------------------------------------- */

static int refuse(char *why, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(char *why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, SRDMA_PORT_UDP_WHY_LEN, fmt, args);
	va_end(args);
	return err;
}

static int parse(struct srdma_udp_port *port, const char *address, char *why)
{
	struct sockaddr_storage a;
	union srdma_udp_addr somewhere;

	if (srdma_addr_parse(&a, address, SRDMA_UDP_PORT))
		return refuse(why, -EINVAL,
			      "%.64s is not IP, IP:PORT, [IPv6] or [IPv6]:PORT",
			      address);
	memcpy(&port->own, &a, sizeof(port->own));
	port->addr_len = a.ss_family == AF_INET6 ? sizeof(port->own.six)
						 : sizeof(port->own.four);
	srdma_addr_set_port(&a, SRDMA_UDP_PORT); /* port 0 is allowed here */
	memcpy(&somewhere, &a, sizeof(somewhere));
	if (!srdma_udp_conn_sendable(&somewhere))
		return refuse(why, -EINVAL,
			      "%.64s: name one address that peers can send to, "
			      "not link-local",
			      address);
	return 0;
}

/*
 * Sets don't-fragment. Over IPv4 the UDP checksum is off: the ICRC covers the
 * packet.
 */
static int set_options(const struct srdma_udp_port *port)
{
	const int on = 1, four = IP_PMTUDISC_DO, six = IPV6_PMTUDISC_DO;

	if (port->own.any.sa_family == AF_INET6)
		return setsockopt(port->sock, IPPROTO_IPV6, IPV6_MTU_DISCOVER,
				  &six, sizeof(six)) ||
		       setsockopt(port->sock, IPPROTO_IPV6, IPV6_V6ONLY, &on,
				  sizeof(on));
	return setsockopt(port->sock, IPPROTO_IP, IP_MTU_DISCOVER, &four,
			  sizeof(four)) ||
	       setsockopt(port->sock, SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on));
}

/*
 * Set a socket buffer to SOCKET_BUFFER bytes, beyond the system's limit if
 * permitted. Returns the resulting size in bytes.
 */
static uint32_t set_buffer(int sock, int force, int option)
{
	const int want = SOCKET_BUFFER;
	int got = 0;
	socklen_t len = sizeof(got);

	if (setsockopt(sock, SOL_SOCKET, force, &want, sizeof(want)))
		setsockopt(sock, SOL_SOCKET, option, &want, sizeof(want));
	getsockopt(sock, SOL_SOCKET, option, &got, &len);
	return (uint32_t)got;
}

static int bind_why(char *why, int err, const char *address)
{
	if (err == EADDRINUSE)
		return refuse(why, -err,
			      "%.64s is in use: by another worker, or port %d "
			      "by an rxe device; name another port",
			      address, SRDMA_UDP_PORT);
	if (err == EADDRNOTAVAIL)
		return refuse(why, -err,
			      "%.64s is not an address of this host: "
			      "name one of its addresses",
			      address);
	return refuse(why, -err, "binding %.64s: %s", address, strerror(err));
}

static int open_socket(struct srdma_udp_port *port, const char *address,
		       char *why)
{
	socklen_t len = port->addr_len;
	const int on = 1;

	port->sock = socket(port->own.any.sa_family,
			    SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (port->sock < 0 || set_options(port))
		return refuse(why, -errno, "opening a UDP socket: %s",
			      strerror(errno));
	/* A kernel without UDP_GRO splits trains by itself. */
	setsockopt(port->sock, SOL_UDP, UDP_GRO, &on, sizeof(on));
	port->stats.receive_buffer =
		set_buffer(port->sock, SO_RCVBUFFORCE, SO_RCVBUF);
	port->stats.send_buffer =
		set_buffer(port->sock, SO_SNDBUFFORCE, SO_SNDBUF);
	if (bind(port->sock, &port->own.any, len))
		return bind_why(why, errno, address);
	getsockname(port->sock, &port->own.any, &len);
	srdma_addr_format(port->base.address, &port->own.any);
	return 0;
}

/*
 * 1 if i is the interface of the port's address. All of 127/8 is on the
 * loopback interface.
 */
static int is_on(const struct srdma_udp_port *port, const struct ifaddrs *i)
{
	union srdma_udp_addr a = port->own;

	if (!i->ifa_addr || i->ifa_addr->sa_family != a.any.sa_family)
		return 0;
	if (a.any.sa_family == AF_INET6) {
		const struct sockaddr_in6 *at = (const void *)i->ifa_addr;

		return !memcmp(&at->sin6_addr, &a.six.sin6_addr,
			       sizeof(at->sin6_addr));
	}
	if (i->ifa_flags & IFF_LOOPBACK)
		return ntohl(a.four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return ((const struct sockaddr_in *)(const void *)i->ifa_addr)
		       ->sin_addr.s_addr == a.four.sin_addr.s_addr;
}

static int interface_mtu(const struct srdma_udp_port *port)
{
	struct ifreq req = { .ifr_mtu = ETHERNET_MTU };
	struct ifaddrs *list, *i;

	if (getifaddrs(&list))
		return ETHERNET_MTU;
	for (i = list; i && !is_on(port, i); i = i->ifa_next)
		;
	if (i) {
		strncpy(req.ifr_name, i->ifa_name, IFNAMSIZ - 1);
		ioctl(port->sock, SIOCGIFMTU, &req);
	}
	freeifaddrs(list);
	return req.ifr_mtu;
}

static int set_mtu(struct srdma_udp_port *port, char *why)
{
	int ip = port->own.any.sa_family == AF_INET6 ? IPV6_LEN : IPV4_LEN;
	int have = interface_mtu(port), mtu = SRDMA_MAX_PAYLOAD;

	while (mtu >= LEAST_MTU && mtu + OVERHEAD + ip > have)
		mtu /= 2;
	if (mtu < LEAST_MTU)
		return refuse(why, -EMSGSIZE,
			      "the interface's MTU is %d: "
			      "raise it to at least %d",
			      have, LEAST_MTU + OVERHEAD + ip);
	port->base.mtu = (uint32_t)mtu;
	return 0;
}

static int allocate(struct srdma_udp_port *port)
{
	enum { CONNS = 2 * SRDMA_UDP_CONNS + SRDMA_UDP_BURST };

	port->tx.bytes = calloc(SRDMA_UDP_SLOTS, SRDMA_UDP_STRIDE);
	port->rx.bytes = calloc(SRDMA_UDP_BURST, SRDMA_UDP_ROOM);
	port->conns = calloc(CONNS, sizeof(*port->conns));
	if (!port->tx.bytes || !port->rx.bytes || !port->conns)
		return -ENOMEM;
	for (int i = CONNS; i-- > 0;) {
		port->conns[i].next = port->free;
		port->free = &port->conns[i];
	}
	srdma_udp_receive_init(port);
	srdma_udp_send_init(port);
	return 0;
}

static int watch(struct srdma_udp_port *port)
{
	struct epoll_event ev = { .events = EPOLLIN };

	port->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (port->epoll < 0 ||
	    epoll_ctl(port->epoll, EPOLL_CTL_ADD, port->sock, &ev))
		return -errno;
	return 0;
}

static int bring_up(struct srdma_udp_port *port, const char *address, char *why)
{
	int r = parse(port, address, why);

	if (!r)
		r = open_socket(port, address, why);
	if (!r)
		r = set_mtu(port, why);
	if (r)
		return r;
	r = allocate(port);
	if (!r)
		r = watch(port);
	return r ? refuse(why, r, "no memory or descriptors: %s", strerror(-r))
		 : 0;
}

int srdma_port_udp_create(struct srdma_port **out, const char *address,
			  char why[SRDMA_PORT_UDP_WHY_LEN])
{
	struct srdma_udp_port *port = calloc(1, sizeof(*port));
	int r;

	if (!port)
		return refuse(why, -ENOMEM, "out of memory");
	port->base.ops = &udp_ops;
	port->base.kind = SRDMA_PORT_UDP;
	port->base.window = WINDOW;
	port->base.counts = &port->stats.counts;
	port->sock = port->epoll = -1;
	r = bring_up(port, address, why);
	if (r) {
		udp_destroy(&port->base);
		return r;
	}
	*out = &port->base;
	return 0;
}

void srdma_port_udp_take_bare(struct srdma_port *port)
{
	port->bare = srdma_udp_port_of(port)->own.any.sa_family == AF_INET;
}

const struct srdma_udp_stats *
srdma_port_udp_stats(const struct srdma_port *port)
{
	return &((const struct srdma_udp_port *)port)->stats;
}
