#include "ports.h"

#include <errno.h>
#include <string.h>

#include "closer.h"
#include "log.h"
#include "port/shm/port_shm.h"
#include "port/udp/port_udp.h"
#include "thread.h"

enum { VERBS_BUFFERS = 1024, LEAST_RECEIVE_BUFFER = 4 << 20 };

static int shm_host(struct srdma_port **out, const struct options *o)
{
	int rc = srdma_port_shm_create_host(out, o->memfd_only ? NULL
							       : thread_start);

	if (rc < 0)
		log_error("--host-dev %s: %s", o->host_dev, strerror(-rc));
	return rc;
}

static void close_file(int fd)
{
	closer_close("", fd);
}

static int shm_wire(struct srdma_port **out, const struct options *o)
{
	const char *dir = o->wire_dev + strlen("shm:");
	int rc = srdma_port_shm_create_wire(out, dir, o->name, 0, close_file);

	if (rc < 0)
		log_error("--wire-dev %s, %s.sock: %s", o->wire_dev, o->name,
			  srdma_port_shm_why(rc));
	return rc;
}

static int udp_host(struct srdma_port **out, const struct options *o)
{
	(void)out;
	log_error("--host-dev %s: udp is for the wire only: give shm or "
		  "an RDMA device",
		  o->host_dev);
	return -EINVAL;
}

/* Without CAP_NET_ADMIN the kernel limits the buffer to net.core.rmem_max. */
static void check_buffer(const struct srdma_port *port)
{
	uint32_t have = srdma_port_udp_stats(port)->receive_buffer;

	if (have < LEAST_RECEIVE_BUFFER)
		log_info(
			"UDP receive buffer of %u bytes: bursts may be lost; set "
			"sysctl net.core.rmem_max=%d",
			have, LEAST_RECEIVE_BUFFER / 2);
}

static int udp_wire(struct srdma_port **out, const struct options *o)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	int rc = srdma_port_udp_create(out, o->wire_listen, why);

	if (rc < 0)
		log_error("--wire-listen: %s", why);
	else
		check_buffer(*out);
	if (!rc && o->wire_trains)
		srdma_port_udp_take_bare(*out);
	return rc;
}

#ifdef SRDMA_HAVE_VERBS

#include "port/verbs/port_verbs.h"

static int verbs_open(struct srdma_port **out,
		      const struct srdma_port_verbs_params *params)
{
	char why[SRDMA_PORT_VERBS_WHY_LEN] = "";
	struct srdma_port_verbs_params p = *params;
	int rc;

	p.buffers = VERBS_BUFFERS;
	p.why = why;
	rc = srdma_port_verbs_create(out, &p);
	if (rc < 0)
		log_error("RDMA device %s: %s", p.device,
			  *why ? why : strerror(-rc));
	return rc;
}

static int verbs_host(struct srdma_port **out, const struct options *o)
{
	const struct srdma_port_verbs_params p = {
		.device = o->host_dev,
		.listen = o->host_listen,
		.kind = SRDMA_PORT_VERBS_HOST,
	};

	return verbs_open(out, &p);
}

static int verbs_wire(struct srdma_port **out, const struct options *o)
{
	const struct srdma_port_verbs_params p = {
		.device = o->wire_dev,
		.listen = o->wire_listen,
		.kind = SRDMA_PORT_VERBS_WIRE,
	};

	return verbs_open(out, &p);
}

#else

static int without_verbs(const char *device)
{
	log_error("%s: this srdma-offload was built without libibverbs and "
		  "knows no RDMA devices: build it where their headers are, or "
		  "use shm",
		  device);
	return -ENODEV;
}

static int verbs_host(struct srdma_port **out, const struct options *o)
{
	(void)out;
	return without_verbs(o->host_dev);
}

static int verbs_wire(struct srdma_port **out, const struct options *o)
{
	(void)out;
	return without_verbs(o->wire_dev);
}

#endif

/* Selected by the name before a colon; the last row matches all other names. */
static const struct device {
	const char *name;
	int (*host)(struct srdma_port **out, const struct options *o);
	int (*wire)(struct srdma_port **out, const struct options *o);
} devices[] = {
	{ "shm", shm_host, shm_wire },
	{ "udp", udp_host, udp_wire },
	{ NULL, verbs_host, verbs_wire },
};

static const struct device *device_of(const char *name)
{
	size_t len = strcspn(name, ":");
	const struct device *d = devices;

	while (d->name &&
	       (strlen(d->name) != len || strncmp(d->name, name, len) != 0))
		d++;
	return d;
}

int ports_open_host(struct srdma_port **out, const struct options *o)
{
	return device_of(o->host_dev)->host(out, o);
}

int ports_open_wire(struct srdma_port **out, const struct options *o)
{
	return device_of(o->wire_dev)->wire(out, o);
}
