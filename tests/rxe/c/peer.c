#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"

enum { BUFFERS = 64, PATIENCE_MS = 30000 };

_Noreturn void peer_die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void peer_say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

struct srdma_port *peer_open(const char *device,
			     enum srdma_port_verbs_kind kind)
{
	char why[SRDMA_PORT_VERBS_WHY_LEN] = "", name[SRDMA_NAME_LEN];
	struct srdma_port_verbs_params params = {
		.device = name, .kind = kind, .buffers = BUFFERS, .why = why
	};
	struct srdma_port *port;
	char *at;
	int err;

	snprintf(name, sizeof(name), "%s", device);
	at = strchr(name, '@');
	if (at) {
		*at = 0;
		params.listen = at + 1;
	}
	err = srdma_port_verbs_create(&port, &params);
	if (err)
		peer_die("%s: %s", why, strerror(-err));
	peer_say("address %s", port->address);
	return port;
}

/* Sends the heartbeats that are due. Returns ms until the next one; -1: none. */
static int beat(struct srdma_port *port)
{
	struct timespec t;
	uint64_t now, next;

	if (!port->ops->keepalive)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * SRDMA_SECOND + (uint64_t)t.tv_nsec;
	next = port->ops->keepalive(port, now);
	port->ops->flush(port);
	return next == SRDMA_NEVER ? -1 : (int)((next - now) / SRDMA_MS) + 1;
}

void peer_sleep(struct srdma_port *port)
{
	struct pollfd fd = { .fd = port->ops->fd(port), .events = POLLIN };
	int next = beat(port), armed = port->ops->arm(port);

	if (armed < 0)
		peer_die("arm: %s", strerror(-armed));
	if (armed)
		return;
	if (poll(&fd, 1, next < 0 ? PATIENCE_MS : next) != 1 && next < 0)
		peer_die("nothing happened for %d ms", PATIENCE_MS);
	port->ops->disarm(port);
}
