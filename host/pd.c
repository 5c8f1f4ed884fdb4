#include "host/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "host/error.h"
#include "port/shm/leg_layout.h"
#include "wire/reason.h"

enum { DEFAULT_RING = 4096 };

static int check(const struct srdma_pd_attr *a, uint32_t ring,
		 uint32_t processes)
{
	if (ring < SRDMA_LEG_SHM_MIN_RING || ring > SRDMA_LEG_SHM_MAX_RING ||
	    (ring & (ring - 1)))
		return srdma_error_set(-EINVAL,
				       "ring %u: it must be a power of two "
				       "from %d to %d",
				       ring, SRDMA_LEG_SHM_MIN_RING,
				       SRDMA_LEG_SHM_MAX_RING);
	if (a->process > processes)
		return srdma_error_set(-EINVAL,
				       "process %u: the worker has %u "
				       "processes",
				       a->process, processes);
	if (a->group && (strlen(a->group) > SRDMA_GROUP_MAX ||
			 !srdma_utf8_check(a->group, strlen(a->group))))
		return srdma_error_set(-EINVAL,
				       "group: it must be at most %d bytes of "
				       "UTF-8",
				       SRDMA_GROUP_MAX);
	return 0;
}

/* Number of the worker process that serves the PD. */
static uint32_t choose(struct srdma_device *d, uint32_t wanted)
{
	return wanted ? wanted - 1
		      : atomic_fetch_add(&d->next, 1) % d->hello.threads;
}

static int watch(struct srdma_pd *pd)
{
	const int fds[] = { pd->leg->ops->fd(pd->leg),
			    srdma_lasting_control_fd(pd->control) };

	pd->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (unsigned i = 0; i < 2 && pd->epoll >= 0; i++) {
		struct epoll_event e = { .events = EPOLLIN };

		if (epoll_ctl(pd->epoll, EPOLL_CTL_ADD, fds[i], &e))
			return srdma_error_set(-errno, "epoll: %s",
					       strerror(errno));
	}
	return pd->epoll < 0
		       ? srdma_error_set(-errno, "epoll: %s", strerror(errno))
		       : 0;
}

static void release(struct srdma_pd *pd)
{
	if (pd->epoll >= 0)
		close(pd->epoll);
	srdma_host_destroy(pd->host);
	srdma_lasting_control_close(pd->control);
	if (pd->leg)
		pd->leg->ops->destroy(pd->leg);
	srdma_wipe(pd, sizeof(*pd));
	free(pd);
}

static int start(struct srdma_pd *pd, const struct srdma_pd_attr *a,
		 uint32_t ring)
{
	int r = srdma_control_path(pd->path, pd->device->path,
				   choose(pd->device, a->process));

	if (r)
		return r;
	r = srdma_device_connect(pd->device, &pd->control, pd->path);
	if (!r)
		r = srdma_pd_open_leg(pd, ring);
	if (r)
		return r;
	r = srdma_host_create(&pd->host, pd->leg->ops->ring(pd->leg), ring);
	return r ? srdma_error_set(r, "%s", strerror(-r)) : watch(pd);
}

int srdma_alloc_pd(struct srdma_pd **pd, struct srdma_device *device,
		   const struct srdma_pd_attr *attr)
{
	const struct srdma_pd_attr defaults = { 0 };
	const struct srdma_pd_attr *a = attr ? attr : &defaults;
	const uint32_t ring = a->ring ? a->ring : DEFAULT_RING;
	struct srdma_pd *made;
	int r = check(a, ring, device->hello.threads);

	*pd = NULL;
	if (r)
		return r;
	made = calloc(1, sizeof(*made));
	if (!made)
		return srdma_error_set(-ENOMEM, "no memory");
	made->device = device;
	made->epoll = -1;
	if (a->group)
		strcpy(made->group, a->group);
	/* Before the I/O: srdma_close_device() of another thread must fail. */
	atomic_fetch_add(&device->users, 1);
	r = start(made, a, ring);
	if (r) {
		atomic_fetch_sub(&device->users, 1);
		release(made);
		return r;
	}
	*pd = made;
	return 0;
}

int srdma_dealloc_pd(struct srdma_pd *pd)
{
	if (!pd)
		return 0;
	if (pd->users)
		return srdma_error_set(-EBUSY,
				       "the PD has %u QPs, regions and "
				       "connections: close them first",
				       pd->users);
	atomic_fetch_sub(&pd->device->users, 1);
	release(pd);
	return 0;
}

/* --- end of the leg ------------------------------------------------------ */

static void fail(struct srdma_pd *pd)
{
	pd->gone = 1;
	pd->leg->ops->stop(pd->leg);
	srdma_host_fail(pd->host, SRDMA_REASON_WORKER_GONE);
}

int srdma_pd_gone(struct srdma_pd *pd)
{
	if (!pd->gone && (pd->leg->ops->ended(pd->leg) ||
			  !srdma_lasting_control_alive(pd->control)))
		fail(pd);
	return pd->gone;
}

static int leg_ended(const struct srdma_pd *pd)
{
	const char *why = srdma_lasting_control_over(pd->control);

	if (!why)
		why = pd->leg->ops->ended(pd->leg);
	return srdma_error_set(
		-ENOTCONN,
		"the leg at the worker %s has ended%s%s: close "
		"all objects of the PD, open a PD, connect again",
		pd->path, why ? ": " : "", why ? why : "");
}

/* ATTACH with the token of the leg, which changes nothing here. It is refused
 * with -EPERM after the leg's end. */
static int attach(struct srdma_pd *pd, int64_t deadline)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_ATTACH };
	int r;

	memcpy(m.token, pd->token, sizeof(m.token));
	r = srdma_lasting_control_call_until(pd->control, &m, NULL, NULL,
					     deadline);
	srdma_wipe(&m, sizeof(m));
	return r;
}

/* -EPERM and -ENOENT of a request have several causes. */
static int refused(struct srdma_pd *pd, int refusal)
{
	int r = attach(pd, srdma_socket_deadline(SRDMA_CONTROL_TIMEOUT_MS));

	if (!r)
		return refusal;
	return r == -EPERM ? leg_ended(pd) : r;
}

void srdma_pd_check_leg(struct srdma_pd *pd, int64_t deadline)
{
	int r = pd->gone ? 0 : attach(pd, deadline);

	if (r == -EPERM || r == -ECONNRESET || r == -ENOTCONN)
		fail(pd);
}

static int makes_object(uint16_t kind)
{
	return kind == SRDMA_CTL_REG_MR || kind == SRDMA_CTL_INIT ||
	       kind == SRDMA_CTL_INSTALL;
}

int srdma_pd_call(struct srdma_pd *pd, struct srdma_ctl_msg *m,
		  const struct srdma_socket_fds *out)
{
	const uint16_t kind = m->kind;
	int r;

	/* With a leg that ended, no other connection can be made. */
	if (!pd->gone && pd->leg->ops->ended(pd->leg))
		fail(pd);
	if (pd->gone)
		return leg_ended(pd);
	r = srdma_lasting_control_call(pd->control, m, out, NULL);
	if (r == -EPERM || r == -ENOENT)
		r = refused(pd, r);
	else if (r == -ECONNRESET)
		r = leg_ended(pd);
	if (r == -ENOTCONN)
		fail(pd);
	if (r == -ETIMEDOUT && makes_object(kind))
		srdma_lasting_control_end(pd->control);
	return r;
}
