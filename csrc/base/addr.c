#include "base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_port(const char *text, uint16_t *port)
{
	char *end;
	unsigned long n;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	n = strtoul(text, &end, 10);
	if (*end || n > UINT16_MAX)
		return -EINVAL;
	*port = (uint16_t)n;
	return 0;
}

/* The colon before the port, or NULL. A colon inside brackets is IPv6's. */
static const char *port_colon(const char *text)
{
	const char *colon = strrchr(text, ':');

	return colon && !strchr(colon, ']') ? colon : NULL;
}

/* text has len bytes; brackets mark an IPv6 address. */
static int parse_ip(struct sockaddr_storage *out, const char *text, size_t len)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	char ip[SRDMA_NAME_LEN];

	memset(out, 0, sizeof(*out));
	out->ss_family = AF_INET;
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		out->ss_family = AF_INET6;
		++text;
		len -= 2;
	}
	if (len >= sizeof(ip))
		return -EINVAL;
	memcpy(ip, text, len);
	ip[len] = 0;
	if (inet_pton(out->ss_family, ip,
		      out->ss_family == AF_INET6
			      ? (void *)&six->sin6_addr
			      : (void *)&four->sin_addr) != 1)
		return -EINVAL;
	return 0;
}

int srdma_addr_parse(struct sockaddr_storage *out, const char *text, int port)
{
	const char *colon = port_colon(text);
	uint16_t number = (uint16_t)port;
	int r;

	if (!colon && port < 0)
		return -EINVAL;
	if (colon && parse_port(colon + 1, &number))
		return -EINVAL;
	r = parse_ip(out, text, colon ? (size_t)(colon - text) : strlen(text));
	if (!r)
		srdma_addr_set_port(out, number);
	return r;
}

void srdma_addr_format(char out[SRDMA_NAME_LEN], const struct sockaddr *addr)
{
	const struct sockaddr_in6 *six = (const void *)addr;
	const struct sockaddr_in *four = (const void *)addr;
	char ip[INET6_ADDRSTRLEN] = "";

	if (addr->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &six->sin6_addr, ip, sizeof(ip));
		snprintf(out, SRDMA_NAME_LEN, "[%s]:%u", ip,
			 ntohs(six->sin6_port));
	} else {
		inet_ntop(AF_INET, &four->sin_addr, ip, sizeof(ip));
		snprintf(out, SRDMA_NAME_LEN, "%s:%u", ip,
			 ntohs(four->sin_port));
	}
}

int srdma_addr_unicast4(const struct in_addr *ip)
{
	const uint32_t bits = ntohl(ip->s_addr);

	return bits >> 24 && bits >> 28 < 14;
}

int srdma_addr_is_link_local(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in6 *six = (const void *)addr;

	return addr->ss_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

int srdma_addr_same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct sockaddr_in6 *six = (const void *)a,
				  *six_b = (const void *)b;
	const struct sockaddr_in *four = (const void *)a,
				 *four_b = (const void *)b;

	if (a->sa_family != b->sa_family)
		return 0;
	if (a->sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&six->sin6_addr, &six_b->sin6_addr);
	return four->sin_addr.s_addr == four_b->sin_addr.s_addr;
}

void srdma_addr_of_gid(struct sockaddr_storage *out, const struct in6_addr *gid)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	struct sockaddr_in *four = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	if (IN6_IS_ADDR_V4MAPPED(gid)) {
		out->ss_family = AF_INET;
		memcpy(&four->sin_addr, &gid->s6_addr[12], 4);
	} else {
		out->ss_family = AF_INET6;
		six->sin6_addr = *gid;
	}
}

void srdma_addr_gid_of4(uint8_t gid[16], const struct in_addr *ip)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	memcpy(gid, mapped, sizeof(mapped));
	memcpy(gid + sizeof(mapped), ip, sizeof(*ip));
}

void srdma_addr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)addr)->sin_port = htons(port);
}

uint16_t srdma_addr_port(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)(const void *)addr)
				     ->sin6_port);
	return ntohs(
		((const struct sockaddr_in *)(const void *)addr)->sin_port);
}
