/*
 * The invariant CRC behind a RoCEv2 datagram (docs/protocol.md 11a): CRC-32
 * over the IP and UDP headers, those fields that routers change taken as
 * ones, and the packet. It finds broken datagrams; it protects nothing.
 */
#ifndef SRDMA_ICRC_H
#define SRDMA_ICRC_H

#include <stdint.h>
#include <sys/socket.h>

enum {
	SRDMA_ICRC_LEN = 4,
	SRDMA_ICRC_LRH = 8, /* bytes of ones for the link's header */
	SRDMA_ICRC_MAX_HEADER = SRDMA_ICRC_LRH + 40 + 8,
};

/* The headers before a packet as the CRC sees them, but for their lengths. */
struct srdma_icrc {
	uint8_t header[SRDMA_ICRC_MAX_HEADER];
	uint32_t len; /* bytes of it */
};

/*
 * Of datagrams between two addresses of one family, AF_INET or AF_INET6.
 * IPv4: identification 0, DF, no options.
 */
void srdma_icrc_init(struct srdma_icrc *c, const struct sockaddr *from,
		     const struct sockaddr *to);

/* The bytes behind a packet of len >= SRDMA_BTH_LEN, at most 65,000. */
void srdma_icrc_compute(const struct srdma_icrc *c, const uint8_t *packet,
			uint32_t len, uint8_t out[SRDMA_ICRC_LEN]);

#endif
