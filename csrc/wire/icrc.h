/*
 * Invariant CRC at the end of a RoCEv2 datagram (docs/protocol.md 11a, IBTA
 * A17): CRC-32 over the IP and UDP headers and the packet, with all fields that
 * routers may change replaced by ones. It detects transmission errors and gives
 * no protection against forgery.
 */
#ifndef SRDMA_ICRC_H
#define SRDMA_ICRC_H

#include <stdint.h>
#include <sys/socket.h>

enum {
	SRDMA_ICRC_LEN = 4,
	SRDMA_ICRC_LRH = 8, /* bytes of ones in place of an LRH */
	SRDMA_ICRC_MAX_HEADER = SRDMA_ICRC_LRH + 40 + 8,
};

/* The headers before a packet as CRC input; lengths are set per packet. */
struct srdma_icrc {
	uint8_t header[SRDMA_ICRC_MAX_HEADER];
	uint32_t len;	 /* bytes used */
	uint32_t packet; /* bytes of the packet before; 0: there was none */
	uint32_t front;	 /* CRC of the headers of that packet */
};

/*
 * Makes libdeflate choose its code for this CPU. On ARM it reads
 * /proc/self/auxv, which a process without PR_SET_DUMPABLE cannot open unless
 * it is root's: a process that gives up PR_SET_DUMPABLE calls this before.
 * Without this call the first ICRC makes the choice.
 */
void srdma_icrc_choose(void);

/*
 * Prepares the headers of datagrams from `from` to `to`, both AF_INET or both
 * AF_INET6. IPv4 headers have identification 0, DF set and no options; another
 * identification can be stored in the header before the first packet.
 */
void srdma_icrc_init(struct srdma_icrc *c, const struct sockaddr *from,
		     const struct sockaddr *to);

/*
 * Computes the ICRC of a packet of len bytes, SRDMA_BTH_LEN <= len <= 65000. A
 * packet as long as the one before takes less time. The packet has another byte
 * during the call, and its own bytes afterwards: it MUST be in writable memory
 * that no other thread, process or device reads or writes during the call. out:
 * the 4 bytes that follow the packet.
 */
void srdma_icrc_compute(struct srdma_icrc *c, uint8_t *packet, uint32_t len,
			uint8_t out[SRDMA_ICRC_LEN]);

#endif
