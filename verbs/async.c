/*
 * ibv_get_async_event(): the end of the worker, and events of QPs, CQs and SRQs, which are
 * noticed when a CQ is polled or an event is waited for. The descriptor that a program
 * waits on is an epoll of an eventfd, which is readable while an event waits, and of the
 * end of the worker, until this is an event.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/objects.h"

int verbs_async_open(struct verbs_root *root)
{
	struct epoll_event e = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC);

	root->ctx.context.async_fd = fd;
	root->events_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0 || root->events_fd < 0 ||
	    epoll_ctl(fd, EPOLL_CTL_ADD, root->events_fd, &e) ||
	    epoll_ctl(fd, EPOLL_CTL_ADD, root->ends_fd, &e))
		return errno;
	return 0;
}

void verbs_async_close(struct verbs_root *root)
{
	if (root->ctx.context.async_fd >= 0)
		close(root->ctx.context.async_fd);
	if (root->events_fd >= 0)
		close(root->events_fd);
}

static int take(struct verbs_root *root, struct ibv_async_event *event)
{
	int found;

	pthread_mutex_lock(&root->lock);
	found = verbs_event_take(root, event);
	if (!found) {
		verbs_collect(root);
		verbs_worker_look(root);
		found = verbs_event_take(root, event);
	}
	pthread_mutex_unlock(&root->lock);
	return found;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	struct verbs_root *root = verbs_root_of(context);

	while (!take(root, event))
		if (verbs_wait(context->async_fd))
			return -1;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	verbs_event_ack(event);
}
