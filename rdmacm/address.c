/* Addresses of RDMA-CM are IP addresses, which are GIDs here (docs/run.md 5). */
#include <errno.h>
#include <string.h>

#include "base/addr.h"
#include "rdmacm/objects.h"

int cm_address_gid(uint8_t gid[SRDMA_GID_LEN], const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)a)->sin6_addr,
		       SRDMA_GID_LEN);
		return 0;
	}
	if (a->sa_family != AF_INET)
		return -EAFNOSUPPORT;
	srdma_addr_gid_of4(gid, &((const struct sockaddr_in *)a)->sin_addr);
	return 0;
}

void cm_address_of(struct sockaddr_storage *a, const uint8_t gid[SRDMA_GID_LEN],
		   uint16_t port)
{
	struct in6_addr ip;

	memcpy(&ip, gid, sizeof(ip));
	srdma_addr_of_gid(a, &ip);
	srdma_addr_set_port(a, port);
}

socklen_t cm_address_len(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					: sizeof(struct sockaddr_in);
}

/* 1: a is v4, also as a mapped address, or v6. */
static int is_either(const struct sockaddr *a, const struct in_addr *v4,
		     const struct in6_addr *v6)
{
	uint8_t gid[SRDMA_GID_LEN], mapped[SRDMA_GID_LEN];

	if (cm_address_gid(gid, a))
		return 0;
	srdma_addr_gid_of4(mapped, v4);
	return !memcmp(gid, v6, sizeof(gid)) ||
	       !memcmp(gid, mapped, sizeof(mapped));
}

int cm_address_any(const struct sockaddr *a)
{
	const struct in_addr v4 = { htonl(INADDR_ANY) };

	return is_either(a, &v4, &in6addr_any);
}

int cm_address_localhost(const struct sockaddr *a)
{
	const struct in_addr v4 = { htonl(INADDR_LOOPBACK) };

	return is_either(a, &v4, &in6addr_loopback);
}
