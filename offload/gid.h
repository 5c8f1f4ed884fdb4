/*
 * The GID of a worker: 16 bytes as in RoCEv2, an IPv6 address or an
 * IPv4-mapped one. 16 zeros: the worker has none.
 */
#ifndef OFFLOAD_GID_H
#define OFFLOAD_GID_H

#include <stdint.h>

#include "relay/ctl.h"

/*
 * Parse an IPv4 or IPv6 address. Returns 0; -EINVAL: it is no address;
 * -EADDRNOTAVAIL: it is not unicast. *gid is then unchanged.
 */
int gid_parse(uint8_t gid[SRDMA_CTL_GID_LEN], const char *text);

/*
 * The GID of a worker that listens on text ("IP:PORT" or "IP"). Zeros if text
 * is NULL, or not one unicast address.
 */
void gid_of_listen(uint8_t gid[SRDMA_CTL_GID_LEN], const char *text);

int gid_is_zero(const uint8_t gid[SRDMA_CTL_GID_LEN]);

#endif
