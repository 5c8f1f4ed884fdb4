#include "host/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "host/error.h"
#include "port/port.h"
#include "wire/stats.h"

_Static_assert((int)SRDMA_TEXT_LEN == (int)SRDMA_NAME_LEN, "names");
_Static_assert((int)SRDMA_SUITES_LEN == (int)SRDMA_CTL_SUITES_LEN, "suites");

static int check_hello(const struct srdma_device *d)
{
	if (d->hello.version != SRDMA_CTL_VERSION)
		return srdma_error_set(-EPROTONOSUPPORT,
				       "the worker at %s has control version "
				       "%u, this library has %d: use a worker "
				       "and a library of the same release",
				       d->path, d->hello.version,
				       SRDMA_CTL_VERSION);
	if (!d->hello.threads)
		return srdma_error_set(-EPROTO,
				       "the worker at %s has no worker process",
				       d->path);
	if (d->hello.thread)
		return srdma_error_set(-EINVAL,
				       "%s is the control socket of worker "
				       "process %u: give that of process 0, "
				       "and choose the process by the PD",
				       d->path, d->hello.thread);
	if (d->hello.host_kind != SRDMA_PORT_SHM)
		return srdma_error_set(-ENOTSUP,
				       "the hosts of the worker at %s use an "
				       "RDMA device: this library needs a "
				       "worker with --host-dev shm",
				       d->path);
	return 0;
}

static int say_hello(struct srdma_device *d)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_HELLO,
				   .version = SRDMA_CTL_VERSION };
	unsigned start = 0;
	int r = srdma_control_call(d->control, &m, NULL, NULL);

	if (r)
		return r;
	d->hello = m.hello;
	r = check_hello(d);
	/* A random first process: most programs have one PD, which must not all
	 * be on process 0. Without randomness it is process 0. */
	if (!r && getrandom(&start, sizeof(start), 0) == sizeof(start))
		atomic_store(&d->next, start);
	return r;
}

static int set_agent(struct srdma_device *d, const char *agent)
{
	if (!agent)
		agent = getenv("SRDMA_AGENT");
	if (!agent)
		return 0;
	if (strlen(agent) >= sizeof(d->agent))
		return srdma_error_set(-ENAMETOOLONG,
				       "%.200s: the path of the agent's socket "
				       "has at most %zu bytes",
				       agent, sizeof(d->agent) - 1);
	strcpy(d->agent, agent);
	return 0;
}

/* Sets the path of the worker, absolute, because the program may change its
 * folder later. A path that does not exist, or whose absolute form is too long
 * for the address of a socket, stays as it is. */
static int set_worker(struct srdma_device *d, const char *worker)
{
	int r = srdma_control_path(d->path, worker, 0);
	char *found = r ? NULL : realpath(d->path, NULL);

	if (found && strlen(found) < sizeof(d->path))
		strcpy(d->path, found);
	free(found);
	return r;
}

int srdma_open_device(struct srdma_device **device, const char *worker,
		      const char *agent)
{
	struct srdma_device *d = calloc(1, sizeof(*d));
	int r;

	*device = NULL;
	if (!d)
		return srdma_error_set(-ENOMEM, "no memory");
	r = set_worker(d, worker);
	if (!r)
		r = set_agent(d, agent);
	if (!r)
		r = srdma_control_connect(&d->control, d->path,
					  SRDMA_CONTROL_TIMEOUT_MS);
	if (!r)
		r = say_hello(d);
	if (r) {
		srdma_control_close(d->control);
		free(d);
		return r;
	}
	*device = d;
	return 0;
}

int srdma_close_device(struct srdma_device *d)
{
	unsigned users = d ? atomic_load(&d->users) : 0;

	if (users)
		return srdma_error_set(-EBUSY,
				       "the device has %u PDs and "
				       "listeners: close them first",
				       users);
	if (d)
		srdma_control_close(d->control);
	free(d);
	return 0;
}

void srdma_query_device(const struct srdma_device *d,
			struct srdma_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	memcpy(attr->name, d->hello.name, sizeof(attr->name));
	memcpy(attr->wire, d->hello.wire, sizeof(attr->wire));
	memcpy(attr->suites, d->hello.suites, sizeof(attr->suites));
	attr->processes = d->hello.threads;
	attr->allow_unprotected = d->hello.flags & SRDMA_CTL_ALLOW_UNPROTECTED;
}

int srdma_query_counter(struct srdma_device *d, const char *name,
			uint64_t *value)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_STATS };
	int r = srdma_control_call(d->control, &m, NULL, NULL);

	if (r)
		return r;
	for (unsigned i = 0; i < m.stats.count; i++) {
		const char *found = srdma_stats_name(i);

		if (found && *found && !strcmp(found, name)) {
			*value = m.stats.counter[i];
			return 0;
		}
	}
	return srdma_error_set(-ENOENT, "%.100s: no such counter", name);
}
