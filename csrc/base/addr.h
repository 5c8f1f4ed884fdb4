/*
 * IP addresses with a port: their text form, "IP:PORT" or "[IPv6]:PORT", and
 * their properties.
 */
#ifndef SRDMA_ADDR_H
#define SRDMA_ADDR_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/name.h"

/* The text has to contain a port. */
enum { SRDMA_ADDR_NO_PORT = -1 };

/*
 * Parses text into *out. port is the default (host byte order) if text has no
 * ":PORT"; SRDMA_ADDR_NO_PORT makes the port in text mandatory. Numeric
 * addresses only.
 * Returns 0, or -EINVAL if text is not such an address.
 */
int srdma_addr_parse(struct sockaddr_storage *out, const char *text, int port);

/* addr is AF_INET or AF_INET6. The result ends with a zero byte. */
void srdma_addr_format(char out[SRDMA_NAME_LEN], const struct sockaddr *addr);

struct in_addr;
struct in6_addr;

/* 1 if a host may have this address: not 0.0.0.0/8, multicast, reserved or
 * broadcast. */
int srdma_addr_unicast4(const struct in_addr *ip);

/* 1 for an address of fe80::/10. */
int srdma_addr_is_link_local(const struct sockaddr_storage *addr);
/* 1 if both have the same IP address, whatever port and interface. */
int srdma_addr_same_ip(const struct sockaddr *a, const struct sockaddr *b);
/* The address of a GID of RoCE v2, with port 0 and without an interface. */
void srdma_addr_of_gid(struct sockaddr_storage *out,
		       const struct in6_addr *gid);

/* The GID of an IPv4 address, ::ffff:a.b.c.d. */
void srdma_addr_gid_of4(uint8_t gid[16], const struct in_addr *ip);

/* Ports are in host byte order; addr is AF_INET or AF_INET6. */
void srdma_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
uint16_t srdma_addr_port(const struct sockaddr *addr);

#endif
