/*
 * bench/flooder: sends datagrams that are not genuine to the UDP wire of a
 * worker, in a laboratory: IPv4 addresses of the loopback interface only. It
 * prints a line of JSON at its end, or at SIGTERM. `srdma bench flood` runs it.
 *
 * With --kind tag it is an attacker who sees the packets: for each packet that
 * passes to --watch it sends copies that the worker must decrypt to refuse. The
 * copies have numbers that were not used yet, a changed last byte and a right
 * ICRC.
 */
#include <errno.h>
#include <getopt.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "clock.h"
#include "number.h"
#include "wire/icrc.h"
#include "wire/wire.h"

enum {
	BATCH = 64,	     /* datagrams per sendmmsg() */
	AHEAD = 1024,	     /* copies: least distance to the original's PSN */
	SPREAD = 20,	     /* log2 of the number of QPNs of --kind qpn */
	GARBAGE = 256,	     /* bytes of a datagram of --kind garbage */
	SOURCE = 0x7f000063, /* 127.0.0.99: own packets are recognised by it */
	MAX_COPIES = 64,
};

struct flood {
	struct sockaddr_storage to, watch, from;
	long copies;   /* per packet seen */
	uint64_t gap;  /* ns between batches; 0: none */
	uint64_t end;  /* time, ns */
	uint64_t most; /* datagrams */
	uint64_t sent, lost;
	uint64_t random;
	struct srdma_icrc icrc;
	int sock, sniffer;
	struct mmsghdr msg[BATCH];
	struct iovec iov[BATCH];
	uint8_t bytes[BATCH][SRDMA_MAX_PACKET + SRDMA_ICRC_LEN];
	unsigned queued;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "flooder: %s: %s\n", what, strerror(errno));
	exit(1);
}

static _Noreturn void usage(const char *why)
{
	fprintf(stderr,
		"flooder: %s\nUse: flooder --to IP:PORT --kind tag|qpn|garbage "
		"[--watch IP:PORT] [--copies N] [--rate N] [--seconds S] "
		"[--count N]\n",
		why);
	exit(2);
}

/* xorshift64: the datagrams need no secrecy. */
static uint64_t next_random(struct flood *f)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return f->random;
}

static int is_over(const struct flood *f)
{
	return stopped || f->sent >= f->most || clock_now() >= f->end;
}

/* --- sending --------------------------------------------------------- */

/* A full socket buffer loses a batch: a flood does not wait. */
static void flush(struct flood *f)
{
	const unsigned n = f->queued;
	const int sent = n ? sendmmsg(f->sock, f->msg, n, MSG_DONTWAIT) : 0;

	f->queued = 0;
	if (sent < 0 && errno != EAGAIN && errno != ENOBUFS &&
	    errno != ECONNREFUSED)
		fail("sendmmsg");
	f->sent += sent < 0 ? 0 : (unsigned)sent;
	f->lost += n - (sent < 0 ? 0 : (unsigned)sent);
}

/* Queues a packet of len bytes, which is at the end of f->bytes already. */
static void add(struct flood *f, uint32_t len, int icrc)
{
	uint8_t *packet = f->bytes[f->queued];

	if (icrc) {
		srdma_icrc_compute(&f->icrc, packet, len, packet + len);
		len += SRDMA_ICRC_LEN;
	}
	f->iov[f->queued].iov_base = packet;
	f->iov[f->queued].iov_len = len;
	f->msg[f->queued].msg_hdr =
		(struct msghdr){ .msg_name = &f->to,
				 .msg_namelen = sizeof(struct sockaddr_in),
				 .msg_iov = &f->iov[f->queued],
				 .msg_iovlen = 1 };
	if (++f->queued == BATCH)
		flush(f);
}

static void fill(struct flood *f, uint32_t len)
{
	for (uint32_t i = 0; i < len; i += 8) {
		const uint64_t random = next_random(f);

		memcpy(f->bytes[f->queued] + i, &random, 8);
	}
}

/* --- kinds ----------------------------------------------------------- */

static void copy(struct flood *f, const uint8_t *packet, uint32_t len)
{
	uint8_t *out = f->bytes[f->queued];
	const uint32_t psn = srdma_load24(packet + 9);

	memcpy(out, packet, len);
	srdma_store24(out + 9,
		      (psn + AHEAD + (next_random(f) % AHEAD)) & 0xffffff);
	out[len - 1] ^= 1;
	add(f, len, 1);
}

/* The packet in a captured IPv4 datagram to the watched address; NULL: none. */
static const uint8_t *seen(const struct flood *f, const uint8_t *in, size_t got,
			   uint32_t *len)
{
	const struct sockaddr_in *watch = (const struct sockaddr_in *)&f->watch;
	struct iphdr ip;
	struct udphdr udp;
	size_t at;

	if (got < sizeof(ip) + sizeof(udp))
		return NULL;
	memcpy(&ip, in, sizeof(ip));
	at = (size_t)ip.ihl * 4;
	if (ip.protocol != IPPROTO_UDP || ip.daddr != watch->sin_addr.s_addr ||
	    ip.saddr == htonl(SOURCE) || got < at + sizeof(udp))
		return NULL;
	memcpy(&udp, in + at, sizeof(udp));
	at += sizeof(udp);
	if (udp.dest != watch->sin_port ||
	    got < at + SRDMA_BTH_LEN + SRDMA_ICRC_LEN ||
	    got > at + SRDMA_MAX_PACKET + SRDMA_ICRC_LEN)
		return NULL;
	*len = (uint32_t)(got - at - SRDMA_ICRC_LEN);
	return in + at;
}

static void send_copies(struct flood *f)
{
	uint8_t in[65536];

	while (!is_over(f)) {
		struct pollfd ready = { .fd = f->sniffer, .events = POLLIN };
		const ssize_t got =
			recv(f->sniffer, in, sizeof(in), MSG_DONTWAIT);
		const uint8_t *packet;
		uint32_t len;

		if (got < 0) {
			flush(f);
			poll(&ready, 1, 100);
			continue;
		}
		packet = seen(f, in, (size_t)got, &len);
		for (long i = 0; packet && i < f->copies; i++)
			copy(f, packet, len);
	}
	flush(f);
}

static void send_at_rate(struct flood *f, int garbage)
{
	uint64_t due = clock_now();

	while (!is_over(f)) {
		for (unsigned i = 0; i < BATCH; i++) {
			fill(f, GARBAGE);
			if (!garbage) { /* a legal BTH: SEND_ONLY, tag of 128 bits */
				uint8_t *p = f->bytes[f->queued];

				memset(p, 0, SRDMA_BTH_LEN);
				p[0] = 0x04;
				p[2] = p[3] = 0xff;
				srdma_store24(p + 5,
					      (uint32_t)(next_random(f) &
							 ((1 << SPREAD) - 1)));
				srdma_store24(p + 9, (uint32_t)next_random(f) &
							     0xffffff);
			}
			add(f, GARBAGE, !garbage);
		}
		due += f->gap;
		while (f->gap && clock_now() < due && !stopped)
			usleep(50);
	}
}

/* --- start ----------------------------------------------------------- */

static void loopback(struct sockaddr_storage *out, const char *text)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)out;

	if (srdma_addr_parse(out, text, SRDMA_ADDR_NO_PORT) ||
	    out->ss_family != AF_INET ||
	    ntohl(in->sin_addr.s_addr) >> 24 != 127)
		usage("--to, --watch: give an address of 127.0.0.0/8, IP:PORT");
}

static void open_sockets(struct flood *f, int sniff)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_IP),
				  .sll_ifindex = (int)if_nametoindex("lo") };
	socklen_t len = sizeof(from);
	const int on = 1, room = 8 << 20;

	from.sin_addr.s_addr = htonl(SOURCE);
	f->sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (f->sock < 0 || bind(f->sock, (struct sockaddr *)&from, len) ||
	    getsockname(f->sock, (struct sockaddr *)&f->from, &len))
		fail("UDP socket");
	srdma_icrc_init(&f->icrc, (struct sockaddr *)&f->from,
			(struct sockaddr *)&f->to);
	if (!sniff)
		return;
	f->sniffer = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (f->sniffer < 0)
		fail("packet socket (needs CAP_NET_RAW)");
	setsockopt(f->sniffer, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on,
		   sizeof(on));
	setsockopt(f->sniffer, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	if (bind(f->sniffer, (struct sockaddr *)&at, sizeof(at)))
		fail("packet socket");
}

static const char *const kinds[] = { "tag", "qpn", "garbage" };

static int kind_of(const char *text)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(kinds[i], text) == 0)
			return i;
	usage("--kind: give tag, qpn or garbage");
}

static int read_options(struct flood *f, int argc, char **argv)
{
	static const struct option options[] = {
		{ "to", 1, NULL, 't' },	   { "watch", 1, NULL, 'w' },
		{ "kind", 1, NULL, 'k' },  { "copies", 1, NULL, 'c' },
		{ "rate", 1, NULL, 'r' },  { "seconds", 1, NULL, 's' },
		{ "count", 1, NULL, 'n' }, { NULL, 0, NULL, 0 },
	};
	uint64_t ns = 3600ull * 1000000000;
	long rate = 0, count = 1l << 40;
	int kind = -1, c, legal = 1;

	f->copies = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 't':
			loopback(&f->to, optarg);
			break;
		case 'w':
			loopback(&f->watch, optarg);
			break;
		case 'k':
			kind = kind_of(optarg);
			break;
		case 'c':
			legal &= number_read(optarg, 1, MAX_COPIES, &f->copies);
			break;
		case 'r':
			legal &= number_read(optarg, 1, 100000000, &rate);
			break;
		case 's':
			legal &= seconds_read(optarg, &ns);
			break;
		case 'n':
			legal &= number_read(optarg, 1, 1l << 40, &count);
			break;
		default:
			legal = 0;
		}
	if (!legal || optind < argc || kind < 0 || !f->to.ss_family)
		usage("an option is missing or not legal");
	if (!f->watch.ss_family)
		f->watch = f->to;
	f->gap = rate ? 1000000000ull * BATCH / (uint64_t)rate : 0;
	f->most = (uint64_t)count;
	f->end = clock_now() + ns;
	return kind;
}

int main(int argc, char **argv)
{
	static struct flood f = { .random = 0x9e3779b97f4a7c15 };
	const struct sigaction action = { .sa_handler = stop };
	const int kind = read_options(&f, argc, argv);
	const uint64_t began = clock_now();

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	open_sockets(&f, kind == 0);
	if (kind == 0)
		send_copies(&f);
	else
		send_at_rate(&f, kind == 2);
	printf("{\"sent\": %llu, \"lost\": %llu, \"seconds\": %.3f}\n",
	       (unsigned long long)f.sent, (unsigned long long)f.lost,
	       (double)(clock_now() - began) / 1e9);
	return 0;
}
