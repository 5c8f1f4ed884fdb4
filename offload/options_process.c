#include "options.h"

#include <stdio.h>
#include <string.h>

#include "base/addr.h"
#include "port/udp/port_udp.h"

enum { HIGHEST_PORT = 65535 };

/* Append ".i". Returns 0 if it does not fit. */
static int append_number(char *text, size_t size, unsigned i)
{
	size_t len = strlen(text);

	return (size_t)snprintf(text + len, size - len, ".%u", i) < size - len;
}

static enum options_result wrong(struct options *o, const char *option,
				 const char *text, const char *right)
{
	snprintf(o->error, sizeof(o->error), "%s %.64s with --workers %u: %s",
		 option, text, o->workers, right);
	return OPTIONS_WRONG;
}

/* An option with the address of a listener. */
struct listener {
	const char *option;
	const char **text; /* its value in struct options, or NULL */
	char *storage;	   /* SRDMA_NAME_LEN bytes for another value */
	int port;	   /* as in srdma_addr_parse() */
};

/*
 * Add i to the port, unless it is 0 (any). The port reports an invalid address.
 */
static enum options_result listen_behind(struct options *o,
					 const struct listener *l, unsigned i)
{
	struct sockaddr_storage at;
	unsigned port;

	if (!*l->text || srdma_addr_parse(&at, *l->text, l->port) < 0)
		return OPTIONS_RUN;
	port = srdma_addr_port((const struct sockaddr *)&at);
	if (port == 0)
		return OPTIONS_RUN;
	if (port + i > HIGHEST_PORT)
		return wrong(o, l->option, *l->text,
			     "worker process i uses port + i, at most 65535: "
			     "give a lower port");
	srdma_addr_set_port(&at, (uint16_t)(port + i));
	srdma_addr_format(l->storage, (const struct sockaddr *)&at);
	*l->text = l->storage;
	return OPTIONS_RUN;
}

static enum options_result listeners_behind(struct options *o, unsigned i)
{
	const int udp = strcmp(o->wire_dev, "udp") == 0;
	const struct listener wire = {
		.option = "--wire-listen",
		.text = &o->wire_listen,
		.storage = o->address,
		.port = udp ? SRDMA_UDP_PORT : SRDMA_ADDR_NO_PORT,
	};
	const struct listener host = {
		.option = "--host-listen",
		.text = &o->host_listen,
		.storage = o->host_address,
		.port = 0,
	};

	if (listen_behind(o, &wire, i) != OPTIONS_RUN)
		return OPTIONS_WRONG;
	return listen_behind(o, &host, i);
}

enum options_result options_of_process(struct options *out,
				       const struct options *o, unsigned i)
{
	*out = *o;
	if (i == 0)
		return OPTIONS_RUN;
	if (!append_number(out->name, sizeof(out->name), i))
		return wrong(out, "--name", o->name,
			     "NAME.i has at most 63 bytes: give a shorter one");
	if (!append_number(out->control, sizeof(out->control), i))
		return wrong(out, "--control", o->control,
			     "PATH.i has at most 107 bytes: give a shorter "
			     "one");
	return listeners_behind(out, i);
}
