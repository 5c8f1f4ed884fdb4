/*
 * Receive path of the UDP wire: datagrams and trains from the kernel with
 * arbitrary lengths, flags, ancillary data and senders. Only datagrams with a
 * correct ICRC from legal senders are delivered, a datagram keeps its bytes until
 * it is put back, and every table entry of a connection becomes free again.
 */
#include <errno.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "port/udp/port_udp_impl.h"

#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

enum { KEPT = 64 };

/* The fuzzer's bytes, followed by zeros. */
static struct {
	const uint8_t *at;
	size_t left;
} in;

static struct srdma_udp_port *port;
static struct srdma_conn *kept[KEPT];

/* Datagrams that are put back after the next poll. */
static struct {
	struct srdma_buf *buf;
	uint32_t len;
	uint8_t bytes[SRDMA_MAX_PACKET];
} held[SRDMA_UDP_BUFS];
static unsigned holds;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t next(void)
{
	if (!in.left)
		return 0;
	in.left--;
	return *in.at++;
}

static void next_bytes(void *out, size_t len)
{
	uint8_t *to = out;

	while (len--)
		*to++ = next();
}

/*
 * Fills in one of 16 senders. Sometimes its address, or the length of it, is
 * random.
 */
static void sender(struct msghdr *hdr, uint8_t how)
{
	struct sockaddr_in *from = hdr->msg_name;

	memset(hdr->msg_name, 0, sizeof(union srdma_udp_addr));
	hdr->msg_namelen = port->addr_len;
	from->sin_family = AF_INET;
	from->sin_addr.s_addr = htonl(0x7f000001 + (how >> 4));
	from->sin_port = htons(9);
	if ((how & 15) == 15)
		next_bytes(hdr->msg_name, sizeof(union srdma_udp_addr));
	if ((how & 15) == 14)
		hdr->msg_namelen = next();
}

/* Ancillary data: none, the length of a train's datagrams, or anything. */
static int control(struct msghdr *hdr, uint8_t how)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(hdr);
	int size = next() | next() << 8;

	CHECK(c);
	if (!(how & 6)) {
		hdr->msg_controllen = 0;
		return 0;
	}
	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(size)),
			       .cmsg_level = SOL_UDP,
			       .cmsg_type = UDP_GRO };
	if ((how & 6) == 6)
		next_bytes(&size, sizeof(size));
	memcpy(CMSG_DATA(c), &size, sizeof(size));
	if (how & 8)
		next_bytes(c, sizeof(*c));
	return size;
}

/* Makes the ICRC of the datagram of len bytes at data right. */
static void mend(const struct msghdr *hdr, uint8_t *data, uint32_t len)
{
	struct srdma_icrc icrc;

	if (len < SRDMA_UDP_SHORTEST)
		return;
	len -= SRDMA_ICRC_LEN;
	srdma_icrc_init(&icrc, hdr->msg_name, &port->own.any);
	srdma_icrc_compute(&icrc, data, len, data + len);
}

static void datagram(struct mmsghdr *msg)
{
	const struct iovec *v = msg->msg_hdr.msg_iov;
	uint8_t how = next(), *data = v->iov_base;
	uint32_t len = next() | (uint32_t)next() << 8, at = 0, each;
	int size;

	CHECK(v->iov_len == SRDMA_UDP_ROOM);
	sender(&msg->msg_hdr, next());
	size = control(&msg->msg_hdr, how);
	msg->msg_hdr.msg_flags =
		(how & 16 ? MSG_TRUNC : 0) | (how & 32 ? MSG_CTRUNC : 0);
	msg->msg_len = len;
	next_bytes(data, len);
	each = size > 0 && (uint32_t)size < len ? (uint32_t)size : len;
	for (; how & 1 && at < len; at += each)
		mend(&msg->msg_hdr, data + at,
		     len - at < each ? len - at : each);
}

int recvmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags,
	     struct timespec *timeout)
{
	unsigned int got = next() % (n + 1);

	(void)fd;
	(void)flags;
	(void)timeout;
	CHECK(n <= SRDMA_UDP_BURST);
	for (unsigned int i = 0; i < got; i++)
		datagram(&msg[i]);
	if (got)
		return (int)got;
	errno = EAGAIN;
	return -1;
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	(void)fd;
	(void)flags;
	for (unsigned int i = 0; i < n; i++)
		CHECK(msg[i].msg_hdr.msg_iov->iov_len <= SRDMA_UDP_LONGEST);
	return (int)n;
}

static void hold(struct srdma_buf *buf)
{
	CHECK(holds < SRDMA_UDP_BUFS);
	held[holds].buf = buf;
	held[holds].len = buf->len;
	memcpy(held[holds++].bytes, buf->data, buf->len);
}

static void put_back(void)
{
	for (; holds; holds--) {
		struct srdma_buf *buf = held[holds - 1].buf;

		CHECK(buf->len == held[holds - 1].len);
		CHECK(!memcmp(buf->data, held[holds - 1].bytes, buf->len));
		port->base.ops->buf_put(buf);
	}
}

static void handle(const struct srdma_event *ev)
{
	const uint8_t what = next(), then = next();

	CHECK(ev->kind == SRDMA_EV_RECV);
	CHECK(ev->buf->len >= SRDMA_UDP_SHORTEST - SRDMA_ICRC_LEN);
	CHECK(ev->buf->len <= SRDMA_MAX_PACKET);
	if (what & 1 && !ev->conn->user && !kept[what >> 2] &&
	    !port->base.ops->keep(ev->conn)) {
		kept[what >> 2] = ev->conn;
		ev->conn->user = &kept[what >> 2];
	}
	if (what & 2) {
		uint8_t *out = port->base.ops->reserve(ev->conn);

		CHECK(out);
		memcpy(out, ev->buf->data, ev->buf->len);
		CHECK(!port->base.ops->commit(ev->conn, ev->buf->len));
	}
	if (then & 1)
		hold(ev->buf);
	else
		port->base.ops->buf_put(ev->buf);
}

static void drop(struct srdma_conn **c)
{
	if (*c)
		port->base.ops->close(*c);
	*c = NULL;
}

static uint32_t places(void)
{
	uint32_t n = 0;

	for (const struct srdma_udp_conn *c = port->free; c; c = c->next)
		n++;
	return n;
}

static void open_port(void)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *base;

	CHECK(!srdma_port_udp_create(&base, "127.0.0.1:0", why));
	port = srdma_udp_port_of(base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct srdma_event ev[SRDMA_UDP_BURST];
	uint32_t before;

	if (!port)
		open_port();
	before = places();
	in.at = data;
	in.left = size;
	port->base.bare = next() & 1;
	while (in.left) {
		int n = port->base.ops->poll(&port->base, ev,
					     1 + next() % SRDMA_UDP_BURST);

		put_back();
		for (int i = 0; i < n; i++)
			handle(&ev[i]);
		drop(&kept[next() % KEPT]);
		if (next() & 1)
			port->base.ops->flush(&port->base);
	}
	put_back();
	port->base.ops->flush(&port->base);
	for (int i = 0; i < KEPT; i++)
		drop(&kept[i]);
	while (port->rx.at != port->rx.got) {
		int n = port->base.ops->poll(&port->base, ev, 1);

		for (int i = 0; i < n; i++)
			port->base.ops->buf_put(ev[i].buf);
	}
	CHECK(!port->base.ops->poll(&port->base, ev, 1));
	CHECK(places() == before);
	CHECK(!port->kept_count && !port->passing_count);
	return 0;
}
