#include "gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/addr.h"
#include "port/udp/port_udp.h"

/* Make *gid of an address of a family. Returns 0 or -EADDRNOTAVAIL. */
static int make(uint8_t gid[SRDMA_CTL_GID_LEN], int family, const void *address)
{
	struct in6_addr six;
	struct in_addr four;

	if (family == AF_INET6)
		memcpy(&six, address, sizeof(six));
	else
		srdma_addr_gid_of4(six.s6_addr, address);
	memcpy(&four, six.s6_addr + sizeof(six) - sizeof(four), sizeof(four));
	if (IN6_IS_ADDR_UNSPECIFIED(&six) || IN6_IS_ADDR_MULTICAST(&six) ||
	    (IN6_IS_ADDR_V4MAPPED(&six) && !srdma_addr_unicast4(&four)))
		return -EADDRNOTAVAIL;
	memcpy(gid, &six, sizeof(six));
	return 0;
}

int gid_parse(uint8_t gid[SRDMA_CTL_GID_LEN], const char *text)
{
	struct in6_addr six;
	struct in_addr four;

	if (inet_pton(AF_INET, text, &four) == 1)
		return make(gid, AF_INET, &four);
	if (inet_pton(AF_INET6, text, &six) == 1)
		return make(gid, AF_INET6, &six);
	return -EINVAL;
}

void gid_of_listen(uint8_t gid[SRDMA_CTL_GID_LEN], const char *text)
{
	struct sockaddr_storage at;

	memset(gid, 0, SRDMA_CTL_GID_LEN);
	if (!text || srdma_addr_parse(&at, text, SRDMA_UDP_PORT) < 0)
		return;
	make(gid, at.ss_family,
	     at.ss_family == AF_INET6
		     ? (const void *)&((struct sockaddr_in6 *)&at)->sin6_addr
		     : (const void *)&((struct sockaddr_in *)&at)->sin_addr);
}

int gid_is_zero(const uint8_t gid[SRDMA_CTL_GID_LEN])
{
	static const uint8_t zero[SRDMA_CTL_GID_LEN];

	return memcmp(gid, zero, sizeof(zero)) == 0;
}
