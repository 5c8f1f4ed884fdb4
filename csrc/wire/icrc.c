#include "wire/icrc.h"

#include <netinet/in.h>
#include <string.h>

#include <libdeflate.h>

#include "base/bytes.h"
#include "wire/wire.h"

enum {
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	IPV4_DF = 0x4000,
	BTH_RESV8A = 4, /* FECN, BECN, reserved: changed by routers */
};

/* ToS, TTL and checksum keep all bits 1. */
static void put_ipv4(uint8_t *ip, const struct sockaddr_in *from,
		     const struct sockaddr_in *to)
{
	ip[0] = 0x45;
	srdma_store16(ip + 4, 0);
	srdma_store16(ip + 6, IPV4_DF);
	ip[9] = IPPROTO_UDP;
	memcpy(ip + 12, &from->sin_addr, 4);
	memcpy(ip + 16, &to->sin_addr, 4);
}

/* Traffic class, flow label and hop limit keep all bits 1. */
static void put_ipv6(uint8_t *ip, const struct sockaddr_in6 *from,
		     const struct sockaddr_in6 *to)
{
	ip[0] = 0x6f;
	ip[6] = IPPROTO_UDP;
	memcpy(ip + 8, &from->sin6_addr, 16);
	memcpy(ip + 24, &to->sin6_addr, 16);
}

/* The checksum keeps all bits 1. */
static void put_ports(uint8_t *udp, const void *from, const void *to)
{
	memcpy(udp, from, 2);
	memcpy(udp + 2, to, 2);
}

void srdma_icrc_choose(void)
{
	libdeflate_crc32(0, "", 1);
}

void srdma_icrc_init(struct srdma_icrc *c, const struct sockaddr *from,
		     const struct sockaddr *to)
{
	uint8_t *ip = c->header + SRDMA_ICRC_LRH;

	c->packet = 0;
	memset(c->header, 0xff, sizeof(c->header));
	if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *a = (const void *)from;
		const struct sockaddr_in6 *b = (const void *)to;

		put_ipv6(ip, a, b);
		put_ports(ip + IPV6_LEN, &a->sin6_port, &b->sin6_port);
		c->len = SRDMA_ICRC_LRH + IPV6_LEN + UDP_LEN;
	} else {
		const struct sockaddr_in *a = (const void *)from;
		const struct sockaddr_in *b = (const void *)to;

		put_ipv4(ip, a, b);
		put_ports(ip + IPV4_LEN, &a->sin_port, &b->sin_port);
		c->len = SRDMA_ICRC_LRH + IPV4_LEN + UDP_LEN;
	}
}

static void put_lengths(uint8_t *header, uint32_t header_len, uint32_t packet)
{
	const uint32_t udp = UDP_LEN + packet + SRDMA_ICRC_LEN;
	uint8_t *ip = header + SRDMA_ICRC_LRH;

	if (ip[0] >> 4 == 4)
		srdma_store16(ip + 2, (uint16_t)(IPV4_LEN + udp));
	else
		srdma_store16(ip + 4, (uint16_t)udp);
	srdma_store16(header + header_len - UDP_LEN + 4, (uint16_t)udp);
}

void srdma_icrc_compute(struct srdma_icrc *c, uint8_t *packet, uint32_t len,
			uint8_t out[SRDMA_ICRC_LEN])
{
	const uint8_t resv8a = packet[BTH_RESV8A];
	uint32_t crc;

	if (len != c->packet) {
		put_lengths(c->header, c->len, len);
		c->front = libdeflate_crc32(0, c->header, c->len);
		c->packet = len;
	}
	packet[BTH_RESV8A] = 0xff;
	crc = libdeflate_crc32(c->front, packet, len);
	packet[BTH_RESV8A] = resv8a;
	for (int i = 0; i < SRDMA_ICRC_LEN; i++)
		out[i] = (uint8_t)(crc >> 8 * i);
}
