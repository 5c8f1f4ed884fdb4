#include "port_verbs_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GIDS = 256 };

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

void srdma_verbs_addr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)addr)->sin_port = htons(port);
}

int srdma_verbs_addr_parse(struct sockaddr_storage *out, const char *text)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	char ip[SRDMA_NAME_LEN];
	const char *start = text, *colon = strrchr(text, ':');
	size_t len;
	uint16_t port;

	if (!colon || parse_port(colon + 1, &port))
		return -EINVAL;
	len = (size_t)(colon - text);
	memset(out, 0, sizeof(*out));
	out->ss_family = AF_INET;
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		out->ss_family = AF_INET6;
		++start;
		len -= 2;
	}
	if (len >= sizeof(ip))
		return -EINVAL;
	memcpy(ip, start, len);
	ip[len] = 0;
	srdma_verbs_addr_set_port(out, port);
	if (inet_pton(out->ss_family, ip,
		      out->ss_family == AF_INET6
			      ? (void *)&six->sin6_addr
			      : (void *)&four->sin_addr) != 1)
		return -EINVAL;
	return 0;
}

void srdma_verbs_addr_format(char out[SRDMA_NAME_LEN],
			     const struct sockaddr *addr)
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

int srdma_verbs_addr_of_device(struct ibv_context *context,
			       struct sockaddr_storage *out)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	struct ibv_gid_entry gids[MAX_GIDS];
	ssize_t i, n = ibv_query_gid_table(context, gids, MAX_GIDS, 0);

	if (n < 0)
		return (int)n;
	for (i = 0; i < n; ++i) {
		if (gids[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(gids[i].gid.raw, mapped, sizeof(mapped)))
			continue;
		memset(out, 0, sizeof(*out));
		out->ss_family = AF_INET;
		memcpy(&four->sin_addr, gids[i].gid.raw + sizeof(mapped), 4);
		return 0;
	}
	return -EADDRNOTAVAIL;
}
