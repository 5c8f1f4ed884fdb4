#include "options_impl.h"

#include <string.h>

/* Returns the text after kind if device is "kind" or "kind:...", else NULL. */
static const char *of_kind(const char *device, const char *kind)
{
	size_t len = strlen(kind);

	if (strncmp(device, kind, len) != 0 ||
	    (device[len] != ':' && device[len] != '\0'))
		return NULL;
	return device + len;
}

static enum options_result check_shm(struct options *o, const char *rest)
{
	if (rest[0] == '\0' || rest[1] == '\0')
		return options_wrong(
			o,
			"--wire-dev %s: name the folder where workers "
			"meet, shm:DIR",
			o->wire_dev);
	if (o->wire_listen)
		return options_wrong(
			o, "--wire-listen goes with udp or an RDMA "
			   "device, not with --wire-dev shm:DIR: leave it "
			   "out");
	return OPTIONS_RUN;
}

static enum options_result check_udp(struct options *o, const char *rest)
{
	if (*rest != '\0' || !o->wire_listen)
		return options_wrong(
			o,
			"--wire-dev %.64s: give --wire-dev udp, and the "
			"worker's address by --wire-listen IP:PORT",
			o->wire_dev);
	return OPTIONS_RUN;
}

static enum options_result check_wire(struct options *o)
{
	const char *udp = of_kind(o->wire_dev, "udp");
	const char *shm = of_kind(o->wire_dev, "shm");

	if (o->wire_trains && !udp)
		return options_wrong(
			o,
			"--wire-trains goes with --wire-dev udp, not "
			"with --wire-dev %.64s: leave it out",
			o->wire_dev);
	if (shm)
		return check_shm(o, shm);
	return udp ? check_udp(o, udp) : OPTIONS_RUN;
}

enum options_result options_devices_check(struct options *o)
{
	if (strncmp(o->host_dev, "shm:", 4) == 0 || *o->host_dev == '\0' ||
	    *o->wire_dev == '\0')
		return options_wrong(
			o, "--host-dev takes shm or an RDMA device, "
			   "--wire-dev shm:DIR, udp or an RDMA device");
	if (check_wire(o) != OPTIONS_RUN)
		return OPTIONS_WRONG;
	if (o->host_listen && of_kind(o->host_dev, "shm"))
		return options_wrong(
			o, "--host-listen goes with an RDMA device, not "
			   "with --host-dev shm: leave it out");
	if (strlen(o->host_dev) >= SRDMA_NAME_LEN)
		return options_wrong(o,
				     "--host-dev: a name of at most %d bytes",
				     SRDMA_NAME_LEN - 1);
	return OPTIONS_RUN;
}
