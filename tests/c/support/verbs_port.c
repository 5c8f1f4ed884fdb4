#include "support/verbs_port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"

static const uint8_t TOKEN[SRDMA_TOKEN_LEN] = { 1, 2, 3 };

static int create(struct srdma_port **port, enum srdma_port_verbs_kind kind,
		  const char *listen, char *why)
{
	const struct srdma_port_verbs_params params = {
		.device = "fake0",
		.listen = listen,
		.kind = kind,
		.buffers = VERBS_PORT_BUFFERS,
		.receives = VERBS_PORT_SENDS,
		.sends = VERBS_PORT_SENDS,
		.why = why,
	};

	return srdma_port_verbs_create(port, &params);
}

int verbs_port_refused(enum srdma_port_verbs_kind kind, const char *listen,
		       char why[SRDMA_PORT_VERBS_WHY_LEN])
{
	struct srdma_port *port;
	int err = create(&port, kind, listen, why);

	assert_int_not_equal(err, 0);
	return err;
}

struct srdma_port *verbs_port_open(enum srdma_port_verbs_kind kind,
				   const char *listen)
{
	struct srdma_port *port;

	assert_int_equal(create(&port, kind, listen, NULL), 0);
	return port;
}

struct srdma_conn *verbs_port_leg(struct srdma_port *port)
{
	struct srdma_leg_params params = { .ring = VERBS_PORT_RING,
					   .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;

	memcpy(params.token, TOKEN, sizeof(TOKEN));
	assert_int_equal(port->ops->leg_open(port, &params, &leg, &answer), 0);
	assert_string_equal(answer.address, port->address);
	return leg;
}

struct fake_verbs_request verbs_port_request(enum srdma_port_verbs_kind kind)
{
	struct fake_verbs_request r = {
		.address = "10.0.0.1:7",
		.hello = { 's', 'r', 'd', 'm', 'a', 1, (uint8_t)kind },
		.hello_len = FAKE_VERBS_HELLO,
		.reads = 16,
	};

	if (kind == SRDMA_PORT_VERBS_WIRE)
		return r;
	memcpy(r.hello + 8, TOKEN, sizeof(TOKEN));
	srdma_store64(r.hello + 24, VERBS_PORT_RING_ADDR);
	srdma_store32(r.hello + 32, VERBS_PORT_RKEY);
	srdma_store32(r.hello + 36, VERBS_PORT_RING);
	return r;
}

struct srdma_event verbs_port_next(struct srdma_port *port)
{
	struct srdma_event ev = { .status = 0 };

	port->ops->disarm(port);
	if (port->ops->poll(port, &ev, 1) == 0)
		return (struct srdma_event){ .status = 0 };
	return ev;
}
