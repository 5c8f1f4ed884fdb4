/*
 * A third party on the UDP wire: a socket of its own that sends datagrams with a
 * valid ICRC to a worker.
 */
#ifndef SRDMA_TEST_STRANGER_H
#define SRDMA_TEST_STRANGER_H

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/addr.h"
#include "port/port.h"
#include "wire/icrc.h"
#include "wire/wire.h"

struct stranger {
	int sock;
	struct sockaddr_storage at, to;
	uint64_t sent, received; /* bytes of datagrams */
};

/* at: its IPv4 address; NULL: any. */
static inline struct stranger new_stranger_at(const struct srdma_port *to,
					      const char *at)
{
	struct stranger s = { 0 };
	socklen_t len = sizeof(s.at);

	srdma_addr_parse(&s.to, to->address, SRDMA_ADDR_NO_PORT);
	s.sock = socket(s.to.ss_family, SOCK_DGRAM, 0);
	if (at) {
		srdma_addr_parse(&s.at, at, 0);
		assert_int_equal(bind(s.sock, (struct sockaddr *)&s.at,
				      sizeof(struct sockaddr_in)),
				 0);
	}
	assert_int_equal(connect(s.sock, (struct sockaddr *)&s.to,
				 sizeof(struct sockaddr_in)),
			 0);
	assert_int_equal(getsockname(s.sock, (struct sockaddr *)&s.at, &len),
			 0);
	return s;
}

static inline struct stranger new_stranger(const struct srdma_port *to)
{
	return new_stranger_at(to, NULL);
}

/* Sends a packet from the third party's address with a valid ICRC, which takes
 * the 4 bytes behind the packet. */
static inline void say(struct stranger *s, uint8_t *packet, uint32_t len)
{
	struct srdma_icrc c;

	srdma_icrc_init(&c, (const struct sockaddr *)&s->at,
			(const struct sockaddr *)&s->to);
	srdma_icrc_compute(&c, packet, len, packet + len);
	assert_int_equal(send(s->sock, packet, len + SRDMA_ICRC_LEN, 0),
			 len + SRDMA_ICRC_LEN);
	s->sent += len + SRDMA_ICRC_LEN;
}

/* Takes a datagram that was sent to the third party. Returns the length of its
 * packet; 0: there is none. */
static inline uint32_t listen_at(struct stranger *s, uint8_t *packet,
				 size_t room)
{
	ssize_t n = recv(s->sock, packet, room, MSG_DONTWAIT);

	if (n <= 0)
		return 0;
	s->received += (uint64_t)n;
	return (uint32_t)n - SRDMA_ICRC_LEN;
}

#endif
