#include "cable.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "wire/icrc.h"
#include "wire/wire.h"

enum { BURST = 64, ROOM = 64 << 20 };
enum {
	ETHERNET = 14,
	ETHERTYPE = 12,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ALL = 0x0003,
	IPV4 = 20,
	IPV4_ID = 4,
	IPV4_PROTOCOL = 9,
	IPV4_SOURCE = 12,
	IPV4_DESTINATION = 16,
	UDP = 8,
	ROCE_PORT = 4791,
};

struct batch {
	struct mmsghdr msg[BURST];
	struct iovec iov[BURST];
	uint8_t data[BURST][FRAME_MAX];
	uint32_t count;
};

struct net {
	struct cable cable;
	struct batch in, out[SIDES];
};

static struct net *net_of(struct cable *c)
{
	return (struct net *)(void *)c;
}

static void batch_init(struct batch *b)
{
	for (int i = 0; i < BURST; i++) {
		b->iov[i] = (struct iovec){ b->data[i], FRAME_MAX };
		b->msg[i].msg_hdr = (struct msghdr){ .msg_iov = &b->iov[i],
						     .msg_iovlen = 1 };
	}
}

/* --- frames --------------------------------------------------------------- */

/* Finds the packet in a RoCEv2 frame, without its ICRC. */
static void find_packet(struct frame *f)
{
	const uint8_t *ip = f->data + ETHERNET, *udp = ip + IPV4;
	const uint32_t headers = ETHERNET + IPV4 + UDP;

	if (f->len < headers + SRDMA_BTH_LEN + SRDMA_ICRC_LEN ||
	    srdma_load16(f->data + ETHERTYPE) != ETHERTYPE_IPV4 ||
	    *ip != 0x45 || ip[IPV4_PROTOCOL] != IPPROTO_UDP ||
	    srdma_load16(udp + 2) != ROCE_PORT ||
	    srdma_load16(udp + 4) != f->len - ETHERNET - IPV4)
		return;
	f->at = headers;
	f->packet = f->len - headers - SRDMA_ICRC_LEN;
}

static void mend(struct frame *f)
{
	const uint8_t *ip = f->data + ETHERNET, *udp = ip + IPV4;
	struct sockaddr_in from = { .sin_family = AF_INET }, to = from;
	struct srdma_icrc icrc;

	memcpy(&from.sin_addr, ip + IPV4_SOURCE, 4);
	memcpy(&to.sin_addr, ip + IPV4_DESTINATION, 4);
	memcpy(&from.sin_port, udp, 2);
	memcpy(&to.sin_port, udp + 2, 2);
	srdma_icrc_init(&icrc, (const void *)&from, (const void *)&to);
	/* the kernel's RoCE sets the IPv4 identification */
	memcpy(icrc.header + SRDMA_ICRC_LRH + IPV4_ID, ip + IPV4_ID, 2);
	srdma_icrc_compute(&icrc, f->data + f->at, f->packet,
			   f->data + f->at + f->packet);
}

static int take(struct cable *c, cable_sink *sink, void *arg)
{
	struct batch *b = &net_of(c)->in;
	int busy = 0;

	for (int side = LEFT; side < SIDES; side++) {
		int n = recvmmsg(c->fds[side], b->msg, BURST, MSG_DONTWAIT,
				 NULL);

		for (int i = 0; i < n; i++) {
			struct frame frame = { .data = b->data[i],
					       .len = b->msg[i].msg_len,
					       .side = side };

			find_packet(&frame);
			sink(arg, &frame);
		}
		busy |= n > 0;
	}
	return busy;
}

/* Frames that the device does not accept are lost, as on any network. */
static void send_all(int fd, struct batch *b)
{
	uint32_t sent = 0;

	while (sent < b->count) {
		int n = sendmmsg(fd, b->msg + sent, b->count - sent, 0);

		sent += n > 0 ? (uint32_t)n : 1;
	}
	b->count = 0;
}

static void give(struct cable *c, const struct frame *frame)
{
	struct batch *b = &net_of(c)->out[!frame->side];

	if (b->count == BURST)
		send_all(c->fds[!frame->side], b);
	memcpy(b->data[b->count], frame->data, frame->len);
	b->iov[b->count++].iov_len = frame->len;
}

static void flush(struct cable *c)
{
	for (int side = LEFT; side < SIDES; side++)
		send_all(c->fds[side], &net_of(c)->out[side]);
}

/* --- life cycle ----------------------------------------------------------- */

/* no work is pending that the sockets do not signal */
static int arm(struct cable *c)
{
	(void)c;
	return 0;
}

static void disarm(struct cable *c)
{
	(void)c;
}

static void destroy(struct cable *c)
{
	for (int side = LEFT; side < SIDES; side++)
		close(c->fds[side]);
	free(net_of(c));
}

static const struct cable_ops ops = {
	.take = take,
	.give = give,
	.flush = flush,
	.mend = mend,
	.arm = arm,
	.disarm = disarm,
	.destroy = destroy,
};

static int open_device(const char *name)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETHERTYPE_ALL),
				  .sll_ifindex = (int)if_nametoindex(name) };
	const int room = ROOM, one = 1;
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0 || !at.sll_ifindex ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one,
		       sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    bind(fd, (const void *)&at, sizeof(at)))
		die("%s: %s", name, strerror(errno));
	return fd;
}

/* The other end of QEMU's `-netdev socket,udp=`. */
static int open_socket(const char *own, const char *peer)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
					.sin_port = htons((uint16_t)atoi(peer)),
					.sin_addr.s_addr =
						htonl(INADDR_LOOPBACK) };
	struct sockaddr_in from = to;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	from.sin_port = htons((uint16_t)atoi(own));
	if (fd < 0 || bind(fd, (const void *)&from, sizeof(from)) ||
	    connect(fd, (const void *)&to, sizeof(to)))
		die("UDP from port %s to %s: %s", own, peer, strerror(errno));
	return fd;
}

static struct cable *create(int left, int right)
{
	struct net *n = calloc(1, sizeof(*n));

	if (!n)
		die("no memory");
	n->cable.ops = &ops;
	n->cable.fds[LEFT] = left;
	n->cable.fds[RIGHT] = right;
	batch_init(&n->in);
	for (int side = LEFT; side < SIDES; side++)
		batch_init(&n->out[side]);
	return &n->cable;
}

struct cable *cable_net_create(const char *const devices[SIDES])
{
	return create(open_device(devices[LEFT]), open_device(devices[RIGHT]));
}

struct cable *cable_vms_create(const char *const ports[SIDES][2])
{
	return create(open_socket(ports[LEFT][0], ports[LEFT][1]),
		      open_socket(ports[RIGHT][0], ports[RIGHT][1]));
}
