/*
 * verbs_wire DEVICE COUNT [PEER]: one end of a wire. Listens, or connects to
 * PEER; sends COUNT datagrams of many sizes and checks those of the other end.
 * Prints "received COUNT", and "down STATUS" when the other end is gone.
 */
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "wire/wire.h"

struct end {
	struct srdma_port *port;
	struct srdma_conn *conn;
	uint32_t count, sent, received;
	int up;
};

static uint32_t length_of(uint32_t number)
{
	return 8 + number * 97 % (SRDMA_MAX_PACKET - 8);
}

static void fill(uint8_t *out, uint32_t number)
{
	memset(out, (int)(number % 251), length_of(number));
	memcpy(out, &number, sizeof(number));
}

static void send_some(struct end *end)
{
	uint8_t *out;

	while (end->sent < end->count &&
	       (out = end->port->ops->reserve(end->conn))) {
		fill(out, end->sent);
		if (end->port->ops->commit(end->conn, length_of(end->sent)))
			peer_die("commit %u", end->sent);
		++end->sent;
	}
	end->port->ops->flush(end->port);
}

static void check(struct end *end, const struct srdma_buf *buf)
{
	uint8_t wanted[SRDMA_MAX_PACKET];
	uint32_t number = end->received++;

	fill(wanted, number);
	if (buf->len != length_of(number) ||
	    memcmp(buf->data, wanted, buf->len))
		peer_die("datagram %u is wrong", number);
	if (end->received == end->count)
		peer_say("received %u", end->received);
}

/* Returns 0 when the wire is down. */
static int handle(struct end *end, const struct srdma_event *ev)
{
	switch (ev->kind) {
	case SRDMA_EV_UP:
	case SRDMA_EV_ACCEPT:
		end->conn = ev->conn;
		end->up = 1;
		return 1;
	case SRDMA_EV_RECV:
		if (!end->up)
			peer_die("data before the connection");
		check(end, ev->buf);
		end->port->ops->buf_put(ev->buf);
		return 1;
	case SRDMA_EV_DOWN:
		peer_say("down %d", -ev->status);
		end->port->ops->close(ev->conn);
		return 0;
	default:
		peer_die("event %d", ev->kind);
	}
}

int main(int argc, char **argv)
{
	struct srdma_event ev[PEER_BURST];
	struct end end = { 0 };
	int i, n, on = 1;

	if (argc < 3)
		return 2;
	end.port = peer_open(argv[1], SRDMA_PORT_VERBS_WIRE);
	end.count = (uint32_t)atoi(argv[2]);
	if (argc > 3 && end.port->ops->connect(end.port, argv[3], &end.conn))
		peer_die("%s", end.port->why);
	while (on) {
		n = end.port->ops->poll(end.port, ev, PEER_BURST);
		for (i = 0; i < n && on; ++i)
			on = handle(&end, &ev[i]);
		if (on && end.up)
			send_some(&end);
		if (!n)
			peer_sleep(end.port);
	}
	end.port->ops->destroy(end.port);
	return 0;
}
