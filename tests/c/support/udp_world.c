#include "support/udp_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/addr.h"

struct srdma_port *world_port(const char *host)
{
	char why[SRDMA_PORT_UDP_WHY_LEN], text[SRDMA_NAME_LEN];
	struct srdma_port *port;

	snprintf(text, sizeof(text), "%s:0", host);
	if (srdma_port_udp_create(&port, text, why)) {
		print_message("%s\n", why);
		return NULL;
	}
	return port;
}

int world_has_ipv6(void)
{
	struct srdma_port *port = world_port("[::1]");

	if (!port) {
		print_message("IPv6 skipped: this machine has no ::1\n");
		return 0;
	}
	port->ops->destroy(port);
	return 1;
}

int world_stranger(struct udp_world *w, struct sockaddr_storage *at)
{
	struct sockaddr_storage b;
	socklen_t len = sizeof(*at);
	int sock;

	assert_int_equal(
		srdma_addr_parse(&b, w->b->address, SRDMA_ADDR_NO_PORT), 0);
	sock = socket(b.ss_family, SOCK_DGRAM, 0);
	assert_true(sock >= 0);
	assert_int_equal(connect(sock, (struct sockaddr *)&b, sizeof(b)), 0);
	assert_int_equal(getsockname(sock, (struct sockaddr *)at, &len), 0);
	return sock;
}

int world_poll(struct udp_world *w, struct srdma_port *port)
{
	return port->ops->poll(port, w->ev, WORLD_EVENTS);
}

int world_setup(void **state, const char *host)
{
	static struct udp_world w;

	memset(&w, 0, sizeof(w));
	w.host = host;
	w.a = world_port(host);
	w.b = world_port(host);
	assert_true(w.a && w.b);
	assert_int_equal(w.a->ops->connect(w.a, w.b->address, &w.conn), 0);
	assert_int_equal(w.a->ops->arm(w.a), 1);
	assert_int_equal(world_poll(&w, w.a), 1);
	assert_int_equal(w.ev[0].kind, SRDMA_EV_UP);
	assert_ptr_equal(w.ev[0].conn, w.conn);
	w.stranger = world_stranger(&w, &w.stranger_at);
	*state = &w;
	return 0;
}

int world_teardown(void **state)
{
	struct udp_world *w = *state;

	close(w->stranger);
	w->a->ops->destroy(w->a);
	w->b->ops->destroy(w->b);
	return 0;
}

void world_fill(uint8_t *packet, uint32_t len, uint32_t number)
{
	for (uint32_t i = 0; i < len; i++)
		packet[i] = (uint8_t)(number >> i % 4 * 8 ^ i / 4);
}

void world_send(struct srdma_conn *conn, uint32_t number, uint32_t len)
{
	uint8_t *out = conn->port->ops->reserve(conn);

	assert_non_null(out);
	world_fill(out, len, number);
	assert_int_equal(conn->port->ops->commit(conn, len), 0);
}

void world_expect(const struct srdma_event *ev, uint32_t number, uint32_t len)
{
	uint8_t wanted[SRDMA_MAX_PACKET];

	world_fill(wanted, len, number);
	assert_int_equal(ev->kind, SRDMA_EV_RECV);
	assert_int_equal(ev->buf->len, len);
	assert_memory_equal(ev->buf->data, wanted, len);
}

int world_drain(struct udp_world *w, struct srdma_port *port)
{
	int n, all = 0;

	while ((n = world_poll(w, port)) > 0) {
		for (int i = 0; i < n; i++)
			port->ops->buf_put(w->ev[i].buf);
		all += n;
	}
	return all;
}

void world_datagram(struct udp_world *w, const struct sockaddr_storage *at,
		    uint8_t *out, uint32_t number, uint32_t len)
{
	struct sockaddr_storage b;
	struct srdma_icrc icrc;

	srdma_addr_parse(&b, w->b->address, SRDMA_ADDR_NO_PORT);
	srdma_icrc_init(&icrc, (const struct sockaddr *)at,
			(const struct sockaddr *)&b);
	world_fill(out, len, number);
	srdma_icrc_compute(&icrc, out, len, out + len);
}
