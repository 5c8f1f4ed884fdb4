/*
 * wire_flood DEVICE COUNT PEER PACKET: connects to a worker's wire as a worker
 * does, and sends COUNT forged packets: PACKET (in hex) with other packet
 * numbers and tags. Prints "sent N" when they have left, or when the worker has
 * closed the connection.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "peer.h"
#include "wire/wire.h"

enum { PSN_AT = 9, TAG = 16 }; /* offset in the BTH; bytes at the end */

struct flood {
	struct srdma_port *port;
	struct srdma_conn *conn;
	uint8_t packet[SRDMA_MAX_PACKET];
	uint32_t len, count, sent;
	int up;
};

static void read_packet(struct flood *f, const char *hex)
{
	unsigned byte;

	for (f->len = 0; sscanf(hex, "%2x", &byte) == 1; hex += 2) {
		if (f->len == sizeof(f->packet))
			peer_die("the packet is too long");
		f->packet[f->len++] = (uint8_t)byte;
	}
	if (f->len < SRDMA_BTH_LEN + TAG)
		peer_die("give a packet of at least %d bytes",
			 SRDMA_BTH_LEN + TAG);
}

static void send_some(struct flood *f)
{
	uint8_t *out;

	while (f->sent < f->count && (out = f->port->ops->reserve(f->conn))) {
		memcpy(out, f->packet, f->len);
		out[PSN_AT] ^= (uint8_t)(f->sent >> 16);
		out[PSN_AT + 1] ^= (uint8_t)(f->sent >> 8);
		out[PSN_AT + 2] ^= (uint8_t)f->sent;
		memcpy(out + f->len - TAG, &f->sent, sizeof(f->sent));
		if (f->port->ops->commit(f->conn, f->len))
			peer_die("commit %u", f->sent);
		f->sent++;
	}
	f->port->ops->flush(f->port);
}

/* Returns 0 when the worker has closed the connection. */
static int handle(struct flood *f, const struct srdma_event *ev)
{
	switch (ev->kind) {
	case SRDMA_EV_UP:
		f->up = 1;
		return 1;
	case SRDMA_EV_RECV:
		f->port->ops->buf_put(ev->buf);
		return 1;
	case SRDMA_EV_DOWN:
		f->port->ops->close(ev->conn);
		return 0;
	default:
		peer_die("event %d", ev->kind);
	}
}

int main(int argc, char **argv)
{
	static struct flood f;
	struct srdma_event ev[PEER_BURST];
	int on = 1;

	if (argc != 5)
		return 2;
	read_packet(&f, argv[4]);
	f.port = peer_open(argv[1], SRDMA_PORT_VERBS_WIRE);
	f.count = (uint32_t)atoi(argv[2]);
	if (f.port->ops->connect(f.port, argv[3], &f.conn))
		peer_die("%s", f.port->why);
	while (on && f.sent < f.count) {
		int n = f.port->ops->poll(f.port, ev, PEER_BURST);

		for (int i = 0; i < n && on; i++)
			on = handle(&f, &ev[i]);
		if (on && f.up)
			send_some(&f);
		if (!n)
			peer_sleep(f.port);
	}
	peer_say("sent %u", f.sent);
	f.port->ops->destroy(f.port);
	return 0;
}
