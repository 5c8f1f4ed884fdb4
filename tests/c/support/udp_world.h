/*
 * Two UDP ports on the loopback interface, and a third party that sends
 * datagrams to one of them.
 */
#ifndef SRDMA_TEST_UDP_WORLD_H
#define SRDMA_TEST_UDP_WORLD_H

#include <stdint.h>
#include <sys/socket.h>

#include "port/udp/port_udp_impl.h"

enum { WORLD_EVENTS = 64, WORLD_LEN = 100 /* bytes of a packet */ };

struct udp_world {
	const char *host; /* "127.0.0.1" or "[::1]" */
	struct srdma_port *a, *b;
	struct srdma_conn *conn; /* from a to b */
	int stranger;		 /* socket of a third party, connected to b */
	struct sockaddr_storage stranger_at;
	struct srdma_event ev[WORLD_EVENTS];
};

/* cmocka fixture: *state is the world, whose port a is connected to b. */
int world_setup(void **state, const char *host);
int world_teardown(void **state);
/* A program's setup(state, host) as a fixture of each family, and their tests. */
#define WORLD_FIXTURES                                                         \
	static int setup4(void **state)                                        \
	{                                                                      \
		return setup(state, "127.0.0.1");                              \
	}                                                                      \
	static int setup6(void **state)                                        \
	{                                                                      \
		return setup(state, "[::1]");                                  \
	}
#define OVER_IPV4(name)                                                        \
	cmocka_unit_test_setup_teardown(name, setup4, world_teardown)
#define OVER_IPV6(name)                                                        \
	cmocka_unit_test_setup_teardown(name, setup6, world_teardown)

/* 1 if this machine has ::1; 0 with a message: tests over IPv6 are skipped. */
int world_has_ipv6(void);
/* A port on host with any number; NULL and a message: it cannot be created. */
struct srdma_port *world_port(const char *host);
/* Another third party, connected to b. Returns its socket and address. */
int world_stranger(struct udp_world *w, struct sockaddr_storage *at);

/* Takes up to WORLD_EVENTS events of a port into w->ev. Returns their number. */
int world_poll(struct udp_world *w, struct srdma_port *port);
/*
 * Receives all pending datagrams and gives their buffers back to the port.
 * Returns the number of datagrams.
 */
int world_drain(struct udp_world *w, struct srdma_port *port);

/* Makes the packet of this number. */
void world_fill(uint8_t *packet, uint32_t len, uint32_t number);
/* Commits it. */
void world_send(struct srdma_conn *conn, uint32_t number, uint32_t len);
void world_expect(const struct srdma_event *ev, uint32_t number, uint32_t len);
/* Makes the datagram of a third party to b, len + SRDMA_ICRC_LEN bytes. */
void world_datagram(struct udp_world *w, const struct sockaddr_storage *at,
		    uint8_t *out, uint32_t number, uint32_t len);

#endif
