/*
 * Sends one RoCEv2 packet under many packet sequence numbers (PSNs), as fast as
 * the kernel takes it, for the attack kit (docs/attacks.md):
 *
 *	sweep udp SOURCE_PORT TARGET_PORT	between sockets of 127.0.0.1
 *	sweep veth DEVICE			frames, on a device of a veth pair
 *
 * The first line of the input is the template in hex: a packet without ICRC, or
 * a frame with one. Each further line is FIRST COUNT STRIDE: COUNT packets leave
 * under the PSNs FIRST, FIRST + STRIDE, and so on, each with a right ICRC. The
 * answer is "sent COUNT".
 *
 * The program sends nowhere else. Its input is trusted.
 */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "wire/icrc.h"
#include "wire/wire.h"

enum { BURST = 64, LONGEST = 4500 };
enum { PSN_AT = 9, PSN_MASK = 0xFFFFFF };
/* Offsets in a frame: Ethernet, IPv4 without options, UDP. */
enum { IP_AT = 14, IP_ID = 4, IP_SOURCE = 12, UDP_AT = 34, HEADERS = 42 };

struct sweep {
	int sock;
	struct srdma_icrc icrc;
	uint32_t before; /* bytes of the template before the packet */
	uint32_t packet; /* bytes of the packet, without its ICRC */
	uint8_t bytes[BURST][LONGEST];
	struct iovec iov[BURST];
	struct mmsghdr msg[BURST];
};

static _Noreturn void die(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

static _Noreturn void die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("sweep: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

/* --- the two ways to send ------------------------------------------------- */

static struct sockaddr_in loopback(const char *port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static void open_udp(struct sweep *s, const char *own, const char *peer)
{
	struct sockaddr_in from = loopback(own), to = loopback(peer);
	socklen_t len = sizeof(from);

	s->sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s->sock < 0 || bind(s->sock, (const void *)&from, len) ||
	    connect(s->sock, (const void *)&to, len) ||
	    getsockname(s->sock, (void *)&from, &len))
		die("UDP to port %s: %s", peer, strerror(errno));
	srdma_icrc_init(&s->icrc, (const void *)&from, (const void *)&to);
}

static int is_veth(int sock, const char *device)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq req = { .ifr_data = (void *)&info };

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", device);
	return !ioctl(sock, SIOCETHTOOL, &req) && !strcmp(info.driver, "veth");
}

static void open_veth(struct sweep *s, const char *device)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_ifindex = (int)if_nametoindex(device) };

	s->sock = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (s->sock < 0)
		die("a socket for frames: %s: run as root", strerror(errno));
	if (!is_veth(s->sock, device))
		die("%s is no device of a veth pair: the kit attacks no other",
		    device);
	if (bind(s->sock, (const void *)&at, sizeof(at)))
		die("%s: %s", device, strerror(errno));
	s->before = HEADERS;
}

/* --- packets -------------------------------------------------------------- */

static uint32_t read_template(uint8_t out[LONGEST])
{
	static char line[2 * LONGEST + 2];
	uint32_t len = 0;

	if (!fgets(line, sizeof(line), stdin))
		die("give a template in hex");
	while (sscanf(line + (size_t)2 * len, "%2hhx", out + len) == 1)
		len++;
	return len;
}

/* The ICRC covers the addresses of the frame and, in Linux, its identification. */
static void init_icrc(struct srdma_icrc *icrc, const uint8_t *frame)
{
	struct sockaddr_in from = { .sin_family = AF_INET }, to = from;

	memcpy(&from.sin_addr, frame + IP_AT + IP_SOURCE, 4);
	memcpy(&to.sin_addr, frame + IP_AT + IP_SOURCE + 4, 4);
	memcpy(&from.sin_port, frame + UDP_AT, 2);
	memcpy(&to.sin_port, frame + UDP_AT + 2, 2);
	srdma_icrc_init(icrc, (const void *)&from, (const void *)&to);
	memcpy(icrc->header + SRDMA_ICRC_LRH + IP_ID, frame + IP_AT + IP_ID, 2);
}

static void load_template(struct sweep *s)
{
	uint8_t bytes[LONGEST];
	uint32_t len = read_template(bytes), total = len;

	if (s->before) {
		if (len < s->before + SRDMA_BTH_LEN + SRDMA_ICRC_LEN)
			die("a frame of %u bytes is too short", len);
		init_icrc(&s->icrc, bytes);
		s->packet = len - s->before - SRDMA_ICRC_LEN;
	} else {
		if (len < SRDMA_BTH_LEN || len > LONGEST - SRDMA_ICRC_LEN)
			die("no packet has %u bytes", len);
		s->packet = len;
		total = len + SRDMA_ICRC_LEN;
	}
	for (int i = 0; i < BURST; i++) {
		memcpy(s->bytes[i], bytes, len);
		s->iov[i] = (struct iovec){ s->bytes[i], total };
		s->msg[i].msg_hdr = (struct msghdr){ .msg_iov = &s->iov[i],
						     .msg_iovlen = 1 };
	}
}

static void number(struct sweep *s, int i, uint32_t psn)
{
	uint8_t *packet = s->bytes[i] + s->before;

	packet[PSN_AT] = (uint8_t)(psn >> 16);
	srdma_store16(packet + PSN_AT + 1, (uint16_t)psn);
	srdma_icrc_compute(&s->icrc, packet, s->packet, packet + s->packet);
}

static void send_burst(struct sweep *s, uint32_t n)
{
	uint32_t sent = 0;

	while (sent < n) {
		int done = sendmmsg(s->sock, s->msg + sent, n - sent, 0);

		if (done > 0)
			sent += (uint32_t)done;
		else if (errno != ENOBUFS && errno != ECONNREFUSED)
			die("sending: %s", strerror(errno));
	}
}

static void send_all(struct sweep *s, uint32_t first, uint32_t count,
		     uint32_t stride)
{
	for (uint32_t at = 0; at < count; at += BURST) {
		uint32_t n = count - at < BURST ? count - at : BURST;

		for (uint32_t i = 0; i < n; i++)
			number(s, (int)i,
			       (first + (at + i) * stride) & PSN_MASK);
		send_burst(s, n);
	}
}

int main(int argc, char *argv[])
{
	static struct sweep s;
	uint32_t first, count, stride;

	if (argc == 4 && !strcmp(argv[1], "udp"))
		open_udp(&s, argv[2], argv[3]);
	else if (argc == 3 && !strcmp(argv[1], "veth"))
		open_veth(&s, argv[2]);
	else
		die("give udp SOURCE_PORT TARGET_PORT, or veth DEVICE");
	load_template(&s);
	while (scanf("%u %u %u", &first, &count, &stride) == 3) {
		send_all(&s, first, count, stride);
		printf("sent %u\n", count);
		fflush(stdout);
	}
	close(s.sock);
	return 0;
}
