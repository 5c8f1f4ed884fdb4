/*
 * IP addresses with a port as text: "IP:PORT", "[IPv6]:PORT".
 */
#ifndef SRDMA_ADDR_H
#define SRDMA_ADDR_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/name.h"

/* The text must name a port. */
enum { SRDMA_ADDR_NO_PORT = -1 };

/*
 * port: what a text without ":PORT" means, or SRDMA_ADDR_NO_PORT.
 * 0 or -EINVAL.
 */
int srdma_addr_parse(struct sockaddr_storage *out, const char *text, int port);

/* addr: AF_INET or AF_INET6. */
void srdma_addr_format(char out[SRDMA_NAME_LEN], const struct sockaddr *addr);

void srdma_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
uint16_t srdma_addr_port(const struct sockaddr *addr);

#endif
