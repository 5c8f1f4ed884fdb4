/*
 * The end of the worker. It closes its control connections then, which a program may
 * wait for without a call of the library: descriptors that programs wait on watch
 * `ends_fd`, an epoll of these connections.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/objects.h"

enum { END_MS = 1000 }; /* in which a worker that ends closes all connections */

int verbs_worker_open(struct verbs_root *root)
{
	struct epoll_event e = { .events = EPOLLIN };

	root->ends_fd = epoll_create1(EPOLL_CLOEXEC);
	root->gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (root->ends_fd < 0 || root->gone_fd < 0 ||
	    epoll_ctl(root->ends_fd, EPOLL_CTL_ADD, root->gone_fd, &e))
		return errno;
	return verbs_worker_watch(root, root->device->control);
}

void verbs_worker_close(struct verbs_root *root)
{
	if (root->ends_fd >= 0)
		close(root->ends_fd);
	if (root->gone_fd >= 0)
		close(root->gone_fd);
}

/* A connection that is made again has a descriptor that is also readable when nothing
 * has ended: a program that is woken by it would wait in the library. */
int verbs_worker_watch(const struct verbs_root *root,
		       const struct srdma_lasting_control *c)
{
	struct epoll_event e = { .events = EPOLLRDHUP };

	if (srdma_lasting_control_lasts(c) ||
	    !epoll_ctl(root->ends_fd, EPOLL_CTL_ADD,
		       srdma_lasting_control_fd(c), &e))
		return 0;
	return errno;
}

void verbs_worker_unwatch(const struct verbs_root *root,
			  const struct srdma_lasting_control *c)
{
	epoll_ctl(root->ends_fd, EPOLL_CTL_DEL, srdma_lasting_control_fd(c),
		  NULL);
}

void verbs_worker_gone(struct verbs_root *root)
{
	const int64_t deadline = srdma_socket_deadline(END_MS);

	if (root->gone)
		return;
	root->gone = 1;
	epoll_ctl(root->ctx.context.async_fd, EPOLL_CTL_DEL, root->ends_fd,
		  NULL);
	eventfd_write(root->gone_fd, 1);
	for (struct verbs_pd *pd = root->pds; pd; pd = pd->next)
		srdma_pd_check_leg(pd->pd, deadline);
	verbs_event_put(root, &root->fatal, IBV_EVENT_DEVICE_FATAL);
}

/* The connection of the device, which has no leg, is tried without an end if it is made
 * again. */
static int device_ended(const struct srdma_device *d)
{
	return !srdma_lasting_control_lasts(d->control) &&
	       !srdma_lasting_control_alive(d->control);
}

int verbs_worker_look(struct verbs_root *root)
{
	int ended = root->gone || device_ended(root->device);

	for (struct verbs_pd *pd = root->pds; pd; pd = pd->next)
		ended |= srdma_pd_gone(pd->pd);
	if (ended)
		verbs_worker_gone(root);
	return ended;
}

/* The worker closes a connection when it ends, and a leg over shared memory ends with
 * its connection. */
int verbs_worker_tells_end(const struct verbs_root *root)
{
	const struct srdma_device *d = root->device;

	return d->hello.host_kind == SRDMA_PORT_SHM &&
	       !srdma_lasting_control_lasts(d->control);
}

int verbs_wait(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	const int flags = fcntl(fd, F_GETFL);

	if (flags & O_NONBLOCK) {
		errno = flags < 0 ? EBADF : EAGAIN;
		return -1;
	}
	return poll(&p, 1, -1) < 0 ? -1 : 0;
}
