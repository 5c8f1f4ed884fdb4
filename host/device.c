#include "host/objects.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "host/access.h"
#include "host/error.h"
#include "port/port.h"
#include "wire/stats.h"

_Static_assert((int)SRDMA_TEXT_LEN == (int)SRDMA_NAME_LEN, "names");
_Static_assert((int)SRDMA_SUITES_LEN == (int)SRDMA_CTL_SUITES_LEN, "suites");
_Static_assert((int)SRDMA_GID_LEN == (int)SRDMA_CTL_GID_LEN, "GID");

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
	if (d->remote && d->hello.host_kind == SRDMA_PORT_SHM)
		return srdma_error_set(-ENOTSUP,
				       "the worker %s is on another computer, "
				       "and serves programs of its own only: "
				       "start it with --host-dev DEVICE",
				       d->hello.name);
	return srdma_device_check_leg(d);
}

static int say_hello(struct srdma_device *d)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_HELLO,
				   .version = SRDMA_CTL_VERSION };
	unsigned start = 0;
	int r = srdma_lasting_control_call(d->control, &m, NULL, NULL);

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

/* The user of the agent that $SRDMA_AGENT_USER names, by name or uid. */
static int set_agent_user(struct srdma_device *d)
{
	const char *name = getenv("SRDMA_AGENT_USER");
	struct passwd entry, *found = NULL;
	unsigned long uid;
	char room[4096], *end;

	if (!name || !*name)
		return 0;
	uid = strtoul(name, &end, 10);
	if (!*end && *name >= '0' && *name <= '9' && uid < UINT32_MAX) {
		d->agent.user = (uid_t)uid;
		return 0;
	}
	if (getpwnam_r(name, &entry, room, sizeof(room), &found) || !found)
		return srdma_error_set(-EINVAL,
				       "SRDMA_AGENT_USER: there is no user "
				       "%.100s",
				       name);
	d->agent.user = found->pw_uid;
	return 0;
}

static int set_agent(struct srdma_device *d, const char *agent)
{
	if (!agent)
		agent = getenv("SRDMA_AGENT");
	if (!agent)
		return 0;
	if (strlen(agent) >= sizeof(d->agent.path))
		return srdma_error_set(-ENAMETOOLONG,
				       "%.200s: the path of the agent's socket "
				       "has at most %zu bytes",
				       agent, sizeof(d->agent.path) - 1);
	strcpy(d->agent.path, agent);
	return set_agent_user(d);
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

static int connect_as(const struct srdma_device *d,
		      struct srdma_lasting_control **out, const char *path,
		      enum srdma_access_kind *kind)
{
	struct srdma_lasting_control_params p = { 0 };
	struct srdma_control *made;
	int r;

	*out = NULL;
	*kind = SRDMA_ACCESS_HERE;
	r = d->restricted ? srdma_access_connect(&made, &d->agent, path, kind)
			  : srdma_control_connect(&made, path,
						  SRDMA_CONTROL_TIMEOUT_MS);
	if (r)
		return r;
	if (*kind != SRDMA_ACCESS_HERE)
		p.agent = &d->agent;
	snprintf(p.path, sizeof(p.path), "%s", path);
	return srdma_lasting_control_create(out, made, &p);
}

int srdma_device_connect(const struct srdma_device *d,
			 struct srdma_lasting_control **out, const char *path)
{
	enum srdma_access_kind kind;

	return connect_as(d, out, path, &kind);
}

static int greet(struct srdma_device *d)
{
	enum srdma_access_kind kind;
	int r = connect_as(d, &d->control, d->path, &kind);

	if (r)
		return r;
	d->remote = kind == SRDMA_ACCESS_REMOTE;
	return say_hello(d);
}

/* A worker over RDMA that is not at its socket may be behind a proxy
 * (docs/control-link.md 7). Then the agent passes connections that may be made
 * again. */
static void prefer_lasting(struct srdma_device *d)
{
	const pid_t listener = srdma_lasting_control_pid(d->control);
	struct srdma_lasting_control *other;
	enum srdma_access_kind kind;

	if (d->restricted || !*d->agent.path ||
	    d->hello.host_kind == SRDMA_PORT_SHM ||
	    d->hello.pid == (uint32_t)listener)
		return;
	d->restricted = 1;
	if (!connect_as(d, &other, d->path, &kind) &&
	    kind == SRDMA_ACCESS_LASTING) {
		srdma_lasting_control_close(d->control);
		d->control = other;
		return;
	}
	srdma_lasting_control_close(other);
	d->restricted = 0;
}

/* 1 if the worker may refuse this user, or is outside of this container.
 * -ENOTCONN: a worker of root with --agent-uid closes the connections of other
 * users after connect(). */
static int may_be_of_others(int r)
{
	return r == -EACCES || r == -EPERM || r == -ENOENT || r == -ENOTCONN;
}

/* After the refusal of the worker: the agent passes the connections on. */
static int greet_by_agent(struct srdma_device *d, int refusal)
{
	char direct[200], text[200];
	int r;

	snprintf(direct, sizeof(direct), "%s", srdma_error_text());
	srdma_lasting_control_close(d->control);
	d->control = NULL;
	d->restricted = 1;
	r = greet(d);
	if (!r)
		return 0;
	snprintf(text, sizeof(text), "%s", srdma_error_text());
	if (refusal == -ENOENT)
		return srdma_error_set(refusal, "%s; and by the agent: %s",
				       direct, text);
	return srdma_error_set(r, "%s; connecting to the worker itself: %s",
			       text, direct);
}

static void release(struct srdma_device *d)
{
	srdma_lasting_control_close(d->control);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

int srdma_open_device(struct srdma_device **device, const char *worker,
		      const char *agent)
{
	struct srdma_device *d = calloc(1, sizeof(*d));
	int r;

	*device = NULL;
	if (!d)
		return srdma_error_set(-ENOMEM, "no memory");
	pthread_mutex_init(&d->lock, NULL);
	r = set_worker(d, worker);
	if (!r)
		r = set_agent(d, agent);
	if (!r)
		r = greet(d);
	if (may_be_of_others(r) && *d->agent.path)
		r = greet_by_agent(d, r);
	if (r) {
		release(d);
		return r;
	}
	prefer_lasting(d);
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
		release(d);
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
	memcpy(attr->gid, d->hello.gid, sizeof(attr->gid));
	attr->allow_unprotected = d->hello.flags & SRDMA_CTL_ALLOW_UNPROTECTED;
}

int srdma_query_counter(struct srdma_device *d, const char *name,
			uint64_t *value)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_STATS };
	int r;

	pthread_mutex_lock(&d->lock);
	r = srdma_lasting_control_call(d->control, &m, NULL, NULL);
	pthread_mutex_unlock(&d->lock);
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
